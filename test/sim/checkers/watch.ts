/** I9: what a watch delivers, against the true history. */
import type { WatchBatch, WatchEvent } from "@lockstep/client";
import type { Reporter, TrueEvent, Truth } from "../contract.ts";
import type { CompactionLedger } from "./compactions.ts";
import { describeState, sameState, seen } from "./reads.ts";

/** What is watched: one key, or all keys with a prefix. */
export interface WatchedRange {
  readonly key: string;
  readonly isPrefix: boolean;
}

export interface WatchedSpec {
  readonly range: WatchedRange;
  /** The first revision wanted. */
  readonly startRevision: number;
  readonly returnPrevious: boolean;
  readonly omit: "put" | "delete" | undefined;
}

export interface WatchWorld {
  readonly truth: Truth;
  readonly reporter: Reporter;
  readonly compactions: CompactionLedger;
}

interface ExpectedEvent {
  readonly revision: number;
  readonly event: TrueEvent;
}

/**
 * Follows one watch from its first revision on. Whatever it delivers accounts for a stretch of revisions without a
 * gap: all matching events of that stretch must be there, once, in order, and nothing else.
 */
export class WatchChecker {
  readonly #world: WatchWorld;
  readonly #spec: WatchedSpec;
  readonly #who: { readonly name: string; readonly host: string };
  /** All events up to here were delivered. */
  #covered: number;

  constructor(world: WatchWorld, who: { readonly name: string; readonly host: string }, spec: WatchedSpec) {
    this.#world = world;
    this.#spec = spec;
    this.#who = who;
    this.#covered = spec.startRevision - 1;
  }

  /** The actor it belongs to. */
  get name(): string {
    return this.#who.name;
  }

  /** The first revision that is not accounted for: where a resume has to begin. */
  get nextRevision(): number {
    return this.#covered + 1;
  }

  /** Whole revisions, as they were handed to the consumer. */
  batch(batch: WatchBatch): void {
    const { truth } = this.#world;
    const { revision } = batch;
    if (revision > truth.revision) this.#fail("I9-uncommitted", `delivers revision ${revision}`);
    if (revision <= this.#covered) {
      const what = revision < this.#spec.startRevision ? "before its start" : "again";
      this.#fail("I9-unique", `delivers revision ${revision} ${what}`);
    }
    const expected = this.#matching(this.#covered + 1, revision);
    batch.events.forEach((event, index) => this.#event(event, expected[index], batch));
    const missing = expected[batch.events.length];
    if (missing !== undefined) {
      this.#fail("I9-complete", `omits ${describeEvent(missing)} from the batch up to ${revision}`);
    }
    this.#covered = revision;
  }

  /** The watch says that all events up to `revision` were handed over. */
  progress(revision: number): void {
    if (revision <= this.#covered) return;
    if (revision > this.#world.truth.revision) {
      this.#fail("I9-progress", `claims progress up to ${revision}, which is not committed`);
    }
    const [missing] = this.#matching(this.#covered + 1, revision);
    if (missing !== undefined) {
      this.#fail(
        "I9-progress",
        `claims progress up to ${revision} and has not delivered ${describeEvent(missing)}`,
      );
    }
    this.#covered = revision;
  }

  /** A notice names a revision that is not before the start (B10). */
  notice(revision: number): void {
    if (revision + 1 < this.#spec.startRevision) {
      this.#fail(
        "I9-progress",
        `starts at ${this.#spec.startRevision} and is told of progress at ${revision}`,
      );
    }
    this.progress(revision);
  }

  /** The watch ended: its place is gone, and `compactRevision` is the oldest that can be had. */
  compacted(compactRevision: number | undefined): void {
    const { highest } = this.#world.compactions;
    if (compactRevision === undefined) {
      this.#fail("I9-compacted", "ended as compacted without the revision to go on from");
    }
    if (compactRevision > highest) {
      this.#fail(
        "I9-compacted",
        `ended as compacted to ${compactRevision}; nobody asked for more than ${highest}`,
      );
    }
    if (compactRevision <= this.nextRevision) {
      this.#fail(
        "I9-compacted",
        `ended as compacted to ${compactRevision}, and waited for ${this.nextRevision}, which is still there`,
      );
    }
  }

  /** Matching events that are committed and were not delivered yet, counted up to `most`. */
  behind(most: number): number {
    return this.#matching(this.nextRevision, this.#world.truth.revision, most).length;
  }

  /** For a healthy cell: everything has arrived. */
  expectCaughtUp(): void {
    const [missing] = this.#matching(this.nextRevision, this.#world.truth.revision, 1);
    if (missing !== undefined) this.#fail("I9-late", `still waits for ${describeEvent(missing)}`);
  }

  #event(event: WatchEvent, expected: ExpectedEvent | undefined, batch: WatchBatch): void {
    const { kv } = event;
    const key = kv.key.toString("latin1");
    const shown = `${event.kind} of ${key} at ${kv.modRevision} in the batch up to ${batch.revision}`;
    if (expected === undefined) this.#fail("I9-unique", `delivers ${shown}; no such event is due`);
    const { revision, event: truth } = expected;
    if (kv.modRevision !== revision || event.kind !== truth.kind || key !== truth.key) {
      const law = kv.modRevision > revision ? "I9-complete" : "I9-ordered";
      this.#fail(law, `delivers ${shown}; next is ${describeEvent(expected)}`);
    }
    if (truth.state !== undefined && !sameState(seen(kv), truth.state)) {
      this.#fail("I9-value", `delivers ${describeState(seen(kv))}; true is ${describeState(truth.state)}`);
    }
    if (event.cause !== truth.cause) {
      this.#fail("I9-cause", `tells cause ${event.cause} of ${shown}; true is ${truth.cause}`);
    }
    this.#previous(event, expected);
  }

  #previous(event: WatchEvent, { revision, event: truth }: ExpectedEvent): void {
    const previous = event.previous === undefined ? undefined : seen(event.previous);
    if (!this.#spec.returnPrevious) {
      if (previous !== undefined) this.#fail("I9-previous", `tells a previous state that nobody asked for`);
      return;
    }
    // A compaction keeps what was current at its revision: a state that was superseded by then may be gone.
    const mayBeGone = revision <= this.#world.compactions.highest;
    if (previous === undefined && mayBeGone) return;
    if (sameState(previous, truth.previous)) return;
    this.#fail(
      "I9-previous",
      `tells ${describeState(previous)} before revision ${revision}; true is ${describeState(truth.previous)}`,
    );
  }

  #matching(from: number, to: number, most = Infinity): ExpectedEvent[] {
    const { truth } = this.#world;
    const found: ExpectedEvent[] = [];
    for (let revision = from; revision <= to && found.length < most; revision++) {
      for (const event of truth.at(revision)?.events ?? []) {
        if (this.#matches(event)) found.push({ revision, event });
      }
    }
    return found;
  }

  #matches(event: TrueEvent): boolean {
    const { range, omit } = this.#spec;
    if (event.kind === omit) return false;
    return range.isPrefix ? event.key.startsWith(range.key) : event.key === range.key;
  }

  #fail(law: string, text: string): never {
    const { range, startRevision } = this.#spec;
    const what = range.isPrefix ? `prefix ${range.key}` : range.key;
    return this.#world.reporter.violation(
      law,
      `the watch of ${what} by ${this.#who.name} on ${this.#who.host}, started at ${startRevision} and complete up to ${this.#covered}, ${text}`,
    );
  }
}

function describeEvent({ revision, event }: ExpectedEvent): string {
  return `${event.kind} of ${event.key} at ${revision}`;
}
