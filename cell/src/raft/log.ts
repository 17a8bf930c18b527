import { assert } from "../invariant.ts";
import type { Entry, LogIndex, RaftInitialState, SnapshotMetadata, Term } from "./types.ts";
import { WriteQueue, type Write } from "./writes.ts";

/** Counted for an entry beside its data, wherever bytes are bounded. */
const ENTRY_OVERHEAD_BYTES = 32;

/** Dropped entries leave their slots behind until there are this many of them and they are half of the array. */
const COMPACTED_SLOTS_MIN = 1_024;

/** Consecutive entries and what they weigh. */
export interface LogSlice {
  readonly entries: readonly Entry[];
  readonly bytes: number;
}

export const NOTHING: LogSlice = { entries: [], bytes: 0 };

/** What an entry costs in memory, in a message and in a window. */
export function entryBytes(entry: Entry): number {
  return entry.data.length + ENTRY_OVERHEAD_BYTES;
}

/**
 * The log in memory: every entry behind `startIndex`, durable or not. Its marks, in order:
 * `startIndex <= applied <= delivered <= min(commit, stable)` and `commit, stable, handed <= lastIndex`.
 * `commit` may pass `stable` on a leader whose followers' disks are faster than its own.
 */
export class RaftLog {
  /** The entry right before the first one: of the newest snapshot, or dropped by compaction. */
  startIndex: LogIndex;
  startTerm: Term;
  /** Durable here. */
  stable: LogIndex;
  /** Handed to the host to be made durable. */
  handed: LogIndex;
  commit: LogIndex;
  /** Handed to the host to be applied. */
  delivered: LogIndex;
  applied: LogIndex;
  /** Of all entries in memory. */
  bytes = 0;
  /** Of the entries in (applied, delivered]. */
  deliveredBytes = 0;
  readonly writes: WriteQueue = new WriteQueue();

  #entries: (Entry | undefined)[] = [];
  /** Slots before this one belong to dropped entries. */
  #head = 0;
  /** Indexes of configuration entries that were neither applied nor refused, ascending. */
  #configurations: LogIndex[] = [];
  /** The latest slice: peers at the same place, and the disk, share one array. */
  #memo: { readonly from: LogIndex; readonly bytesMax: number; readonly slice: LogSlice } | undefined;

  constructor(initial: RaftInitialState) {
    this.startIndex = initial.logStart.index;
    this.startTerm = initial.logStart.term;
    this.applied = this.startIndex;
    this.commit = this.startIndex;
    for (const entry of initial.entries) this.#push(entry);
    const last = this.lastIndex;
    this.stable = last;
    this.handed = last;
    const { applied } = initial;
    // A state machine behind the log's start has a hole; one ahead of its end tells of a lost log (W9, W12).
    assert(this.startIndex <= applied && applied <= last, "log start <= applied <= last index", {
      start: this.startIndex,
      applied,
      last,
    });
    // The persisted commit may lag what was applied, never lead the log (R2, R9).
    this.commit = Math.max(initial.hardState?.commit ?? 0, applied) as LogIndex;
    assert(this.commit <= last, "the persisted commit index lies within the log", {
      commit: this.commit,
      last,
    });
    this.delivered = applied;
    this.applied = applied;
    this.#configurations = this.#configurations.filter((index) => index > applied);
  }

  get lastIndex(): LogIndex {
    return (this.startIndex + this.#entries.length - this.#head) as LogIndex;
  }

  get lastTerm(): Term {
    const last = this.#entries.length - 1;
    return last < this.#head ? this.startTerm : (this.#entries[last] as Entry).term;
  }

  /** Up to where entries may be applied: committed *and* durable here (W13). */
  get deliverable(): LogIndex {
    return this.commit < this.stable ? this.commit : this.stable;
  }

  entryAt(index: LogIndex): Entry {
    assert(index > this.startIndex && index <= this.lastIndex, "the entry is in the log", {
      index,
      start: this.startIndex,
      last: this.lastIndex,
    });
    return this.#entries[this.#head + index - this.startIndex - 1] as Entry;
  }

  /** Undefined outside of [startIndex, lastIndex]. */
  termAt(index: LogIndex): Term | undefined {
    if (index === this.startIndex) return this.startTerm;
    return this.#entries[this.#slot(index)]?.term;
  }

  matches(index: LogIndex, term: Term): boolean {
    return this.termAt(index) === term;
  }

  /** Whether a log that ends there is at least as up to date as this one (section 5.4.1 of the paper). */
  isUpToDate(lastIndex: LogIndex, lastTerm: Term): boolean {
    return lastTerm > this.lastTerm || (lastTerm === this.lastTerm && lastIndex >= this.lastIndex);
  }

  /**
   * The largest index at or below `index` whose term is at most `term`: no two logs can agree above it there (R22).
   * Terms never fall along a log, so it is found by bisection.
   */
  lastIndexOfTermUpTo(index: LogIndex, term: Term): LogIndex {
    let high = Math.min(index, this.lastIndex);
    if (high < this.startIndex) return high as LogIndex;
    if (this.startTerm > term) return Math.max(this.startIndex - 1, 0) as LogIndex;
    let low: number = this.startIndex;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((this.termAt(middle as LogIndex) as Term) <= term) low = middle;
      else high = middle - 1;
    }
    return low as LogIndex;
  }

  /** A leader's own entry. */
  append(entry: Entry): void {
    assert(entry.index === this.lastIndex + 1, "a leader only appends", {
      index: entry.index,
      last: this.lastIndex,
    });
    this.#push(entry);
  }

  /**
   * A follower's entries, behind a matching `prevIndex`. Only what contradicts this log is cut: a delayed append must
   * not erase what was acknowledged since (R23).
   *
   * @returns the last index known to match the sender's log
   */
  merge(prevIndex: LogIndex, entries: readonly Entry[]): LogIndex {
    let at = 0;
    while (at < entries.length) {
      const entry = entries[at] as Entry;
      assert(entry.index === prevIndex + 1 + at, "entries follow each other", { index: entry.index });
      if (entry.index > this.lastIndex) break;
      if (!this.matches(entry.index, entry.term)) {
        this.#cut((entry.index - 1) as LogIndex);
        break;
      }
      at++;
    }
    for (; at < entries.length; at++) this.#push(entries[at] as Entry);
    return (prevIndex + entries.length) as LogIndex;
  }

  /** R9: an index beyond the log means that acknowledged entries were lost. Never clamp it. */
  commitTo(index: LogIndex): boolean {
    if (index <= this.commit) return false;
    assert(index <= this.lastIndex, "commit <= last index: was the log corrupted, truncated or lost?", {
      commit: index,
      last: this.lastIndex,
    });
    this.commit = index;
    return true;
  }

  /** Entries from `from` to the end, up to `bytesMax`, at least one if there is one (R25). */
  slice(from: LogIndex, bytesMax: number): LogSlice {
    if (from > this.lastIndex) return NOTHING;
    const memo = this.#memo;
    if (memo?.from === from) {
      // A slice that reaches the end is right for any bound at least as wide.
      const whole = from + memo.slice.entries.length - 1 === this.lastIndex;
      if (memo.bytesMax === bytesMax || (whole && memo.bytesMax < bytesMax)) return memo.slice;
    }
    const slice = this.#take(from, this.lastIndex, bytesMax);
    this.#memo = { from, bytesMax, slice };
    return slice;
  }

  /** The next committed and durable entries, within `bytesMax` outstanding; counts them as delivered. */
  deliver(bytesMax: number): readonly Entry[] {
    if (!this.hasDeliverable(bytesMax)) return NOTHING.entries;
    const from = (this.delivered + 1) as LogIndex;
    const { entries, bytes } = this.#take(from, this.deliverable, bytesMax - this.deliveredBytes);
    this.delivered = (this.delivered + entries.length) as LogIndex;
    this.deliveredBytes += bytes;
    return entries;
  }

  /** Something can be delivered: always when nothing is outstanding, else while the bound allows it. */
  hasDeliverable(bytesMax: number): boolean {
    const next = (this.delivered + 1) as LogIndex;
    if (next > this.deliverable) return false;
    return this.deliveredBytes === 0 || this.deliveredBytes + entryBytes(this.entryAt(next)) <= bytesMax;
  }

  /** @returns the bytes of data that were applied */
  appliedTo(index: LogIndex): number {
    assert(index <= this.delivered, "applied <= delivered", { index, delivered: this.delivered });
    let dataBytes = 0;
    for (let at = this.applied + 1; at <= index; at++) {
      const { data } = this.entryAt(at as LogIndex);
      dataBytes += data.length;
      this.deliveredBytes -= data.length + ENTRY_OVERHEAD_BYTES;
    }
    const pending = this.#configurations[0];
    assert(pending === undefined || pending > index, "a change is settled before it counts as applied", {
      pending,
      index,
    });
    this.applied = index;
    return dataBytes;
  }

  /** A committed change of the configuration awaits its application: no campaign now (R18). */
  get hasUnappliedConfiguration(): boolean {
    const next = this.#configurations[0];
    return next !== undefined && next <= this.commit;
  }

  /** It was applied or refused: either way it is not pending any more. */
  settleConfiguration(index: LogIndex): void {
    assert(this.#configurations[0] === index, "changes are applied in order, each once", {
      expected: this.#configurations[0],
      index,
    });
    this.#configurations.shift();
  }

  /** Something in memory has not been handed to the host yet. */
  get hasUnhanded(): boolean {
    return this.handed < this.lastIndex;
  }

  /** Entries to be made durable; counts them as handed. */
  handOut(): readonly Entry[] {
    const { entries } = this.slice((this.handed + 1) as LogIndex, Infinity);
    this.handed = this.lastIndex;
    return entries;
  }

  writeFinished(write: Write): void {
    if (write.stableIndex > this.stable) this.stable = write.stableIndex;
    assert(this.stable <= this.handed, "stable <= handed", { stable: this.stable, handed: this.handed });
  }

  compact(index: LogIndex): void {
    assert(index <= this.applied, "only applied entries are dropped", { index, applied: this.applied });
    if (index <= this.startIndex) return;
    const term = this.termAt(index) as Term;
    for (let left = index - this.startIndex; left > 0; left--) {
      this.bytes -= entryBytes(this.#entries[this.#head] as Entry);
      this.#entries[this.#head] = undefined;
      this.#head++;
    }
    if (this.#head >= COMPACTED_SLOTS_MIN && this.#head * 2 >= this.#entries.length) {
      this.#entries = this.#entries.slice(this.#head);
      this.#head = 0;
    }
    this.startIndex = index;
    this.startTerm = term;
  }

  /**
   * The whole log gives way to a snapshot (R31). `stable` names the snapshot at once; that it is not durable yet is
   * the pending snapshot's concern, which holds back everything else.
   */
  restore(snapshot: SnapshotMetadata): void {
    assert(snapshot.index > this.commit, "a snapshot moves commit forward", {
      snapshot: snapshot.index,
      commit: this.commit,
    });
    this.writes.clamp(0 as LogIndex);
    this.#entries = [];
    this.#head = 0;
    this.#configurations = [];
    this.#memo = undefined;
    this.bytes = 0;
    this.deliveredBytes = 0;
    this.startIndex = snapshot.index;
    this.startTerm = snapshot.term;
    this.stable = snapshot.index;
    this.handed = snapshot.index;
    this.commit = snapshot.index;
    this.delivered = snapshot.index;
  }

  /** The snapshot at the log's start is installed. */
  restored(): void {
    this.applied = this.startIndex;
  }

  /** Arrays handed out are the host's: do not keep them alive from here. */
  forgetSlices(): void {
    this.#memo = undefined;
  }

  #slot(index: LogIndex): number {
    return index <= this.startIndex ? -1 : this.#head + index - this.startIndex - 1;
  }

  #take(from: LogIndex, to: LogIndex, bytesMax: number): LogSlice {
    const first = this.#slot(from);
    const end = this.#slot(to) + 1;
    assert(first >= this.#head && end <= this.#entries.length, "the slice lies within the log", { from, to });
    let bytes = 0;
    let at = first;
    while (at < end) {
      const size = entryBytes(this.#entries[at] as Entry);
      if (at > first && bytes + size > bytesMax) break;
      bytes += size;
      at++;
    }
    return { entries: this.#entries.slice(first, at) as Entry[], bytes };
  }

  #push(entry: Entry): void {
    assert(
      entry.index === this.lastIndex + 1 && entry.term >= this.lastTerm,
      "indexes follow each other and terms never fall",
      { index: entry.index, term: entry.term, last: this.lastIndex, lastTerm: this.lastTerm },
    );
    this.#entries.push(entry);
    this.bytes += entryBytes(entry);
    this.#memo = undefined;
    if (entry.kind === "configuration") this.#configurations.push(entry.index);
  }

  /** Drops everything behind `index`. */
  #cut(index: LogIndex): void {
    assert(index >= this.commit, "a committed entry is never overwritten", { index, commit: this.commit });
    while (this.lastIndex > index) {
      const entry = this.#entries.pop() as Entry;
      this.bytes -= entryBytes(entry);
      if (this.#configurations.at(-1) === entry.index) this.#configurations.pop();
    }
    this.#memo = undefined;
    if (this.stable > index) this.stable = index;
    if (this.handed > index) this.handed = index;
    this.writes.clamp(index);
  }
}
