import { assert } from "../invariant.ts";
import type { HardState, LogIndex, Term } from "../raft/types.ts";
import { BatchEncoder, type EncodedBatch, scratchBytes } from "./batch-encoder.ts";
import { diskError, type WalError } from "./error.ts";
import {
  BATCH_OVERHEAD_BYTES,
  HARD_STATE_BYTES,
  headBytes,
  RELEASE_BYTES,
  seedAt,
  type SegmentSeeds,
  segmentSeeds,
  writeBytes,
} from "./format.ts";
import { goesBack } from "./replay.ts";
import { type OpenSegment, SegmentSupply } from "./segment-supply.ts";
import { type FullSegment, SegmentRemoval } from "./segment-removal.ts";
import type { LogPosition, Wal, WalOptions, WalWrite } from "./types.ts";

/** Default of {@link WalOptions.segmentBytesMax}. */
export const SEGMENT_BYTES_DEFAULT: number = 16 * 1024 * 1024;
/** Group commits beyond this gain nothing and delay their first write. */
const GROUP_BYTES_MAX = 4 * 1024 * 1024;

/** A write that waits for its group. */
interface Queued {
  readonly write: WalWrite;
  readonly done: () => void;
  readonly bytes: number;
  readonly scratch: number;
}

/** State of the log after some write. */
interface LogState {
  readonly hardState: HardState | undefined;
  readonly logStart: LogPosition;
  readonly last: LogPosition;
}

/** Where a recovered or fresh log goes on. All of it is durable. */
export interface WriterStart extends LogState {
  readonly current: OpenSegment;
  /** Where the next batch goes; 0 when the segment is unused. */
  readonly offset: number;
  readonly chain: number;
  readonly indexMax: number;
  /** Older segments, oldest first. */
  readonly older: readonly FullSegment[];
  /** The unused segment after the current one, when there is one. */
  readonly next: OpenSegment | undefined;
}

interface Closing {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/**
 * - `idle`: nothing to write, or a start is already scheduled for the end of this turn (`scheduled`).
 * - `writing`: one group is on its way to the disk.
 * - `waiting`: for the next segment.
 */
type Phase = "idle" | "scheduled" | "writing" | "waiting" | "failed";

/**
 * The writing half. One group is in flight at a time; what is appended meanwhile forms the next group. The order on disk
 * is the order of the calls.
 */
export class WriteAheadLog implements Wal {
  readonly #options: WalOptions;
  readonly #encoder: BatchEncoder = new BatchEncoder();
  readonly #supply: SegmentSupply;
  readonly #removal: SegmentRemoval;
  readonly #headBytes: number;
  readonly #groupBytesMax: number;

  #phase: Phase = "idle";
  #queue: Queued[] = [];
  #flight: Queued[] = [];
  #flightStartedMs = 0;
  #flightBytes = 0;
  /** What the records encoded so far say; `#queued` also counts what waits in the queue. */
  #hardState: HardState | undefined;
  #logStart: LogPosition;
  #last: LogPosition;
  #queued: LogState;
  /** The log start that the newest record states; segments go by this one, never by `#logStart`. */
  #recordedStart: number;
  /** `#logStart` is newer and worth a record because it frees a segment. */
  #markerWanted = false;

  #current: OpenSegment;
  #seeds: SegmentSeeds;
  #offset: number;
  #chain: number;
  #indexMax: number;
  /** The segment before the current one until the head of the current one is durable. */
  #leaving: FullSegment | undefined;
  /** The group in flight installs a snapshot: all older segments are void once it is durable. */
  #voidsOlder = false;

  #closing: Closing | undefined;
  #failure: WalError | undefined;

  constructor(options: WalOptions, start: WriterStart) {
    const { disk, directory, identity, segmentBytesMax = SEGMENT_BYTES_DEFAULT } = options;
    this.#options = options;
    this.#headBytes = headBytes(identity) + HARD_STATE_BYTES;
    const room = segmentBytesMax - BATCH_OVERHEAD_BYTES - this.#headBytes - RELEASE_BYTES;
    assert(room > 0, "a segment holds more than its head", { segmentBytesMax });
    this.#groupBytesMax = Math.min(GROUP_BYTES_MAX, room);
    const onFatal = (error: WalError): void => this.#fail(error);
    this.#supply = new SegmentSupply({
      disk,
      directory,
      segmentBytes: segmentBytesMax,
      nextSegment: start.current.segment + 1,
      onFatal,
    });
    if (start.next !== undefined) this.#supply.adopt(start.next);
    this.#removal = new SegmentRemoval({
      disk,
      directory,
      onFatal,
      older: start.older,
      // A full volume may have kept the next segment from being made.
      onFreed: () => void this.#supply.fill(),
    });
    this.#current = start.current;
    this.#seeds = segmentSeeds(start.current.segment, identity);
    this.#offset = start.offset;
    this.#chain = start.chain;
    this.#indexMax = start.indexMax;
    this.#hardState = start.hardState;
    this.#logStart = start.logStart;
    this.#recordedStart = start.logStart.index;
    this.#last = start.last;
    this.#queued = { hardState: start.hardState, logStart: start.logStart, last: start.last };
  }

  get bytes(): number {
    return this.#removal.bytes + (this.#leaving?.bytes ?? 0) + this.#current.bytes + this.#supply.readyBytes;
  }

  /**
   * Resolves when the next segment is ready, or the volume too full for it. Called once, before the log is used.
   *
   * @throws {WalError} when the disk failed
   */
  async fill(): Promise<void> {
    await this.#supply.fill();
    if (this.#failure !== undefined) throw this.#failure;
  }

  append(write: WalWrite, done: () => void): void {
    assert(this.#closing === undefined, "no append after close");
    this.#advanceQueued(write);
    if (this.#failure !== undefined) return;
    this.#queue.push({ write, done, bytes: writeBytes(write), scratch: scratchBytes(write) });
    this.#schedule();
  }

  release(index: LogIndex, term: Term): void {
    assert(index <= this.#last.index, "released <= last", { index, last: this.#last.index });
    if (index <= this.#logStart.index || this.#failure !== undefined || this.#closing !== undefined) return;
    this.#logStart = { index, term };
    if (this.#queued.logStart.index < index) this.#queued = { ...this.#queued, logStart: this.#logStart };
    this.#wantMarker();
    if (this.#markerWanted) this.#schedule();
  }

  close(): Promise<void> {
    if (this.#closing === undefined) {
      this.#closing = withResolvers();
      this.#closeWhenQuiet();
    }
    return this.#closing.promise;
  }

  /** The index rules (W6), for the whole queue: a caller that breaks them must not reach the disk. */
  #advanceQueued(write: WalWrite): void {
    let { hardState, logStart, last } = this.#queued;
    const { snapshot, entries } = write;
    if (snapshot !== undefined) {
      assert(snapshot.index >= logStart.index, "snapshot is not before the log's start", { ...snapshot });
      logStart = snapshot;
      last = snapshot;
    }
    const first = entries[0];
    const final = entries.at(-1);
    if (first !== undefined && final !== undefined) {
      assert(first.index > logStart.index, "entries come after the log's start", { index: first.index });
      assert(first.index <= last.index + 1, "entries leave no gap", { index: first.index, last: last.index });
      assert(first.index <= last.index || first.term >= last.term, "terms ascend", { index: first.index });
      assert(final.index - first.index === entries.length - 1, "entries are contiguous", {
        index: first.index,
      });
      last = { index: final.index, term: final.term };
    }
    if (write.hardState !== undefined) {
      const back = hardState !== undefined && goesBack(hardState, write.hardState);
      assert(!back, "hard state never goes back", { ...write.hardState });
      assert(write.hardState.commit <= last.index, "commit <= last", {
        ...write.hardState,
        last: last.index,
      });
      hardState = write.hardState;
    }
    const term = hardState?.term ?? last.term;
    assert(term >= last.term, "the hard state knows the last entry's term", { term, last: last.term });
    this.#queued = { hardState, logStart, last };
  }

  #wantMarker(): void {
    this.#markerWanted ||=
      this.#recordedStart < this.#logStart.index && this.#removal.frees(this.#logStart.index);
  }

  /** The write starts at the end of this turn: whatever the turn still appends goes into the same group. */
  #schedule(): void {
    if (this.#phase !== "idle") return;
    this.#phase = "scheduled";
    queueMicrotask(() => this.#start());
  }

  /** Encodes the next group and hands it to the disk. */
  #start(): void {
    if (this.#phase === "failed") return;
    this.#phase = "idle";
    if (this.#queue.length === 0 && !this.#markerWanted) return this.#closeWhenQuiet();
    const count = this.#groupLength();
    let bytes = BATCH_OVERHEAD_BYTES + RELEASE_BYTES;
    let scratch = RELEASE_BYTES;
    for (let i = 0; i < count; i++) {
      const queued = this.#queue[i];
      assert(queued !== undefined, "the group is part of the queue");
      bytes += queued.bytes;
      scratch += queued.scratch;
    }
    if (this.#offset + bytes > this.#current.bytes) {
      const next = this.#supply.take(bytes + this.#headBytes, () => this.#start());
      if (next === undefined) {
        this.#phase = "waiting";
        return;
      }
      this.#cut(next);
    }
    this.#flight = count === this.#queue.length ? this.#queue : this.#queue.slice(0, count);
    this.#queue = count === this.#queue.length ? [] : this.#queue.slice(count);
    this.#write(this.#encode(scratch));
  }

  /** Writes of the next group: at least one, so that one larger than the bound (or a segment) still goes. */
  #groupLength(): number {
    let bytes = 0;
    let count = 0;
    for (const queued of this.#queue) {
      bytes += queued.bytes;
      if (count > 0 && bytes > this.#groupBytesMax) break;
      count++;
    }
    return count;
  }

  #cut(next: OpenSegment): void {
    const { name, path, bytes, file } = this.#current;
    assert(this.#leaving === undefined, "the head of the current segment is durable");
    this.#leaving = { name, path, bytes, indexMax: this.#indexMax };
    // All its writes are durable: whatever close() says changes nothing about them.
    this.#removal.closeFile(file);
    this.#current = next;
    this.#seeds = segmentSeeds(next.segment, this.#options.identity);
    this.#offset = 0;
    this.#indexMax = 0;
  }

  #encode(scratch: number): EncodedBatch {
    const encoder = this.#encoder;
    const place = { offset: this.#offset, seed: seedAt(this.#seeds, this.#offset), chain: this.#chain };
    if (this.#offset === 0) {
      encoder.begin(scratch + this.#headBytes);
      encoder.head({
        identity: this.#options.identity,
        segment: this.#current.segment,
        last: this.#last,
        logStart: this.#logStart,
      });
      if (this.#hardState !== undefined) encoder.hardState(this.#hardState);
      this.#recordedStart = this.#logStart.index;
    } else {
      encoder.begin(scratch);
      if (this.#markerWanted) {
        encoder.release(this.#logStart);
        this.#recordedStart = this.#logStart.index;
      }
    }
    this.#markerWanted = false;
    for (const queued of this.#flight) {
      encoder.write(queued.write);
      this.#advance(queued.write);
    }
    return encoder.finish(place);
  }

  #advance(write: WalWrite): void {
    if (write.snapshot !== undefined) {
      this.#last = write.snapshot;
      this.#logStart = write.snapshot;
      this.#recordedStart = write.snapshot.index;
      this.#voidsOlder = true;
      this.#indexMax = 0;
    }
    const final = write.entries.at(-1);
    if (final !== undefined) {
      this.#last = { index: final.index, term: final.term };
      this.#indexMax = Math.max(this.#indexMax, final.index);
    }
    if (write.hardState !== undefined) this.#hardState = write.hardState;
  }

  #write(batch: EncodedBatch): void {
    const position = this.#offset;
    assert(position + batch.bytes <= this.#current.bytes, "the batch fits its segment", { position });
    this.#offset += batch.bytes;
    this.#chain = batch.chain;
    this.#phase = "writing";
    this.#flightBytes = batch.bytes;
    this.#flightStartedMs = this.#options.now();
    const recordedStart = this.#recordedStart;
    this.#current.file.writeDurably(batch.buffers, position).then(
      () => this.#onDurable(recordedStart),
      (error: unknown) => this.#fail(diskError(`Writing to segment ${this.#current.name}`, error)),
    );
  }

  /** @param recordedStart the log start that a record up to this group states */
  #onDurable(recordedStart: number): void {
    if (this.#phase === "failed") return;
    const flight = this.#flight;
    this.#flight = [];
    this.#options.onSync?.(this.#options.now() - this.#flightStartedMs, flight.length, this.#flightBytes);
    if (this.#leaving !== undefined || this.#voidsOlder) this.#settleSegments();
    this.#removal.run(recordedStart);
    // The disk gets its next work before the callbacks take their time.
    this.#start();
    for (const queued of flight) queued.done();
  }

  #settleSegments(): void {
    if (this.#leaving !== undefined) this.#removal.add(this.#leaving);
    this.#leaving = undefined;
    if (this.#voidsOlder) this.#removal.voidAll();
    this.#voidsOlder = false;
    this.#wantMarker();
  }

  /** W7: what the disk holds is unknown now. Nobody hears of anything that was not durable before. */
  #fail(error: WalError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#phase = "failed";
    this.#queue = [];
    this.#flight = [];
    this.#closing?.reject(error);
    this.#options.onFatal(error);
  }

  #closeWhenQuiet(): void {
    const closing = this.#closing;
    if (closing === undefined) return;
    if (this.#failure !== undefined) return closing.reject(this.#failure);
    if (this.#phase !== "idle" || this.#queue.length > 0 || this.#markerWanted) return;
    this.#closeFiles().then(closing.resolve, (error: unknown) => {
      closing.reject(diskError("Closing the write-ahead log", error));
    });
  }

  async #closeFiles(): Promise<void> {
    await this.#removal.close();
    await this.#supply.close();
    await this.#current.file.close();
  }
}

function withResolvers(): Closing {
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  return { promise, resolve: () => resolve(undefined), reject };
}
