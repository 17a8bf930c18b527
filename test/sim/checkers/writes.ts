/** Idempotence: each mutation takes effect as often as its answer says, whatever was retried on the way. */
import type { Reporter, TrueRevision, Truth } from "../contract.ts";

type Answer = "pending" | "written" | "absent" | "unknown";

interface WriteRecord {
  answer: Answer;
  /** Where the true history has the value; 0: nowhere so far. */
  writtenAt: number;
}

/**
 * Follows values that are written by one mutation each and by no other. The true history may hold such a value in one
 * revision at most; in exactly the acknowledged one after an answer, and never after `not-applied`.
 */
export class WriteLedger {
  readonly #reporter: Reporter;
  readonly #records = new Map<string, WriteRecord>();

  constructor(truth: Truth, reporter: Reporter) {
    this.#reporter = reporter;
    truth.onRevision((revision) => this.#onRevision(revision));
  }

  /** Before the mutation is sent. */
  begin(value: string): void {
    this.#records.set(value, { answer: "pending", writtenAt: 0 });
  }

  /** The answer says that the value was written at `revision`. */
  written(value: string, revision: number): void {
    const record = this.#record(value);
    record.answer = "written";
    if (record.writtenAt === revision) return;
    this.#reporter.violation(
      "I6-acknowledged",
      record.writtenAt === 0
        ? `"${value}" was acknowledged at revision ${revision}, and no member has committed it`
        : `"${value}" was acknowledged at revision ${revision}, and was written at ${record.writtenAt}`,
    );
  }

  /** The answer says that the mutation ran and did not write the value: a compare failed. */
  skipped(value: string): void {
    this.#absent(value, "answered as not written");
  }

  /** The call ended with outcome `not-applied`. */
  notApplied(value: string): void {
    this.#absent(value, "refused as not applied");
  }

  /** The call ended with outcome `unknown`, or its process died: at most once, now or later. */
  unknown(value: string): void {
    this.#record(value).answer = "unknown";
  }

  #absent(value: string, how: string): void {
    const record = this.#record(value);
    record.answer = "absent";
    if (record.writtenAt === 0) return;
    this.#reporter.violation(
      "I-not-applied",
      `"${value}" was ${how}, and was written at ${record.writtenAt}`,
    );
  }

  #record(value: string): WriteRecord {
    const record = this.#records.get(value);
    if (record === undefined) throw new Error(`nobody has announced the value "${value}"`);
    return record;
  }

  #onRevision({ revision, events }: TrueRevision): void {
    for (const { state } of events) {
      if (state?.modRevision !== revision) continue;
      const record = this.#records.get(state.value);
      if (record !== undefined) this.#onWritten(record, state.value, revision);
    }
  }

  #onWritten(record: WriteRecord, value: string, revision: number): void {
    if (record.writtenAt !== 0) {
      this.#reporter.violation(
        "I-idempotence",
        `"${value}" was written twice: at revision ${record.writtenAt} and again at ${revision}`,
      );
    }
    record.writtenAt = revision;
    if (record.answer === "absent") {
      this.#reporter.violation(
        "I-not-applied",
        `"${value}" was written at ${revision}, after its client was told that it was not applied`,
      );
    }
  }
}
