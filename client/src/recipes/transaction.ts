import { toWireRange, type Bytes, type RangeInput } from "../bytes.ts";
import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type {
  CallOptions,
  Compare,
  DeleteOptions,
  DeleteResult,
  KeyValue,
  PutOptions,
  PutResult,
  RangeOptions,
  RangeResult,
  TxnStep,
  TxnStepResult,
} from "../types.ts";
import type { Claim } from "./claim.ts";

/** A condition that did not hold. */
export interface FailedCondition {
  /** `held`: a claim given to `ifHeld`. The others are named as the method that made them. */
  readonly kind: "held" | "missing" | "exists" | "version" | "modRevision" | "value" | "compare";
  readonly key: string;
  /** What was there; absent: the key does not exist. */
  readonly actual?: KeyValue;
  /** The claim of a `held`. */
  readonly claim?: Claim;
  /** For people. */
  readonly message: string;
}

/** All conditions held, and the steps are done. */
export interface Committed<S extends readonly TxnStepResult[]> {
  readonly ok: true;
  readonly revision: number;
  /** One for each step, in order. */
  readonly results: S;
}

/** Some condition did not hold, and only the steps of `otherwise` were done. */
export interface Refused<F extends readonly TxnStepResult[]> {
  readonly ok: false;
  readonly revision: number;
  /** All that did not hold. */
  readonly failed: readonly FailedCondition[];
  /** One for each step of `otherwise`, in order. */
  readonly results: F;
}

/** What {@link Transaction.commitOrThrow} throws when a condition does not hold; code `condition-failed`. */
export class ConditionFailedError extends LockstepError {
  readonly failed: readonly FailedCondition[];

  constructor(failed: readonly FailedCondition[]) {
    super("condition-failed", "not-applied", failed.map(({ message }) => message).join("; "));
    this.name = "ConditionFailedError";
    this.failed = failed;
  }
}

/** What a put of a transaction may ask for. */
export type PutStepOptions = Omit<PutOptions, keyof CallOptions>;
/** What a deletion of a transaction may ask for. */
export type DeleteStepOptions = Omit<DeleteOptions, keyof CallOptions>;
/** What a read of a transaction may ask for. */
export type GetStepOptions = Omit<RangeOptions, keyof CallOptions | "consistency" | "minRevision">;

/** Steps of one branch; the type of each one's result is known. */
export class TransactionSteps<S extends readonly TxnStepResult[]> {
  readonly steps: readonly TxnStep[];

  constructor(steps: readonly TxnStep[]) {
    this.steps = steps;
  }

  /** Writes a key. */
  put(key: Bytes, value: Bytes, options: PutStepOptions = {}): TransactionSteps<readonly [...S, PutResult]> {
    return new TransactionSteps([...this.steps, putStep(key, value, options)]);
  }

  /** Deletes a key or a range. */
  delete(
    range: RangeInput,
    options: DeleteStepOptions = {},
  ): TransactionSteps<readonly [...S, DeleteResult]> {
    return new TransactionSteps([...this.steps, { delete: { ...toWireRange(range), ...options } }]);
  }

  /** Reads a key or a range. */
  get(range: RangeInput, options: GetStepOptions = {}): TransactionSteps<readonly [...S, RangeResult]> {
    return new TransactionSteps([...this.steps, { get: { ...toWireRange(range), ...options } }]);
  }
}

interface Condition {
  readonly compare: Compare;
  readonly kind: FailedCondition["kind"];
  readonly claim?: Claim;
}

interface Parts {
  readonly conditions: readonly Condition[];
  readonly steps: readonly TxnStep[];
  readonly otherwise: readonly TxnStep[];
}

/**
 * A transaction as a sentence: conditions, what to do when all hold, and what otherwise; all in one revision. Each
 * method returns another transaction and leaves this one as it is, so one may be built once and used often.
 */
export class Transaction<
  S extends readonly TxnStepResult[] = readonly [],
  F extends readonly TxnStepResult[] = readonly [],
> {
  readonly #client: Client;
  readonly #parts: Parts;

  /**
   * Use `client.transaction()`.
   * @internal
   */
  constructor(client: Client, parts: Parts = { conditions: [], steps: [], otherwise: [] }) {
    this.#client = client;
    this.#parts = parts;
  }

  /**
   * If the claim (a lock, a permit, a leadership) is still this process's: asked of its own clock before anything is
   * sent, and of the cell when the transaction is applied. So what the steps write is fenced without a guard.
   */
  ifHeld(claim: Claim): Transaction<S, F> {
    return claim.conditions.reduce<Transaction<S, F>>(
      (transaction, compare) => transaction.#if({ kind: "held", compare, claim }),
      this,
    );
  }

  /** If there is no such key. */
  ifMissing(key: Bytes): Transaction<S, F> {
    return this.#if({ kind: "missing", compare: { key, createRevision: 0 } });
  }

  /** If there is such a key. */
  ifExists(key: Bytes): Transaction<S, F> {
    return this.#if({ kind: "exists", compare: { key, operator: ">", createRevision: 0 } });
  }

  /** If the key was put so many times since it was created; 0: there is none. */
  ifVersion(key: Bytes, version: number): Transaction<S, F> {
    return this.#if({ kind: "version", compare: { key, version } });
  }

  /** If the key was put last at this revision; 0: there is none. */
  ifModRevision(key: Bytes, modRevision: number): Transaction<S, F> {
    return this.#if({ kind: "modRevision", compare: { key, modRevision } });
  }

  /** If the key holds these bytes. */
  ifValue(key: Bytes, value: Bytes): Transaction<S, F> {
    return this.#if({ kind: "value", compare: { key, value } });
  }

  /** If any other compare holds. */
  if(compare: Compare): Transaction<S, F> {
    return this.#if({ kind: "compare", compare });
  }

  /** Writes a key. */
  put(key: Bytes, value: Bytes, options: PutStepOptions = {}): Transaction<readonly [...S, PutResult], F> {
    return this.#then(putStep(key, value, options));
  }

  /** Deletes a key or a range. */
  delete(range: RangeInput, options: DeleteStepOptions = {}): Transaction<readonly [...S, DeleteResult], F> {
    return this.#then({ delete: { ...toWireRange(range), ...options } });
  }

  /** Reads a key or a range. */
  get(range: RangeInput, options: GetStepOptions = {}): Transaction<readonly [...S, RangeResult], F> {
    return this.#then({ get: { ...toWireRange(range), ...options } });
  }

  /** What to do instead when some condition does not hold; replaces what was said before. */
  otherwise<G extends readonly TxnStepResult[]>(
    say: (steps: TransactionSteps<readonly []>) => TransactionSteps<G>,
  ): Transaction<S, G> {
    const { steps } = say(new TransactionSteps([]));
    return new Transaction<S, G>(this.#client, { ...this.#parts, otherwise: steps });
  }

  /**
   * Runs it once.
   * @throws LockstepError `not-held` or `session-lost` when a claim of `ifHeld` is over by this process's own clock
   *   (nothing was sent then), and what any call may throw. A condition that does not hold is no error: see `ok`.
   */
  async commit(options: CallOptions = {}): Promise<Committed<S> | Refused<F>> {
    const { conditions, steps, otherwise } = this.#parts;
    for (const { claim } of conditions) claim?.assertHeld();
    const { succeeded, revision, responses, failures } = await this.#client.txn(
      { compares: conditions.map(({ compare }) => compare), success: steps, failure: otherwise },
      options,
    );
    if (succeeded) return { ok: true, revision, results: responses as S };
    const failed = failures.flatMap(({ index, actual }) => {
      const condition = conditions[index];
      return condition === undefined ? [] : [failedCondition(condition, actual)];
    });
    return { ok: false, revision, failed, results: responses as F };
  }

  /** {@link commit} that throws a {@link ConditionFailedError} when a condition does not hold. */
  async commitOrThrow(options: CallOptions = {}): Promise<Committed<S>> {
    const result = await this.commit(options);
    if (!result.ok) throw new ConditionFailedError(result.failed);
    return result;
  }

  #if(condition: Condition): Transaction<S, F> {
    const { conditions } = this.#parts;
    return new Transaction<S, F>(this.#client, { ...this.#parts, conditions: [...conditions, condition] });
  }

  #then<R extends TxnStepResult>(step: TxnStep): Transaction<readonly [...S, R], F> {
    const { steps } = this.#parts;
    return new Transaction<readonly [...S, R], F>(this.#client, { ...this.#parts, steps: [...steps, step] });
  }
}

function putStep(key: Bytes, value: Bytes, options: PutStepOptions): TxnStep {
  return { put: { key, value, ...options } };
}

function failedCondition({ kind, compare, claim }: Condition, actual: KeyValue | undefined): FailedCondition {
  const key = typeof compare.key === "string" ? compare.key : Buffer.from(compare.key).toString("utf8");
  return {
    kind,
    key,
    ...(actual === undefined ? {} : { actual }),
    ...(claim === undefined ? {} : { claim }),
    message: `${expected(kind, key, compare)}, but ${found(actual)}`,
  };
}

function expected(kind: FailedCondition["kind"], key: string, compare: Compare): string {
  switch (kind) {
    case "held":
      return `"${key}" was to be held with the token ${String(compare.createRevision)}`;
    case "missing":
      return `"${key}" was to be missing`;
    case "exists":
      return `"${key}" was to exist`;
    case "version":
      return `"${key}" was to have the version ${String(compare.version)}`;
    case "modRevision":
      return `"${key}" was to be of the revision ${String(compare.modRevision)}`;
    case "value":
      return `"${key}" was to hold another value`;
    case "compare":
      return `the compare of "${key}" was to hold`;
  }
}

function found(actual: KeyValue | undefined): string {
  if (actual === undefined) return "it does not exist";
  const { createRevision, modRevision, version } = actual;
  return `it has the version ${version}, created at ${createRevision}, put last at ${modRevision}`;
}
