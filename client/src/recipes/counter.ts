import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import { KeyValue, type CallOptions } from "../types.ts";
import { ROOTS } from "./names.ts";
import { update } from "./update.ts";

/**
 * A number that many processes change, each change once: also when an answer is lost and asked for again. A safe
 * integer, kept as decimal text under `/counters/NAME`; it stays until it is deleted. One round trip a change as long
 * as nobody else changes it.
 */
export class Counter {
  readonly name: string;
  readonly key: string;
  readonly #client: Client;
  /** What was seen last: saves the read before a change. */
  #known: { readonly kv: KeyValue | undefined } | undefined;
  /** Ends when the additions so far have: those of one process would only get in each other's way. */
  #queue: Promise<unknown> = Promise.resolve();

  constructor(client: Client, name: string) {
    if (name === "") throw new TypeError("a counter needs a name");
    this.#client = client;
    this.name = name;
    this.key = `${ROOTS.counter}${name}`;
  }

  /** The number now; 0 when it was never changed. */
  async get(options: CallOptions = {}): Promise<number> {
    const kv = await this.#client.get(this.key, options);
    this.#known = { kv };
    return this.#read(kv);
  }

  /**
   * Adds to it, `by` may be negative. @returns the number after that.
   * @throws LockstepError `invalid-argument` when the result, or what somebody wrote there, is no safe integer.
   */
  async add(by = 1, options: CallOptions = {}): Promise<number> {
    if (!Number.isSafeInteger(by)) throw new TypeError("a counter counts in safe integers");
    const turn = this.#queue.then(() => this.#add(by, options));
    this.#queue = turn.catch(() => undefined);
    return turn;
  }

  async #add(by: number, options: CallOptions): Promise<number> {
    let sum = 0;
    const decide = (kv: KeyValue | undefined): string => {
      sum = this.#read(kv) + by;
      if (!Number.isSafeInteger(sum)) throw notANumber(this.name, String(sum));
      return String(sum);
    };
    const known = this.#known;
    const plan = known === undefined ? { decide } : { decide, known };
    const { revision, version } = await update(this.#client, this.key, plan, options);
    this.#known = { kv: this.#written(String(sum), revision, version) };
    return sum;
  }

  #read(kv: KeyValue | undefined): number {
    if (kv === undefined) return 0;
    const text = kv.text();
    const value = Number(text);
    if (!/^-?\d+$/.test(text) || !Number.isSafeInteger(value)) throw notANumber(this.name, text);
    return value;
  }

  #written(text: string, revision: number, version: number): KeyValue {
    const value = Buffer.from(text);
    const key = Buffer.from(this.key);
    return new KeyValue({ key, value, version, createRevision: 0, modRevision: revision, leaseId: "0" });
  }
}

function notANumber(name: string, text: string): LockstepError {
  const shown = text.slice(0, 40);
  return new LockstepError(
    "invalid-argument",
    "not-applied",
    `the counter "${name}" has no safe integer: ${shown}`,
  );
}
