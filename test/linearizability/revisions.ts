/**
 * Where in the cell's one order of revisions a write of a group may stand whose revision is not known. Such a write gets
 * the smallest revision that is possible at its place: whatever comes later only has lower bounds, so that a larger one
 * could never do better. It must not be mistaken for a revision that anybody saw: it is remembered as half a revision
 * less, which equals none and compares with the revisions that somebody asked for as the real one would.
 */
import type { Facts, GroupFacts } from "./facts.ts";

export interface Place {
  /** As it is remembered in the states of keys. */
  readonly shown: number;
  /** The group's order has come so far. */
  readonly last: number;
}

export class Revisions {
  private readonly taken: TakenRuns;
  private readonly orphans: ReadonlySet<number>;
  private readonly asked: readonly number[];
  private readonly foreign: ReadonlySet<number>;
  /** What must come next, in order: known writes and orphans; and what answers reflect. */
  private readonly writes: readonly number[];
  private readonly reflected: readonly number[];

  constructor(facts: Facts, group: GroupFacts, taken: TakenRuns) {
    this.taken = taken;
    this.orphans = group.orphans;
    this.asked = group.asked;
    this.foreign = group.foreign;
    const members = group.members.map((member) => facts.operations[member]!);
    this.writes = ascending([...members.flatMap(({ revision }) => revision ?? []), ...group.orphans]);
    this.reflected = ascending(members.flatMap(({ reflects }) => reflects ?? []));
  }

  /** The write with this known revision is the next one of the group. */
  mayWrite(last: number, revision: number): boolean {
    return firstAbove(this.writes, last) === revision;
  }

  /** An answer that reflects `revision` may stand here. */
  mayReflect(last: number, revision: number): boolean {
    return revision >= last && firstAbove(this.writes, last) > revision;
  }

  /** All places for a write of unknown revision, which must be above `after` too. */
  places(last: number, after: number): readonly Place[] {
    const floor = Math.max(last, after);
    const nextWrite = firstAbove(this.writes, last);
    const nextReflected = firstAbove(this.reflected, last);
    const end = Math.min(nextWrite, nextReflected + 1);
    const places: Place[] = [];
    let from = floor;
    const between = (to: number): void => {
      const slot = this.taken.firstFree(from);
      if (slot < Math.min(to, end)) places.push({ shown: slot - 0.5, last: slot });
    };
    for (const asked of this.asked) {
      if (asked <= floor || asked >= end) continue;
      between(asked);
      if (!this.foreign.has(asked)) places.push({ shown: asked, last: asked });
      from = asked;
    }
    between(Infinity);
    const orphan = this.orphans.has(nextWrite) && !this.foreign.has(nextWrite);
    if (orphan && nextWrite > floor && nextWrite <= nextReflected) {
      places.push({ shown: nextWrite, last: nextWrite });
    }
    return places;
  }
}

/** Revisions that are spoken for, as runs of neighbours. */
export class TakenRuns {
  private readonly starts: number[] = [];
  private readonly ends: number[] = [];

  constructor(taken: Iterable<number>) {
    for (const revision of ascending([...taken])) {
      if (this.ends.at(-1) === revision - 1) this.ends[this.ends.length - 1] = revision;
      else {
        this.starts.push(revision);
        this.ends.push(revision);
      }
    }
  }

  /** The smallest revision above `revision` that nobody is known to have. */
  firstFree(revision: number): number {
    const next = revision + 1;
    const run = countUpTo(this.starts, next) - 1;
    return run >= 0 && this.ends[run]! >= next ? this.ends[run]! + 1 : next;
  }
}

function ascending(numbers: readonly number[]): number[] {
  return [...new Set(numbers)].sort((a, b) => a - b);
}

/** How many of the sorted numbers are at most `bound`. */
function countUpTo(sorted: readonly number[], bound: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle]! <= bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

function firstAbove(sorted: readonly number[], bound: number): number {
  return sorted[countUpTo(sorted, bound)] ?? Infinity;
}
