import type { Reading, WriteResult } from "./store.ts";
import type { Violations } from "./violations.ts";
import type { WatchCheck, Write } from "./watch-check.ts";

/**
 * How a key is written. `put`: blindly, so a write whose outcome is unknown may still come at any time and over a later
 * one; such a key is written no more. `compare`: only over the revision that is known, so that an acknowledged write
 * ends all earlier attempts for good.
 */
export type WriteMode = "put" | "compare";

/** What is known of one key. It has one writer, which does one thing at a time. */
export interface KeyRecord {
  readonly key: string;
  readonly mode: WriteMode;
  /** The last write that certainly took effect. */
  last: Write | undefined;
  /** Values of later attempts that may have taken effect, or may still. */
  maybe: readonly number[];
  /** The value of the last attempt; each attempt has a larger one. */
  attempted: number;
}

/** Acknowledged writes that are remembered one by one, for reads of the past. */
const RECENT_MAX = 200;

/** Remembers what was promised about each key and holds every answer against it. */
export class Ledger {
  readonly #violations: Violations;
  readonly #watch: WatchCheck;
  readonly #records = new Map<string, KeyRecord>();
  readonly #recent: Write[] = [];
  #floor = 0;
  #resolved = 0;

  constructor(violations: Violations, watch: WatchCheck) {
    this.#violations = violations;
    this.#watch = watch;
  }

  /** The largest revision of any answer so far: what is asked from now on must be answered with no smaller one. */
  get floor(): number {
    return this.#floor;
  }

  get keys(): number {
    return this.#records.size;
  }

  /** Writes of unknown outcome that were found to have taken effect. */
  get resolved(): number {
    return this.#resolved;
  }

  /** The last acknowledged writes, oldest first. */
  get recent(): readonly Write[] {
    return this.#recent;
  }

  get records(): Iterable<KeyRecord> {
    return this.#records.values();
  }

  record(key: string): KeyRecord | undefined {
    return this.#records.get(key);
  }

  /** A key that was never written. */
  create(key: string, mode: WriteMode): KeyRecord {
    if (this.#records.has(key)) throw new TypeError(`${key} is known already`);
    const record: KeyRecord = { key, mode, last: undefined, maybe: [], attempted: 0 };
    this.#records.set(key, record);
    return record;
  }

  /** To be called right before a write; returns its value. */
  attempt(record: KeyRecord): number {
    record.attempted += 1;
    this.#watch.attempted(record.key, record.attempted);
    return record.attempted;
  }

  /** The write of `value` was acknowledged. `floor`: as it was when the write was sent. */
  acknowledged(record: KeyRecord, value: number, answer: { result: WriteResult; floor: number }): void {
    const { result, floor } = answer;
    const { last, key } = record;
    const name = `the write of ${key} = ${value}`;
    if (result.revision <= floor)
      this.#violations.add(
        "revision-order",
        `${name} got revision ${result.revision}, and ${floor} had been answered before it was sent`,
      );
    const version = (last?.version ?? 0) + 1;
    const createRevision = last?.createRevision ?? result.revision;
    if (result.version < version || result.createRevision !== createRevision)
      this.#violations.add("lost-write", `${name} got ${told(result)}, after ${tell(last)}`);
    else if (result.version > version)
      this.#violations.add("phantom-write", `${name} got ${told(result)}, after ${tell(last)}`);
    this.#settle(record, { key, value, ...result });
    this.seen(result.revision);
  }

  /** The write of `value` was certainly not made. */
  refused(record: KeyRecord, value: number): void {
    this.#watch.impossible(record.key, value);
  }

  /** Nobody knows what became of the write of `value`. */
  unknown(record: KeyRecord, value: number): void {
    record.maybe = [...record.maybe, value];
  }

  /** A linearizable answer about a key while nothing was being written to it. */
  observed(record: KeyRecord, reading: Reading, floor: number): void {
    const { stored } = reading;
    const { last, key } = record;
    if (reading.revision < floor || (stored !== undefined && stored.revision > reading.revision))
      this.#violations.add(
        "revision-order",
        `${key} was read at revision ${reading.revision} with ${tell(stored)}, when ${floor} had been answered before`,
      );
    this.seen(reading.revision);
    if (stored === undefined) {
      if (last !== undefined)
        this.#violations.add("lost-write", `${tell(last)} was acknowledged, and the key is gone`);
      return;
    }
    if (last !== undefined && stored.value === last.value) {
      if (stored.revision !== last.revision || stored.version !== last.version)
        this.#violations.add("phantom-write", `${tell(last)} was acknowledged, and ${tell(stored)} was read`);
      return;
    }
    if (record.maybe.includes(stored.value)) {
      this.#resolve(record, stored);
      return;
    }
    const kind = stored.value < (last?.value ?? 0) ? "lost-write" : "phantom-write";
    this.#violations.add(kind, `${tell(last)} was acknowledged, and ${tell(stored)} was read`);
  }

  /** A comparison with the key's known revision did not hold; `reading` was there. */
  mismatched(record: KeyRecord, reading: Reading, floor: number): void {
    const before = record.last;
    this.observed(record, reading, floor);
    if (record.last !== before) return;
    // Neither a later write of ours nor, if a violation was found, what had to be there.
    if ((reading.stored?.revision ?? 0) === (before?.revision ?? 0))
      this.#violations.add(
        "lost-write",
        `a comparison with ${tell(before)} failed, and that is what was there`,
      );
  }

  /** A revision was answered. */
  seen(revision: number): void {
    this.#floor = Math.max(this.#floor, revision);
  }

  #resolve(record: KeyRecord, stored: Write): void {
    const version = (record.last?.version ?? 0) + 1;
    if (stored.version !== version)
      this.#violations.add(
        stored.version < version ? "lost-write" : "phantom-write",
        `${tell(stored)} was read, after ${tell(record.last)}`,
      );
    this.#resolved += 1;
    this.#settle(record, stored);
  }

  #settle(record: KeyRecord, write: Write): void {
    record.last = write;
    // All attempts compared with the revision before this one: none of the others can come any more.
    for (const value of record.maybe) if (value !== write.value) this.#watch.impossible(record.key, value);
    record.maybe = [];
    this.#watch.acknowledged(write);
    this.#recent.push(write);
    if (this.#recent.length > RECENT_MAX) this.#recent.shift();
  }
}

function tell(write: Write | undefined): string {
  return write === undefined ? "nothing" : `${write.key} = ${write.value} (${told(write)})`;
}

function told({ revision, createRevision, version }: WriteResult): string {
  return `revision ${revision}, created at ${createRevision}, version ${version}`;
}
