import type { Findings } from "../findings.ts";
import type { CanonicalHistory } from "./canonical-history.ts";

interface Claim {
  readonly key: string;
  readonly value: string;
  readonly revision: number;
}

/**
 * What clients were told about writes of values that are written once in the whole torture, and what they saw of them.
 * At the end all of it must agree with the one history that the cell's watches tell.
 */
export class Ledger {
  readonly #acknowledged: Claim[] = [];
  readonly #unknown = new Set<string>();
  readonly #refused = new Set<string>();
  readonly #seen: Claim[] = [];
  /** Reads as of a revision; value undefined: there was no such key. */
  readonly #pastReads: {
    readonly key: string;
    readonly revision: number;
    readonly value: string | undefined;
  }[] = [];

  get acknowledgedCount(): number {
    return this.#acknowledged.length;
  }

  get unknownCount(): number {
    return this.#unknown.size;
  }

  get refusedCount(): number {
    return this.#refused.size;
  }

  get seenCount(): number {
    return this.#seen.length + this.#pastReads.length;
  }

  /** The cell said: `value` was put to `key` at `revision`. */
  acknowledged(key: string, value: string, revision: number): void {
    this.#acknowledged.push({ key, value, revision });
  }

  /** The cell said that it did not happen: it must never have happened. */
  refused(value: string): void {
    this.#refused.add(value);
  }

  /** It happened once or never. */
  unknown(value: string): void {
    this.#unknown.add(value);
  }

  /** Somebody read it. */
  seen(key: string, value: string, modRevision: number): void {
    this.#seen.push({ key, value, revision: modRevision });
  }

  readAt(key: string, revision: number, value: string | undefined): void {
    this.#pastReads.push({ key, revision, value });
  }

  check(history: CanonicalHistory, findings: Findings): void {
    const puts = new Map<string, Claim>();
    for (const { revision, events } of history.revisions) {
      for (const event of events) {
        if (event.kind !== "put") continue;
        const other = puts.get(event.value);
        if (other !== undefined && this.#isOurs(event.value)) {
          findings.violation(
            "exactly once",
            `${event.value} was put at revision ${String(other.revision)} and again at ${String(revision)}`,
          );
        }
        puts.set(event.value, { key: event.key, value: event.value, revision });
      }
    }
    this.#checkAcknowledged(puts, findings);
    for (const value of this.#refused) {
      const found = puts.get(value);
      if (found === undefined) continue;
      findings.violation(
        "refused means not applied",
        `${value} was refused as not applied, and is there since revision ${String(found.revision)} (${found.key})`,
      );
    }
    this.#checkReads(puts, history, findings);
  }

  #isOurs(value: string): boolean {
    return /^v\d+\./.test(value);
  }

  #checkAcknowledged(puts: ReadonlyMap<string, Claim>, findings: Findings): void {
    for (const { key, value, revision } of this.#acknowledged) {
      const found = puts.get(value);
      if (found?.key === key && found.revision === revision) continue;
      const instead =
        found === undefined
          ? "it is not in the history"
          : `the history has it at ${String(found.revision)} (${found.key})`;
      findings.violation(
        "acknowledged writes are there",
        `${key} = ${value} was acknowledged at revision ${String(revision)}; ${instead}`,
      );
    }
  }

  #checkReads(puts: ReadonlyMap<string, Claim>, history: CanonicalHistory, findings: Findings): void {
    for (const { key, value, revision } of this.#seen) {
      const found = puts.get(value);
      if (found?.key === key && found.revision === revision) continue;
      findings.violation(
        "reads see what happened",
        `somebody read ${key} = ${value} as of revision ${String(revision)}; the history has it at ${String(found?.revision)} (${String(found?.key)})`,
      );
    }
    for (const { key, revision, value } of this.#pastReads) {
      const was = history.valueAt(key, revision);
      if (was === value) continue;
      findings.violation(
        "reads at a revision",
        `${key} at revision ${String(revision)} was read as ${String(value)}; the history has ${String(was)}`,
      );
    }
  }
}
