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

/**
 * Encodes watch events, once for all watches that see the same ones: a thousand watchers of one key cost one
 * encoding. Only the newest encoding is kept, because a hub serves all watches of one entry in one go.
 */
export class EventEncoder {
  private readonly writer = new ReverseWriter();
  private readonly chunkBytes: number;
  private lastFirst: WatchEvent | undefined;
  private lastLast: WatchEvent | undefined;
  private lastLength = 0;
  private last: readonly EncodedEvents[] = [];

  /** Batches above `chunkBytes` are cut, between revisions only. */
  constructor(chunkBytes: number) {
    this.chunkBytes = chunkBytes;
  }

  encode(events: readonly WatchEvent[], revision: Revision): readonly EncodedEvents[] {
    const { length } = events;
    const first = events[0];
    const last = events[length - 1];
    // Two batches of at most two events with the same ends are the same. Longer ones could differ in between.
    const comparable = length <= 2;
    if (
      comparable &&
      first === this.lastFirst &&
      last === this.lastLast &&
      length === this.lastLength &&
      this.last[0]?.revision === revision
    ) {
      return this.last;
    }
    const encoded = this.encodeChunks(events, revision);
    if (comparable && encoded.length === 1) {
      this.lastFirst = first;
      this.lastLast = last;
      this.lastLength = length;
      this.last = encoded;
    }
    return encoded;
  }

  /** Drops the kept encoding: called at the end of a turn, so that an idle door holds no values. */
  forget(): void {
    this.lastFirst = undefined;
    this.lastLast = undefined;
    this.lastLength = 0;
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
