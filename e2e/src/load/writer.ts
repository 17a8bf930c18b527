import type { ErrorCounts } from "./errors.ts";
import type { KeyRecord, Ledger, WriteMode } from "./ledger.ts";
import { Pace, type Gate, type Timing } from "./pace.ts";
import type { Phases } from "./phases.ts";
import type { Store } from "./store.ts";

/** What all writers share. */
export interface WriterParts {
  readonly store: Store;
  readonly ledger: Ledger;
  readonly phases: Phases;
  readonly errors: ErrorCounts;
  readonly timing: Timing;
  readonly gate: Gate;
}

export interface WriterOptions {
  /** Ends with a slash; the writer's keys alone are below it. */
  readonly prefix: string;
  readonly keys: number;
  readonly perSecond: number;
}

/** After a write, how often its key is read back. */
const READ_BACK_SHARE = 0.25;
/** A refusal may come at once, and a cell that refuses is not to be asked in a tight loop. */
const BACKOFF_MS = 100;
/** Keys that were given up for an unknown outcome; after that many, this writer only compares. */
const RETIRED_MAX = 500;
/** Attempts of unknown outcome on one key, before it is given up too. */
const MAYBE_MAX = 32;

/** Writes its keys one after the other, blindly and by comparison in turn, and reads them back. */
export class Writer {
  readonly #parts: WriterParts;
  readonly #options: WriterOptions;
  readonly #keys: KeyRecord[];
  #created = 0;
  #turn = 0;
  #retired = 0;
  #reads = 0;

  constructor(parts: WriterParts, options: WriterOptions) {
    this.#parts = parts;
    this.#options = options;
    this.#keys = Array.from({ length: options.keys }, (_, n) =>
      this.#create(n % 2 === 0 ? "put" : "compare"),
    );
  }

  get retired(): number {
    return this.#retired;
  }

  /** Successful reads. */
  get reads(): number {
    return this.#reads;
  }

  async run(): Promise<void> {
    const { gate, timing } = this.#parts;
    const pace = new Pace(timing, this.#options.perSecond);
    for (;;) {
      await pace.turn();
      if (!(await gate.enter())) return;
      try {
        if (!(await this.#step())) await timing.delay(BACKOFF_MS);
      } finally {
        gate.leave();
      }
    }
  }

  /** @returns whether the cell served. */
  async #step(): Promise<boolean> {
    const index = this.#turn % this.#keys.length;
    this.#turn += 1;
    let record = this.#keys[index];
    if (record === undefined) throw new TypeError("a writer needs at least one key");
    if (record.maybe.length > 0) {
      if (record.mode === "put" || record.maybe.length >= MAYBE_MAX) record = this.#retire(index);
      // What is known must be known for a comparison to mean anything.
      else if (!(await this.read(record))) return false;
    }
    const written = await this.write(record);
    const readBack = this.#parts.timing.random() < READ_BACK_SHARE || record.maybe.length > 0;
    return (!readBack || (await this.read(record))) && written;
  }

  /** @returns whether it was acknowledged. */
  async write(record: KeyRecord): Promise<boolean> {
    const { ledger, phases, errors, timing } = this.#parts;
    const { floor } = ledger;
    const value = ledger.attempt(record);
    const sentMs = timing.now();
    try {
      const acknowledged =
        record.mode === "put"
          ? await this.#put(record, value, floor)
          : await this.#compareAndPut(record, value, floor);
      if (acknowledged) phases.acknowledged(timing.now() - sentMs);
      return acknowledged;
    } catch (error) {
      if (errors.add(error).outcome === "not-applied") {
        phases.failed();
        ledger.refused(record, value);
      } else {
        phases.unknown();
        ledger.unknown(record, value);
      }
      return false;
    }
  }

  /** @returns whether there was an answer. */
  async read(record: KeyRecord): Promise<boolean> {
    const { ledger, store, errors } = this.#parts;
    const { floor } = ledger;
    try {
      ledger.observed(record, await store.get(record.key), floor);
      this.#reads += 1;
      return true;
    } catch (error) {
      errors.add(error);
      return false;
    }
  }

  async #put(record: KeyRecord, value: number, floor: number): Promise<true> {
    const result = await this.#parts.store.put(record.key, value);
    this.#parts.ledger.acknowledged(record, value, { result, floor });
    return true;
  }

  async #compareAndPut(record: KeyRecord, value: number, floor: number): Promise<boolean> {
    const { store, ledger, phases } = this.#parts;
    const answer = await store.compareAndPut(record.key, value, record.last?.revision ?? 0);
    if (answer.kind === "written") {
      ledger.acknowledged(record, value, { result: answer.result, floor });
      return true;
    }
    phases.failed();
    ledger.mismatched(record, answer.reading, floor);
    ledger.refused(record, value);
    return false;
  }

  #create(mode: WriteMode): KeyRecord {
    this.#created += 1;
    return this.#parts.ledger.create(`${this.#options.prefix}${mode}-${String(this.#created)}`, mode);
  }

  #retire(index: number): KeyRecord {
    this.#retired += 1;
    const mode = this.#retired >= RETIRED_MAX || index % 2 === 1 ? "compare" : "put";
    const record = this.#create(mode);
    this.#keys[index] = record;
    return record;
  }
}
