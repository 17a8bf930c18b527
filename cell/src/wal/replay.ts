import { WalError, type WalPosition } from "./error.ts";
import { segmentName, type SegmentHead, type WalRecord } from "./format.ts";
import type { Batch } from "./segment-reader.ts";
import type { Entry, HardState } from "../raft/types.ts";
import type { LogPosition, WalIdentity } from "./types.ts";

/** The log as its records leave it. */
export interface ReplayedLog {
  readonly hardState: HardState | undefined;
  readonly logStart: LogPosition;
  readonly entries: readonly Entry[];
  /** The last entry, or `logStart`. */
  readonly last: LogPosition;
}

/** Applies records in disk order and holds them to the rules of W6. Checksums were verified before. */
export class Replay {
  readonly #identity: WalIdentity;
  #hardState: HardState | undefined;
  #logStart: LogPosition | undefined;
  /** Entries from `#base` on; those before it are in segments that were removed. */
  #entries: Entry[] = [];
  #base = 0;
  /** The position just before `#base`, when its term is known. */
  #before: LogPosition | undefined;
  /** Highest index of an entry per segment that a later snapshot has not voided. */
  #indexMax = new Map<number, number>();
  #segment = 0;
  #position: WalPosition = { segment: "", offset: 0 };

  constructor(identity: WalIdentity) {
    this.#identity = identity;
  }

  /** Segments in order, the batches of each in order. */
  batch(segment: number, batch: Batch): void {
    this.#segment = segment;
    for (const record of batch.records) {
      this.#position = { segment: segmentName(segment), offset: record.offset };
      this.#apply(record);
    }
  }

  /** 0 when the segment holds no entry that counts. */
  indexMaxOf(segment: number): number {
    return this.#indexMax.get(segment) ?? 0;
  }

  /** @throws {WalError} when what remains is not a whole log */
  finish(): ReplayedLog {
    const logStart = this.#logStart;
    if (logStart === undefined) throw new WalError("missing", "The write-ahead log has no segment");
    if (logStart.index < this.#base - 1) {
      throw this.#error("missing", `Entries ${logStart.index + 1} to ${this.#base - 1} are in no segment`);
    }
    const released = logStart.index - this.#base + 1;
    const atStart = released === 0 ? this.#before : this.#entries[released - 1];
    if (atStart !== undefined && atStart.term !== logStart.term) {
      throw this.#error(
        "gap",
        `The log starts after ${logStart.index} of term ${logStart.term}, not ${atStart.term}`,
      );
    }
    const entries = released === 0 ? this.#entries : this.#entries.slice(released);
    if (logStart.index > this.#lastIndex()) throw this.#error("gap", "The log starts after its last entry");
    const last = entries.at(-1) ?? logStart;
    return { hardState: this.#checkedHardState(logStart, last), logStart, entries, last };
  }

  /** A persisted commit may lag what was released (R2), but not lead the log: then acknowledged entries are lost (R9). */
  #checkedHardState(logStart: LogPosition, last: LogPosition): HardState | undefined {
    const hardState = this.#hardState;
    if (hardState === undefined) return undefined;
    if (hardState.commit > last.index) {
      throw this.#error("missing", `Committed up to ${hardState.commit}, but the log ends at ${last.index}`);
    }
    if (hardState.term < last.term) {
      throw this.#error("gap", `Term ${hardState.term} is behind the last entry's term ${last.term}`);
    }
    return hardState.commit >= logStart.index ? hardState : { ...hardState, commit: logStart.index };
  }

  #apply(record: WalRecord): void {
    switch (record.kind) {
      case "head":
        this.#head(record.head);
        return;
      case "hard-state":
        this.#setHardState(record.hardState);
        return;
      case "snapshot":
        this.#snapshot(record.at);
        return;
      case "release":
        this.#release(record.at);
        return;
      case "entry":
        this.#entry(record.entry);
        return;
    }
  }

  #head(head: SegmentHead): void {
    const { identity, segment, last, logStart } = head;
    const own = this.#identity;
    for (const field of ["cellId", "memberId", "incarnation"] as const) {
      if (identity[field] !== own[field]) {
        throw this.#error(
          "foreign-identity",
          `The log was written by ${field} ${identity[field]}, not ${own[field]}`,
        );
      }
    }
    if (segment !== this.#segment) throw this.#error("gap", `The segment says it is number ${segment}`);
    if (this.#logStart === undefined) {
      this.#logStart = logStart;
      this.#base = last.index + 1;
      this.#before = last;
      return;
    }
    if (last.index !== this.#lastIndex()) {
      throw this.#error("gap", `The segment continues after entry ${last.index}, not ${this.#lastIndex()}`);
    }
    this.#release(logStart);
  }

  #setHardState(hardState: HardState): void {
    const now = this.#hardState;
    if (now !== undefined && goesBack(now, hardState)) throw this.#error("gap", "The hard state goes back");
    this.#hardState = hardState;
  }

  #snapshot(at: LogPosition): void {
    if (this.#logStart !== undefined && at.index < this.#logStart.index) {
      throw this.#error("gap", `A snapshot at ${at.index} is before the log's start ${this.#logStart.index}`);
    }
    this.#logStart = at;
    this.#entries = [];
    this.#base = at.index + 1;
    this.#before = at;
    this.#indexMax.clear();
  }

  #release(at: LogPosition): void {
    if (this.#logStart !== undefined && at.index < this.#logStart.index) {
      throw this.#error("gap", `The log's start goes back from ${this.#logStart.index} to ${at.index}`);
    }
    if (at.index > this.#lastIndex())
      throw this.#error("gap", `Released up to ${at.index}, after the last entry`);
    this.#logStart = at;
  }

  #entry(entry: Entry): void {
    const { index, term } = entry;
    const start = this.#logStart?.index ?? 0;
    if (index > this.#lastIndex() + 1) {
      throw this.#error("gap", `Entry ${index} follows entry ${this.#lastIndex()}`);
    }
    if (index <= start) throw this.#error("gap", `Entry ${index} is before the log's start ${start}`);
    if (index < this.#base) {
      // Supersedes entries of removed segments; those were released, which finish() checks.
      this.#entries = [];
      this.#base = index;
      this.#before = undefined;
    } else {
      this.#entries.length = index - this.#base;
    }
    const before = this.#entries.at(-1) ?? this.#before;
    if (before !== undefined && term < before.term) {
      throw this.#error("gap", `The term falls from ${before.term} to ${term} at entry ${index}`);
    }
    this.#entries.push(entry);
    this.#indexMax.set(this.#segment, Math.max(this.indexMaxOf(this.#segment), index));
  }

  #lastIndex(): number {
    return this.#base + this.#entries.length - 1;
  }

  #error(code: "gap" | "missing" | "foreign-identity", problem: string): WalError {
    return new WalError(code, problem, { position: this.#position });
  }
}

/** True when `next` forgets a term, a vote or a commit of `now` (I5). */
export function goesBack(now: HardState, next: HardState): boolean {
  if (next.term !== now.term) return next.term < now.term || next.commit < now.commit;
  return (now.vote !== 0 && next.vote !== now.vote) || next.commit < now.commit;
}
