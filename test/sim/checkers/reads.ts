/** Answers of reads and mutations against the true history. */
import type { KeyValue } from "@lockstep/client";
import type { Reporter, TrueState, Truth } from "../contract.ts";

/** A key's state as a client has seen it; keys and values as latin-1 text. */
export interface SeenState {
  readonly key: string;
  readonly value: string;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
  readonly leaseId: string;
}

export function seen(kv: KeyValue): SeenState {
  return {
    key: kv.key.toString("latin1"),
    value: kv.value.toString("latin1"),
    createRevision: kv.createRevision,
    modRevision: kv.modRevision,
    version: kv.version,
    leaseId: kv.leaseId,
  };
}

export function describeState(state: SeenState | undefined): string {
  if (state === undefined) return "no such key";
  const { key, value, createRevision, modRevision, version, leaseId } = state;
  return `${key}="${value}" (created ${createRevision}, modified ${modRevision}, version ${version}, lease ${leaseId})`;
}

/** How far a client's call may look: what was committed when it began, and what its process had seen by then. */
export interface ReadBounds {
  /** The newest true revision at the beginning. */
  readonly committed: number;
  /** The highest revision in a linearizable answer that this client had by then. */
  readonly floor: number;
}

export interface ListOptions {
  readonly limit?: number;
  readonly reverse?: boolean;
  readonly keysOnly?: boolean;
}

export interface SeenList {
  readonly states: readonly SeenState[];
  readonly count: number;
  readonly more: boolean;
}

export class ReadChecker {
  readonly #truth: Truth;
  readonly #reporter: Reporter;

  constructor(truth: Truth, reporter: Reporter) {
    this.#truth = truth;
    this.#reporter = reporter;
  }

  /** A revision that a linearizable answer reflects. */
  linearizableRevision(revision: number, bounds: ReadBounds, what: string): void {
    this.committed(revision, what);
    if (revision < bounds.floor) {
      this.#reporter.violation(
        "I12",
        `${what} answers at revision ${revision}; this client had seen ${bounds.floor} before it asked`,
      );
    }
    if (revision < bounds.committed) {
      this.#reporter.violation(
        "I8-stale",
        `${what} answers at revision ${revision}; ${bounds.committed} was committed before it asked`,
      );
    }
  }

  /** The revision of a mutation's own change. */
  writtenRevision(revision: number, bounds: ReadBounds, what: string): void {
    this.linearizableRevision(revision, bounds, what);
    if (revision > bounds.committed) return;
    this.#reporter.violation(
      "I8-write",
      `${what} claims revision ${revision}, which was committed before it was sent`,
    );
  }

  /** Nothing may be seen that is not committed. */
  committed(revision: number, what: string): void {
    if (revision <= this.#truth.revision) return;
    this.#reporter.violation(
      "I8-uncommitted",
      `${what} answers at revision ${revision}, and nothing after ${this.#truth.revision} is committed`,
    );
  }

  /** A key's state at a revision. */
  state(key: string, revision: number, state: SeenState | undefined, what: string): void {
    const expected = this.#truth.stateAt(key, revision);
    if (sameState(state, expected)) return;
    this.#reporter.violation(
      "I8-value",
      `${what} at revision ${revision} shows ${describeState(state)}; true is ${describeState(expected)}`,
    );
  }

  /** How many keys have a prefix at a revision. */
  count(prefix: string, revision: number, answer: SeenList, what: string): void {
    const { length } = this.#truth.rangeAt(prefix, revision);
    if (answer.count === length && answer.states.length === 0 && !answer.more) return;
    this.#reporter.violation(
      "I8-range",
      `${what} at revision ${revision} counts ${answer.count} with ${answer.states.length} shown; true is ${length}`,
    );
  }

  /** The keys with a prefix at a revision. */
  list(prefix: string, revision: number, answer: SeenList, options: ListOptions & { what: string }): void {
    const all = this.#truth.rangeAt(prefix, revision);
    const ordered = options.reverse === true ? [...all].reverse() : all;
    const expected = options.limit === undefined ? ordered : ordered.slice(0, options.limit);
    const shown = (states: readonly SeenState[]): string => states.map(describeState).join("; ");
    const fail = (why: string): never =>
      this.#reporter.violation(
        "I8-range",
        `${options.what} at revision ${revision}: ${why}; shown: ${shown(answer.states)}; true: ${shown(expected)}`,
      );
    if (answer.count !== all.length) fail(`count ${answer.count} instead of ${all.length}`);
    if (answer.more !== expected.length < all.length) fail(`more is ${String(answer.more)}`);
    if (answer.states.length !== expected.length) fail("the number of keys differs");
    answer.states.forEach((state, index) => {
      const wanted = expected[index];
      const bare = options.keysOnly === true && wanted !== undefined ? { ...wanted, value: "" } : wanted;
      if (!sameState(state, bare)) fail(`key ${index} differs`);
    });
  }
}

export function sameState(a: SeenState | undefined, b: TrueState | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return (
    a.key === b.key &&
    a.value === b.value &&
    a.createRevision === b.createRevision &&
    a.modRevision === b.modRevision &&
    a.version === b.version &&
    a.leaseId === b.leaseId
  );
}
