import type { KeyValue, Revision, WatchEvent } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { MachineEvent, NamespaceId, RevisionEvents } from "../machine/types.ts";

/** Looks up a key's state before `revision`. */
export type StateBefore = (
  namespaceId: NamespaceId,
  key: Uint8Array,
  revision: Revision,
) => KeyValue | undefined;

/** Fixed part of an event in the books, beside its key and value. */
const EVENT_BYTES = 160;

export function eventBytes(event: WatchEvent): number {
  const previous = event.previous;
  const bytes = EVENT_BYTES + event.kv.key.length + event.kv.value.length;
  return previous === undefined ? bytes : bytes + EVENT_BYTES + previous.key.length + previous.value.length;
}

/**
 * One revision as watchers get it. The machine's own event objects are what is delivered, so that all watchers (and
 * the doors' caches of encodings) share them; the variants with `previous` are made once, when first asked for.
 */
export class SharedRevision {
  readonly namespaceId: NamespaceId;
  readonly revision: Revision;
  readonly events: readonly MachineEvent[];
  #withPrevious: (WatchEvent | undefined)[] | undefined;

  constructor(source: RevisionEvents) {
    this.namespaceId = source.namespaceId;
    this.revision = source.revision;
    this.events = source.events;
  }

  /** The event at `position` with the key's state before it, where there was one and it is retained. */
  withPrevious(position: number, stateBefore: StateBefore): WatchEvent {
    this.#withPrevious ??= new Array<undefined>(this.events.length).fill(undefined);
    const known = this.#withPrevious[position];
    if (known !== undefined) return known;
    const event = this.events[position];
    assert(event !== undefined, "position < events", { position });
    const previous =
      event.previousRevision === 0 ? undefined : stateBefore(this.namespaceId, event.kv.key, this.revision);
    const made: WatchEvent =
      previous === undefined ? event : { kind: event.kind, kv: event.kv, previous, cause: event.cause };
    this.#withPrevious[position] = made;
    return made;
  }

  get bytes(): number {
    let bytes = EVENT_BYTES;
    for (const event of this.events) bytes += eventBytes(event);
    return bytes;
  }
}

/** Recent revisions of all namespaces, bounded in bytes. Holds every revision above `floor`. */
export class EventRing {
  readonly #bytesMax: number;
  #items: SharedRevision[] = [];
  #sizes: number[] = [];
  /** Items before it are evicted. */
  #head = 0;
  #bytes = 0;
  #floor: Revision;

  constructor(bytesMax: number, floor: Revision) {
    this.#bytesMax = bytesMax;
    this.#floor = floor;
  }

  /** The newest revision that is not covered any more. */
  get floor(): Revision {
    return this.#floor;
  }

  get bytes(): number {
    return this.#bytes;
  }

  append(item: SharedRevision): void {
    const size = item.bytes;
    this.#items.push(item);
    this.#sizes.push(size);
    this.#bytes += size;
    while (this.#bytes > this.#bytesMax) this.#evict();
  }

  /** Nothing at or below `floor` is covered; the ring is empty. */
  clear(floor: Revision): void {
    this.#items = [];
    this.#sizes = [];
    this.#head = 0;
    this.#bytes = 0;
    this.#floor = floor;
  }

  /** Everything up to `revision` passed by without being kept. */
  skipTo(revision: Revision): void {
    if (this.#items.length > 0) this.clear(revision);
    else this.#floor = revision;
  }

  /** Position of the first item at or above `revision`, for {@link at}. */
  find(revision: Revision): number {
    let low = this.#head;
    let high = this.#items.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#items[middle]?.revision ?? 0) < revision) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  at(position: number): SharedRevision | undefined {
    return this.#items[position];
  }

  #evict(): void {
    const item = this.#items[this.#head];
    assert(item !== undefined, "a ring with bytes has items", { bytes: this.#bytes });
    this.#bytes -= this.#sizes[this.#head] ?? 0;
    this.#floor = item.revision;
    this.#head += 1;
    // Amortised: each item is moved at most once for each item evicted.
    if (this.#head >= 1_024 && this.#head * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#sizes = this.#sizes.slice(this.#head);
      this.#head = 0;
    } else {
      // Free what it held, the slot stays until the next move.
      this.#items[this.#head - 1] = EVICTED;
    }
  }
}

const EVICTED = new SharedRevision({ namespaceId: 0, revision: 0 as Revision, events: [] });
