import type { Revision, WatchEvent, WatchRequest, WatchSink } from "../coordinator/index.ts";
import type { MemoryNamespace } from "./memory-namespace.ts";
import { textOf } from "./memory-namespace.ts";

/** One watch of the in-memory coordinator: walks the namespace's log, and stops while its consumer is full. */
export class MemoryWatch {
  readonly request: WatchRequest;
  private readonly sink: WatchSink;
  private readonly namespace: MemoryNamespace;
  /** The next revision to deliver. */
  private next: number;
  private full = false;
  private progressWanted = false;
  private open = true;

  constructor(request: WatchRequest, sink: WatchSink, state: { namespace: MemoryNamespace; next: number }) {
    this.request = request;
    this.sink = sink;
    this.namespace = state.namespace;
    this.next = state.next;
  }

  get isOpen(): boolean {
    return this.open;
  }

  cancel(): void {
    this.open = false;
  }

  resume(): void {
    this.full = false;
  }

  wantProgress(): void {
    this.progressWanted = true;
  }

  /** Ends the watch the way a hub does when its consumer never drains. */
  endSlow(): void {
    this.open = false;
    this.sink.end({ kind: "slow-consumer", resumeRevision: this.next as Revision });
  }

  /** Delivers everything up to `current`, one revision a call of the sink. */
  catchUp(current: Revision): void {
    if (!this.open || this.full) return;
    if (this.next < this.namespace.compactRevision) {
      this.open = false;
      this.sink.end({ kind: "compacted", compactRevision: this.namespace.compactRevision as Revision });
      return;
    }
    for (const { revision, events } of this.namespace.log) {
      if (revision < this.next) continue;
      this.next = revision + 1;
      const seen = this.visible(events);
      if (seen.length === 0) continue;
      if (!this.sink.events(seen, revision)) this.full = true;
      if (this.full || !this.isOpen) return;
    }
    this.next = Math.max(this.next, current + 1);
    if (!this.progressWanted) return;
    this.progressWanted = false;
    this.sink.progress((this.next - 1) as Revision);
  }

  private visible(events: readonly WatchEvent[]): readonly WatchEvent[] {
    const { range, omit, returnPrevious } = this.request;
    const start = textOf(range.key);
    const end = range.rangeEnd === undefined ? undefined : textOf(range.rangeEnd);
    return events
      .filter((event) => {
        const key = textOf(event.kv.key);
        if (event.kind === omit) return false;
        return end === undefined ? key === start : key >= start && (end === "" || key < end);
      })
      .map((event) => (returnPrevious === true ? event : withoutPrevious(event)));
  }
}

const PLAIN = new WeakMap<WatchEvent, WatchEvent>();

/** The same object for all watches, as a hub gives it. */
function withoutPrevious(event: WatchEvent): WatchEvent {
  const known = PLAIN.get(event);
  if (known !== undefined) return known;
  const plain = { kind: event.kind, kv: event.kv, cause: event.cause };
  PLAIN.set(event, plain);
  return plain;
}
