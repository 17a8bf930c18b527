import type { KeyRange, Revision, WatchEvent } from "../../coordinator/index.ts";
import type { ProtoReader } from "../../native/reader.ts";
import { ReverseWriter } from "../../native/writer.ts";
import type { HeaderFacts } from "./encode-kv.ts";
import { keyValueBytes, writeEvent, writeHeader } from "./encode-kv.ts";

const EMPTY: Buffer = Buffer.alloc(0);
const EVERYTHING: Buffer = Buffer.from([0]);
const NOPUT = 0;
const NODELETE = 1;

export interface WatchCreate {
  readonly kind: "create";
  /** `undefined`: no key can be in it. */
  readonly range: KeyRange | undefined;
  /** Negative is possible. 0: from now on. */
  readonly startRevision: number;
  readonly progressNotify: boolean;
  readonly omitPuts: boolean;
  readonly omitDeletes: boolean;
  readonly returnPrevious: boolean;
  /** 0: the server chooses. */
  readonly watchId: number;
  readonly fragment: boolean;
}

export type WatchRequestMessage =
  | WatchCreate
  | { readonly kind: "cancel"; readonly watchId: number }
  | { readonly kind: "progress" }
  /** Something that this version does not know. */
  | { readonly kind: "unknown" };

/** Decodes one WatchRequest. @throws MalformedError */
export function readWatchRequest(r: ProtoReader, message: Buffer): WatchRequestMessage {
  r.reset(message, 0, message.length);
  let request: WatchRequestMessage = { kind: "unknown" };
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x0a) {
      request = readCreate(r);
    } else if (tag === 0x12) {
      request = { kind: "cancel", watchId: readCancel(r) };
    } else if (tag === 0x1a) {
      r.leave(r.enter());
      request = { kind: "progress" };
    } else {
      r.skip(tag);
    }
  }
  return request;
}

function readCancel(r: ProtoReader): number {
  const outer = r.enter();
  let watchId = 0;
  while (r.position < r.limit) {
    const tag = r.uint32();
    if (tag === 0x08) watchId = r.int53();
    else r.skip(tag);
  }
  r.leave(outer);
  return watchId;
}

function readCreate(r: ProtoReader): WatchCreate {
  const outer = r.enter();
  let key: Buffer = EMPTY;
  let rangeEnd: Buffer = EMPTY;
  const create = {
    kind: "create",
    startRevision: 0,
    progressNotify: false,
    omitPuts: false,
    omitDeletes: false,
    returnPrevious: false,
    watchId: 0,
    fragment: false,
  } as { -readonly [K in keyof WatchCreate]: WatchCreate[K] };
  const filter = (type: number): void => {
    if (type === NOPUT) create.omitPuts = true;
    else if (type === NODELETE) create.omitDeletes = true;
  };
  while (r.position < r.limit) {
    const tag = r.uint32();
    switch (tag) {
      case 0x0a:
        key = r.bytes();
        break;
      case 0x12:
        rangeEnd = r.bytes();
        break;
      case 0x18:
        create.startRevision = r.int53();
        break;
      case 0x20:
        create.progressNotify = r.bool();
        break;
      case 0x28:
        filter(r.uint32());
        break;
      case 0x2a: {
        const list = r.enter();
        while (r.position < r.limit) filter(r.uint32());
        r.leave(list);
        break;
      }
      case 0x30:
        create.returnPrevious = r.bool();
        break;
      case 0x38:
        create.watchId = r.int53();
        break;
      case 0x40:
        create.fragment = r.bool();
        break;
      default:
        r.skip(tag);
    }
  }
  r.leave(outer);
  create.range = watchedRange(key, rangeEnd);
  return create;
}

/** The key is copied: it outlives its message. An empty one stands for the first that there can be. */
function watchedRange(key: Buffer, rangeEnd: Buffer): KeyRange | undefined {
  const start = key.length === 0 ? EVERYTHING : Buffer.from(key);
  if (rangeEnd.length === 0) return { key: start };
  if (rangeEnd.length === 1 && rangeEnd[0] === 0) return { key: start, rangeEnd: EMPTY };
  return Buffer.compare(start, rangeEnd) < 0 ? { key: start, rangeEnd: Buffer.from(rangeEnd) } : undefined;
}

/** What a WatchResponse says beside its events. */
export interface WatchAnswer {
  readonly watchId: number;
  readonly revision: number;
  readonly created?: boolean;
  readonly canceled?: boolean;
  readonly compactRevision?: number;
  readonly cancelReason?: string;
  readonly fragment?: boolean;
}

/** A WatchResponse without events, or what stands before them. */
export function encodeWatchAnswer(w: ReverseWriter, facts: HeaderFacts, answer: WatchAnswer): Buffer {
  w.bool(0x38, answer.fragment === true);
  w.string(0x32, answer.cancelReason ?? "");
  w.uint(0x28, answer.compactRevision ?? 0);
  w.bool(0x20, answer.canceled === true);
  w.bool(0x18, answer.created === true);
  w.signed(0x10, answer.watchId);
  writeHeader(w, facts, answer.revision);
  return w.finish();
}

/** Encoded `events` fields. */
export interface EncodedEvents {
  readonly bytes: Buffer;
  /** The last revision covered. */
  readonly revision: Revision;
  /** The following chunk is of the same revision: to be sent only as a fragment. */
  readonly fragment: boolean;
}

/**
 * Encodes events once for all watches that see the same ones: a thousand watchers of one key cost one encoding. Only the
 * newest encoding is kept, because a hub serves all watches of one entry in one go.
 */
export class EtcdEventEncoder {
  private readonly writer = new ReverseWriter();
  private readonly chunkBytes: number;
  private lastEvents: readonly WatchEvent[] | undefined;
  private lastFirst: WatchEvent | undefined;
  private lastSecond: WatchEvent | undefined;
  private lastRevision = 0;
  private lastFragments = false;
  private last: readonly EncodedEvents[] = [];
  private forgetting = false;

  /** Answers are cut above `chunkBytes`, between revisions unless fragments are asked for. */
  constructor(chunkBytes: number) {
    this.chunkBytes = chunkBytes;
  }

  encode(events: readonly WatchEvent[], revision: Revision, fragments: boolean): readonly EncodedEvents[] {
    if (this.isLast(events, revision, fragments)) return this.last;
    this.last = this.encodeChunks(events, revision, fragments);
    this.lastEvents = events;
    this.lastFirst = events[0];
    this.lastSecond = events[1];
    this.lastRevision = revision;
    this.lastFragments = fragments;
    if (!this.forgetting) {
      this.forgetting = true;
      // Behind the deliveries of this turn: an idle door holds no values.
      setImmediate(() => this.forget());
    }
    return this.last;
  }

  private forget(): void {
    this.forgetting = false;
    this.lastEvents = undefined;
    this.lastFirst = undefined;
    this.lastSecond = undefined;
    this.last = [];
  }

  /** Two lists of at most two events with the same ends are the same; longer ones could differ in between. */
  private isLast(events: readonly WatchEvent[], revision: Revision, fragments: boolean): boolean {
    if (revision !== this.lastRevision || fragments !== this.lastFragments) return false;
    if (events === this.lastEvents) return true;
    const { lastEvents } = this;
    return (
      lastEvents !== undefined &&
      events.length === lastEvents.length &&
      events.length <= 2 &&
      events[0] === this.lastFirst &&
      events[1] === this.lastSecond
    );
  }

  private encodeChunks(
    events: readonly WatchEvent[],
    revision: Revision,
    fragments: boolean,
  ): EncodedEvents[] {
    const chunks: EncodedEvents[] = [];
    let start = 0;
    let bytes = 0;
    for (let i = 0; i < events.length; i += 1) {
      const event = events[i] as WatchEvent;
      const before = events[i - 1];
      const size = eventBytes(event);
      if (before !== undefined && bytes + size > this.chunkBytes) {
        const within = before.kv.modRevision === event.kv.modRevision;
        if (!within || fragments) {
          chunks.push({
            bytes: this.run(events, start, i),
            revision: before.kv.modRevision,
            fragment: within,
          });
          start = i;
          bytes = 0;
        }
      }
      bytes += size;
    }
    chunks.push({ bytes: this.run(events, start, events.length), revision, fragment: false });
    return chunks;
  }

  private run(events: readonly WatchEvent[], start: number, end: number): Buffer {
    for (let i = end - 1; i >= start; i -= 1) writeEvent(this.writer, events[i] as WatchEvent);
    return this.writer.finish();
  }
}

function eventBytes({ kv, previous }: WatchEvent): number {
  return 16 + keyValueBytes(kv) + (previous === undefined ? 0 : keyValueBytes(previous));
}
