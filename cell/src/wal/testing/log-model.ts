import assert from "node:assert/strict";
import type { Entry, HardState } from "../../raft/types.ts";
import type { LogPosition, WalRecovery, WalWrite } from "../types.ts";

/** What a log holds after some write: as dumb as it can be. */
export interface ModelState {
  readonly hardState: HardState | undefined;
  /** Everything up to here is gone for sure: a snapshot replaced it. */
  readonly snapshot: LogPosition;
  readonly entries: ReadonlyMap<number, Entry>;
  readonly last: LogPosition;
}

/** The twin of a log: every state it went through since the last recovery. */
export class LogModel {
  /** `states[k]`: after k writes. */
  #states: ModelState[];
  /** Writes known to be durable. */
  #done = 0;
  /** The newest release; a recovered log may start there or earlier. */
  released: LogPosition;

  constructor(start: LogPosition) {
    this.#states = [{ hardState: undefined, snapshot: start, entries: new Map(), last: start }];
    this.released = start;
  }

  get now(): ModelState {
    const state = this.#states.at(-1);
    assert.ok(state);
    return state;
  }

  get durable(): ModelState {
    const state = this.#states[this.#done];
    assert.ok(state);
    return state;
  }

  append(write: WalWrite): void {
    let { hardState, snapshot, last } = this.now;
    const entries = new Map(this.now.entries);
    if (write.snapshot !== undefined) {
      snapshot = write.snapshot;
      last = write.snapshot;
      entries.clear();
    }
    const first = write.entries[0];
    if (first !== undefined) {
      for (const index of entries.keys()) if (index >= first.index) entries.delete(index);
    }
    for (const entry of write.entries) {
      entries.set(entry.index, entry);
      last = { index: entry.index, term: entry.term };
    }
    if (write.hardState !== undefined) hardState = write.hardState;
    this.#states.push({ hardState, snapshot, entries, last });
  }

  /** One more write is durable. */
  done(): void {
    this.#done++;
    assert.ok(this.#done < this.#states.length, "done only for what was appended");
  }

  /**
   * What was recovered must be the state after some write that is no earlier than the last durable one. The model goes on
   * from it.
   */
  recovered(recovery: WalRecovery, seed: string): void {
    const { logStart } = recovery;
    const reasons: string[] = [];
    for (let k = this.#states.length - 1; k >= this.#done; k--) {
      const state = this.#states[k];
      assert.ok(state);
      const difference = differenceOf(state, recovery);
      if (difference === undefined) {
        const newest = Math.max(this.released.index, state.snapshot.index);
        assert.ok(logStart.index <= newest, `${seed}: starts after ${logStart.index}, released ${newest}`);
        if (logStart.index === this.released.index) assert.equal(logStart.term, this.released.term, seed);
        // A commit that lagged the log's start comes back lifted to it (R2).
        this.#states = [{ ...state, hardState: recovery.hardState }];
        this.#done = 0;
        return;
      }
      reasons.push(`after write ${k}: ${difference}`);
    }
    assert.fail(`${seed}: recovered no state between ${this.#done} and now\n${reasons.join("\n")}`);
  }
}

function differenceOf(state: ModelState, recovery: WalRecovery): string | undefined {
  const { hardState, logStart, entries } = recovery;
  const wanted = state.hardState;
  if (wanted?.term !== hardState?.term || wanted?.vote !== hardState?.vote) return "another term or vote";
  const commit = wanted === undefined ? undefined : Math.max(wanted.commit, logStart.index);
  if (hardState?.commit !== commit) return `commit ${hardState?.commit} instead of ${commit}`;
  if (logStart.index < state.snapshot.index) return `starts after ${logStart.index}, before the snapshot`;
  const last = entries.at(-1) ?? logStart;
  if (last.index !== state.last.index || last.term !== state.last.term) {
    return `ends at ${last.term}/${last.index} instead of ${state.last.term}/${state.last.index}`;
  }
  for (const [i, entry] of entries.entries()) {
    const twin = state.entries.get(logStart.index + 1 + i);
    if (twin?.index !== entry.index || twin.term !== entry.term || twin.kind !== entry.kind) {
      return `entry ${entry.index} differs`;
    }
    if (Buffer.compare(twin.data, entry.data) !== 0) return `data of entry ${entry.index} differs`;
  }
  return undefined;
}
