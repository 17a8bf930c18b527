/** Who held which lock when: tokens, and the promise that a client gives up before the cell gives away. */
import { lockKey, LockstepError } from "@lockstep/client";
import type { Reporter, TrueRevision, Truth } from "../contract.ts";

/** A lock as its holder has it. */
export interface Hold {
  readonly name: string;
  readonly host: string;
  readonly token: number;
  readonly leaseId: string;
  /** How much of the holder's belief may be explained by clock drift. */
  readonly allowanceMs: number;
  /** The client's own check: throws unless the lock is certainly held for that much longer. */
  assertHeld(marginMs: number): void;
}

interface Ownership {
  readonly token: number;
  readonly leaseId: string;
}

interface LockRecord {
  /** All owners in the order of the true history. */
  readonly owners: Ownership[];
  /** Holds of living processes that were not released. */
  holds: Hold[];
  highestToken: number;
}

export class LockLedger {
  readonly #truth: Truth;
  readonly #reporter: Reporter;
  readonly #locks = new Map<string, LockRecord>();

  constructor(truth: Truth, reporter: Reporter, names: readonly string[]) {
    this.#truth = truth;
    this.#reporter = reporter;
    for (const name of names) this.#locks.set(lockKey(name), { owners: [], holds: [], highestToken: 0 });
    truth.onRevision((revision) => this.#onRevision(revision));
  }

  /** Before the call that acquires: the highest token that anybody was given by then. */
  highestToken(name: string): number {
    return this.#record(name).highestToken;
  }

  /**
   * In the turn in which the holder's call returned.
   * @param before what {@link highestToken} was when the call began
   */
  acquired(hold: Hold, before: number): void {
    const record = this.#record(hold.name);
    const { name, host, token, leaseId } = hold;
    if (token <= before) {
      this.#reporter.violation(
        "I11-token",
        `${host} acquired "${name}" with token ${token}; somebody had ${before} before it asked`,
      );
    }
    const key = lockKey(name);
    const created = this.#truth.at(token)?.events.find((event) => event.key === key)?.state;
    if (created?.createRevision !== token || created.leaseId !== leaseId) {
      this.#reporter.violation(
        "I11-token",
        `${host} acquired "${name}" with token ${token} under lease ${leaseId}; at that revision the key was ${created === undefined ? "not put" : `created at ${created.createRevision} under ${created.leaseId}`}`,
      );
    }
    for (const other of record.holds) {
      if (!believes(other)) continue;
      this.#reporter.violation(
        "I11-two-holders",
        `${host} acquired "${name}" (token ${token}) while ${other.host} still holds it by its own clock (token ${other.token})`,
      );
    }
    record.holds.push(hold);
    record.highestToken = Math.max(record.highestToken, token);
  }

  /** Before the holder releases it, or when it has learnt of its end. */
  released(hold: Hold): void {
    const record = this.#record(hold.name);
    record.holds = record.holds.filter((other) => other !== hold);
  }

  processKilled(host: string): void {
    for (const record of this.#locks.values()) {
      record.holds = record.holds.filter((hold) => hold.host !== host);
    }
  }

  /** The owner's place in the true order; undefined: there was never such an owner. */
  ordinal(name: string, owner: Ownership): number | undefined {
    const index = this.#record(name).owners.findLastIndex(
      ({ token, leaseId }) => token === owner.token && leaseId === owner.leaseId,
    );
    return index < 0 ? undefined : index;
  }

  #record(name: string): LockRecord {
    const record = this.#locks.get(lockKey(name));
    if (record === undefined) throw new Error(`the lock "${name}" is not in the plan`);
    return record;
  }

  #onRevision({ revision, events }: TrueRevision): void {
    for (const { key, state, previous } of events) {
      const record = this.#locks.get(key);
      if (record === undefined) continue;
      if (state?.createRevision === revision) record.owners.push({ token: revision, leaseId: state.leaseId });
      const ended = state === undefined || state.createRevision === revision ? previous : undefined;
      if (ended !== undefined) this.#onFreed(record, ended.createRevision, revision);
    }
  }

  /** The cell gives the lock away: whoever had it must have given it up by itself. */
  #onFreed(record: LockRecord, token: number, revision: number): void {
    for (const hold of record.holds) {
      if (hold.token !== token || !believes(hold)) continue;
      this.#reporter.violation(
        "I11-two-holders",
        `revision ${revision} frees "${hold.name}" while ${hold.host} still holds it by its own clock (token ${token})`,
      );
    }
  }
}

function believes(hold: Hold): boolean {
  try {
    hold.assertHeld(hold.allowanceMs);
    return true;
  } catch (error) {
    if (error instanceof LockstepError) return false;
    throw error;
  }
}
