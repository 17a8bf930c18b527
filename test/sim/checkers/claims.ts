/** Who held what when: tokens, turns, and the promise that a client gives up before the cell gives away. */
import { LockstepError } from "@lockstep/client";
import type { Reporter, TrueRevision, Truth } from "../contract.ts";
import { PlaceBook } from "./places.ts";
import type { Ownership, Place } from "./places.ts";
import { conflicts, describeResource, roleOf } from "./resources.ts";
import type { Resource, Role } from "./resources.ts";

/** Something held, as its holder has it. */
export interface Hold {
  readonly resource: Resource;
  readonly host: string;
  readonly key: string;
  readonly token: number;
  readonly leaseId: string;
  /** How much of the holder's belief may be explained by clock drift. */
  readonly allowanceMs: number;
  /** The client's own check: throws unless it is certainly held for that much longer. */
  assertHeld(marginMs: number): void;
}

interface ClaimRecord {
  readonly book: PlaceBook;
  /** Holds of living processes that were not released. */
  holds: Hold[];
}

export class ClaimLedger {
  readonly #truth: Truth;
  readonly #reporter: Reporter;
  readonly #records: readonly ClaimRecord[];

  constructor(truth: Truth, reporter: Reporter, resources: readonly Resource[]) {
    this.#truth = truth;
    this.#reporter = reporter;
    this.#records = resources.map((resource) => ({ book: new PlaceBook(resource), holds: [] }));
    truth.onRevision((revision) => this.#onRevision(revision));
  }

  book(resource: Resource): PlaceBook {
    return this.#record(resource).book;
  }

  /**
   * In the turn in which the holder's call returned.
   * @param asked the newest true revision when the call began: nothing that is won by it is older
   */
  acquired(hold: Hold, asked: number): void {
    const { book, holds } = this.#record(hold.resource);
    const role = this.#checkToken(hold, asked);
    if (book.ordinal(hold) === undefined) {
      this.#reporter.violation(
        "I11-turn",
        `${describe(hold)} was told that it holds it before its turn came`,
      );
    }
    if (book.find(hold.key, hold.token) === undefined && believes(hold)) {
      this.#reporter.violation(
        "I11-two-holders",
        `${describe(hold)} believes in it, and the cell has freed it`,
      );
    }
    for (const other of holds) {
      if (!conflicts(role, this.#roleOf(other)) || !believes(other)) continue;
      this.#reporter.violation(
        "I11-two-holders",
        `${describe(hold)} acquired it while ${describe(other)} still holds it by its own clock`,
      );
    }
    holds.push(hold);
  }

  /** Before the holder releases it, or when it has learnt of its end. */
  released(hold: Hold): void {
    const record = this.#record(hold.resource);
    record.holds = record.holds.filter((other) => other !== hold);
  }

  processKilled(host: string): void {
    for (const record of this.#records) record.holds = record.holds.filter((hold) => hold.host !== host);
  }

  /** The owner's place in the true order; undefined: there was never such an owner. */
  ordinal(resource: Resource, owner: Ownership): number | undefined {
    return this.book(resource).ordinal(owner);
  }

  #checkToken(hold: Hold, asked: number): Role {
    const { key, token, leaseId } = hold;
    const created = this.#truth.at(token)?.events.find((event) => event.key === key)?.state;
    if (created?.createRevision !== token || created.leaseId !== leaseId) {
      const was =
        created === undefined
          ? "not put"
          : `created at ${created.createRevision} under lease ${created.leaseId}`;
      this.#reporter.violation("I11-token", `${describe(hold)}: at that revision its key ${key} was ${was}`);
    }
    if (token <= asked) {
      this.#reporter.violation("I11-token", `${describe(hold)}: it was asked for after revision ${asked}`);
    }
    return this.#roleOf(hold);
  }

  #roleOf({ resource, key }: Hold): Role {
    const role = roleOf(resource, key);
    if (role === undefined) throw new Error(`${key} is no key of ${describeResource(resource)}`);
    return role;
  }

  #record(resource: Resource): ClaimRecord {
    const record = this.#records.find(({ book }) => book.resource === resource);
    if (record === undefined) throw new Error(`${describeResource(resource)} is not in the plan`);
    return record;
  }

  #onRevision(revision: TrueRevision): void {
    for (const { book, holds } of this.#records) {
      for (const place of book.follow(revision) ?? []) this.#onFreed(holds, place, revision.revision);
    }
  }

  /** The cell gives it away: whoever had it must have given it up by itself. */
  #onFreed(holds: readonly Hold[], { key, token }: Place, revision: number): void {
    for (const hold of holds) {
      if (hold.token !== token || hold.key !== key || !believes(hold)) continue;
      this.#reporter.violation(
        "I11-two-holders",
        `revision ${revision} frees what ${describe(hold)} still holds by its own clock`,
      );
    }
  }
}

function describe({ resource, host, token, leaseId }: Hold): string {
  return `${host} with ${describeResource(resource)} (token ${token}, lease ${leaseId})`;
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
