import type { Revision, WatchEvent } from "../coordinator/index.ts";
import { causeNumber, keyValueBytes, writeKeyValue } from "./encode-result.ts";
import { ReverseWriter } from "./writer.ts";

/** Events of one or more whole revisions as they stand in a `WatchEvents` message. */
export interface EncodedEvents {
  readonly bytes: Buffer;
  readonly revision: Revision;
}

const KIND_PUT = 1;
const KIND_DELETE = 2;

function writeEvent(w: ReverseWriter, event: WatchEvent): void {
  const before = w.length;
  w.uint(0x20, causeNumber(event.cause));
  if (event.previous !== undefined) writeKeyValue(w, 0x1a, event.previous);
  writeKeyValue(w, 0x12, event.kv);
  w.uint(0x08, event.kind === "put" ? KIND_PUT : KIND_DELETE);
  w.close(0x12, before);
}

function eventBytes(event: WatchEvent): number {
  return 16 + keyValueBytes(event.kv) + (event.previous === undefined ? 0 : keyValueBytes(event.previous));
}

/** Longer batches are encoded for each watch: catch-up, where few are at the same place. */
const COMPARED_MAX = 1_024;

/** The hub's events are shared by all watches that see them: the same events are the same objects. */
function sameEvents(one: readonly WatchEvent[], other: readonly WatchEvent[]): boolean {
  if (one === other) return true;
  if (one.length !== other.length) return false;
  for (let i = 0; i < one.length; i += 1) if (one[i] !== other[i]) return false;
  return true;
}

/**
 * Encodes watch events, once for all watches that see the same ones: a thousand watchers of one key cost one
 * encoding. Only the newest encoding is kept, because a hub serves all watches of one entry in one go.
 */
export class EventEncoder {
  private readonly writer = new ReverseWriter();
  private readonly chunkBytes: number;
  private lastEvents: readonly WatchEvent[] = [];
  private last: readonly EncodedEvents[] = [];

  /** Batches above `chunkBytes` are cut, between revisions only. */
  constructor(chunkBytes: number) {
    this.chunkBytes = chunkBytes;
  }

  /** @returns the same buffers for the same events again, as long as nothing else is encoded or {@link forget} called. */
  encode(events: readonly WatchEvent[], revision: Revision): readonly EncodedEvents[] {
    const { last } = this;
    if (last[last.length - 1]?.revision === revision && sameEvents(events, this.lastEvents)) return last;
    const encoded = this.encodeChunks(events, revision);
    if (events.length <= COMPARED_MAX) {
      this.lastEvents = events;
      this.last = encoded;
    }
    return encoded;
  }

  /** Drops the kept encoding: called at the end of a turn, so that an idle door holds no values. */
  forget(): void {
    this.lastEvents = [];
    this.last = [];
  }

  private encodeChunks(events: readonly WatchEvent[], revision: Revision): EncodedEvents[] {
    const chunks: EncodedEvents[] = [];
    let start = 0;
    let bytes = 0;
    for (let i = 0; i < events.length; i += 1) {
      const event = events[i] as WatchEvent;
      const before = events[i - 1];
      if (bytes > this.chunkBytes && before !== undefined && before.kv.modRevision !== event.kv.modRevision) {
        chunks.push({ bytes: this.encodeRun(events, start, i), revision: before.kv.modRevision });
        start = i;
        bytes = 0;
      }
      bytes += eventBytes(event);
    }
    chunks.push({ bytes: this.encodeRun(events, start, events.length), revision });
    return chunks;
  }

  private encodeRun(events: readonly WatchEvent[], start: number, end: number): Buffer {
    for (let i = end - 1; i >= start; i -= 1) writeEvent(this.writer, events[i] as WatchEvent);
    return this.writer.finish();
  }
}
