import assert from "node:assert/strict";
import type { LeaseId, Revision } from "@lockstep/gateway/coordinator";
import type { Term } from "../../raft/types.ts";
import { createSessionKeeper } from "../keeper.ts";
import type { RenewalAnswer, SessionKeeper, SessionOptions, SessionWork } from "../types.ts";

export const MINUTE: number = 60_000;
export const OPTIONS: SessionOptions = {
  electionTimeoutMs: 1000,
  checkpointIntervalMs: 5 * MINUTE,
  expireBatchMax: 32,
  lateTickMs: 500,
};
export const id = (n: number | string): LeaseId => String(n) as LeaseId;

export type Answer = RenewalAnswer | undefined | "none yet";

/** A keeper with a clock and a quorum that answers at once unless told otherwise. */
export class Member {
  readonly keeper: SessionKeeper;
  now = 0;
  contact: number | "fresh" = "fresh";
  /** Every expiry and checkpoint that was asked for, as text. */
  readonly asked: string[] = [];
  expired: LeaseId[] = [];
  lastWork: SessionWork = { expire: [], checkpoint: [], proveLeadership: false };
  #term = 0;

  constructor(options: Partial<SessionOptions> = {}) {
    this.keeper = createSessionKeeper({ ...OPTIONS, ...options });
  }

  lead(): void {
    this.#term += 1;
    this.keeper.lead(this.#term as Term, this.now);
    this.tick(0);
  }

  grant(leaseId: LeaseId, ttlMs: number, namespaceId = 1): void {
    this.keeper.applied({ kind: "granted", namespaceId, leaseId, ttlMs }, this.now);
  }

  end(leaseId: LeaseId, namespaceId = 1): void {
    const revision = 1 as Revision;
    this.keeper.applied({ kind: "ended", namespaceId, leaseId, cause: "lease-expired", revision }, this.now);
  }

  checkpoint(leaseId: LeaseId, remainingMs: number, namespaceId = 1): void {
    this.keeper.applied({ kind: "checkpointed", namespaceId, leaseId, remainingMs }, this.now);
  }

  tick(ms = 100): SessionWork {
    this.now += ms;
    this.lastWork = this.keeper.tick(this.now, this.contact === "fresh" ? this.now : this.contact);
    this.#sawExpiries(this.lastWork.expire);
    for (const { leases } of this.lastWork.checkpoint) {
      for (const lease of leases)
        this.asked.push(`checkpoint ${lease.leaseId}=${lease.remainingMs} at ${this.now}`);
    }
    return this.lastWork;
  }

  /** What follows when expiries were applied. */
  more(): SessionWork["expire"] {
    const expire = this.keeper.expireMore(this.now);
    this.#sawExpiries(expire);
    return expire;
  }

  #sawExpiries(expire: SessionWork["expire"]): void {
    for (const { leaseIds } of expire) {
      this.expired.push(...leaseIds);
      for (const leaseId of leaseIds) this.asked.push(`expire ${leaseId} at ${this.now}`);
    }
  }

  tickUntil(time: number): void {
    while (this.now < time) this.tick(Math.min(100, time - this.now));
  }

  renew(...leaseIds: LeaseId[]): () => Answer {
    let answer: Answer = "none yet";
    let deliveries = 0;
    this.keeper.renew({ namespaceId: 1, leaseIds }, this.now, (delivered) => {
      deliveries += 1;
      assert.equal(deliveries, 1, "answered once");
      answer = delivered;
    });
    return () => answer;
  }
}

export const remaining = (...remainingMs: number[]): RenewalAnswer => ({ remainingMs });

export function leader(options: Partial<SessionOptions> = {}): Member {
  const member = new Member(options);
  member.lead();
  return member;
}
