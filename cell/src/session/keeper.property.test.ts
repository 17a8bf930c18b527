/**
 * A cell of dumb parts around real keepers: random elections (two leaders at once), pauses, lost and refused
 * proposals, late renewals. What clients were promised is kept beside it and compared with every expiry.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { LeaseId, Revision } from "@lockstep/gateway/coordinator";
import type { LeaseChange } from "../machine/types.ts";
import type { Term } from "../raft/types.ts";
import { createSessionKeeper } from "./keeper.ts";
import type { SessionKeeper, SessionOptions, SessionWork } from "./types.ts";

const OPTIONS: SessionOptions = {
  electionTimeoutMs: 1000,
  checkpointIntervalMs: 3000,
  expireBatchMax: 2,
  lateTickMs: 400,
};
const TTLS = [700, 2000, 4000, 9000, 30_000];

interface Proposal {
  readonly term: number;
  readonly kind: "expire" | "checkpoint";
  readonly leases: readonly { readonly leaseId: LeaseId; readonly remainingMs: number }[];
  readonly proposedAt: number;
}

interface Lease {
  readonly ttlMs: number;
  checkpointMs: number;
  /** No expiry may be proposed before this. */
  promisedUntil: number;
}

class Peer {
  keeper: SessionKeeper = createSessionKeeper(OPTIONS);
  /** The term it believes to lead. */
  term: number | undefined;
  /** When the last heartbeat that a quorum answered was sent. */
  contact = -Infinity;
  /** What the next leader committed: a deposed one hears of it only together with the new term. */
  backlog: LeaseChange[] = [];
}

/** One byte of a random script decides each step. */
class Cell {
  now = 0;
  readonly peers = [new Peer(), new Peer(), new Peer()];
  /** Committed state of the machine. */
  readonly leases = new Map<LeaseId, Lease>();
  readonly ended = new Set<LeaseId>();
  readonly #log: Proposal[] = [];
  #term = 0;
  #leader: Peer | undefined;
  #nextLease = 1;
  #open = 0;
  #script: Iterator<number>;

  constructor(script: readonly number[]) {
    this.#script = script[Symbol.iterator]();
  }

  /** @returns a number in [0, below) from the script; 0 when it is over. */
  #draw(below: number): number {
    const next = this.#script.next();
    return next.done === true ? 0 : next.value % below;
  }

  run(steps: number): void {
    this.#elect();
    for (let step = 0; step < steps; step += 1) this.#step();
    // Then everything works and nobody renews: all leases must end.
    this.#elect();
    const bound = 30_000 + OPTIONS.electionTimeoutMs + 3000 + 3000 + 2000;
    for (const end = this.now + bound; this.now < end;) {
      this.now += 100;
      this.#contact(this.#mustLead());
      this.#tick(this.#mustLead(), "accept");
      this.#commit(1000);
    }
    assert.deepEqual([...this.leases.keys()], [], "every unrenewed lease ends");
    for (const peer of this.peers) {
      if (peer.term !== undefined) this.#depose(peer);
      assert.equal(peer.keeper.count, 0);
    }
    assert.equal(this.#open, 0, "every renewal was answered");
  }

  #step(): void {
    this.now += [0, 10, 30, 60, 100, 100, 100, 130, 350, 380, 410, 2500][this.#draw(12)]!;
    const leader = this.#mustLead();
    if (this.#draw(8) !== 7) this.#contact(leader);
    // A peer that believes to lead may tick although it was deposed: its proposals reach nobody.
    for (const peer of this.peers) {
      if (peer.term === undefined || this.#draw(8) === 7) continue;
      this.#tick(peer, (["accept", "accept", "accept", "refuse", "unknown"] as const)[this.#draw(5)]!);
    }
    switch (this.#draw(16)) {
      case 0:
        this.#grant();
        break;
      case 1:
        if (this.#draw(3) === 0) this.#elect();
        break;
      case 2:
        for (const peer of this.peers) {
          if (peer !== leader && peer.term !== undefined && this.#draw(2) === 0) this.#depose(peer);
        }
        break;
      case 3:
      case 4:
      case 5:
        this.#commit(1 + this.#draw(4));
        for (const peer of this.peers) {
          this.#proposeExpiries(peer, peer.keeper.expireMore(this.now), "accept");
        }
        break;
      default:
        this.#renew();
    }
  }

  #mustLead(): Peer {
    assert.ok(this.#leader);
    return this.#leader;
  }

  #contact(leader: Peer): void {
    leader.contact = Math.max(leader.contact, this.now - this.#draw(60));
    if (this.#draw(2) === 0) leader.keeper.quorumContact(leader.contact, this.now);
  }

  #depose(peer: Peer): void {
    peer.term = undefined;
    peer.keeper.follow();
    for (const change of peer.backlog.splice(0)) peer.keeper.applied(change, this.now);
  }

  /** The old leader does not know: it goes on until it is told. */
  #elect(): void {
    const old = this.#leader;
    const others = this.peers.filter((peer) => peer !== old);
    const next = this.#draw(4) === 0 && old !== undefined ? old : others[this.#draw(others.length)]!;
    if (next.term !== undefined) this.#depose(next);
    this.#leader = next;
    // What reached a majority is committed by the next leader before its own entry; the rest is lost.
    this.#commit(this.#draw(this.#log.length + 1));
    this.#log.length = 0;
    this.#term += 1;
    next.term = this.#term;
    // The old leader's last round was answered before this election.
    next.contact = -Infinity;
    next.keeper.lead(this.#term as Term, this.now);
  }

  #grant(): void {
    const leaseId = String(this.#nextLease) as LeaseId;
    this.#nextLease += 1;
    const ttlMs = TTLS[this.#draw(TTLS.length)]!;
    this.leases.set(leaseId, { ttlMs, checkpointMs: 0, promisedUntil: this.now + ttlMs });
    this.#apply({ kind: "granted", namespaceId: 1, leaseId, ttlMs });
  }

  #renew(): void {
    const believers = this.peers.filter((peer) => peer.term !== undefined);
    const peer = believers[this.#draw(believers.length)]!;
    const leaseIds: LeaseId[] = [];
    for (let n = this.#draw(3); n >= 0; n -= 1)
      leaseIds.push(String(1 + this.#draw(this.#nextLease)) as LeaseId);
    const sentAt = this.now;
    const existed = leaseIds.map((leaseId) => this.leases.has(leaseId));
    this.#open += 1;
    let answers = 0;
    peer.keeper.renew({ namespaceId: 1, leaseIds }, this.now, (answer) => {
      answers += 1;
      assert.equal(answers, 1);
      this.#open -= 1;
      answer?.remainingMs.forEach((remainingMs, at) => {
        const lease = this.leases.get(leaseIds[at]!);
        if (peer === this.#leader) {
          if (remainingMs === 0) assert.ok(!lease || !existed[at], "0 only when the lease is gone");
          else assert.ok(lease, "positive only while the lease is there");
        }
        // 0 promises nothing: an old leader says it of a lease that was granted after its time.
        if (lease && remainingMs > 0) {
          lease.promisedUntil = Math.max(lease.promisedUntil, sentAt + remainingMs);
        }
      });
    });
  }

  #tick(peer: Peer, fate: "accept" | "refuse" | "unknown"): void {
    const work = peer.keeper.tick(this.now, peer.contact);
    if (work.proveLeadership) {
      assert.equal(work.expire.length + work.checkpoint.length, 0);
      // Only the true leader can prove it; sometimes the answer comes later.
      if (peer === this.#leader && this.#draw(3) !== 2) peer.keeper.leadershipProved(this.now, this.now);
      return;
    }
    this.#proposeExpiries(peer, work.expire, fate);
    for (const { leases } of work.checkpoint) this.#propose(peer, { kind: "checkpoint", leases }, fate);
  }

  #proposeExpiries(peer: Peer, expire: SessionWork["expire"], fate: "accept" | "refuse" | "unknown"): void {
    for (const { leaseIds } of expire) {
      const leases = leaseIds.map((leaseId) => ({ leaseId, remainingMs: 0 }));
      this.#propose(peer, { kind: "expire", leases }, fate);
    }
  }

  #propose(peer: Peer, what: Pick<Proposal, "kind" | "leases">, fate: "accept" | "refuse" | "unknown"): void {
    const leaseIds = what.leases.map(({ leaseId }) => leaseId);
    if (what.kind === "expire") {
      for (const leaseId of leaseIds) {
        const lease = this.leases.get(leaseId);
        const promised = lease?.promisedUntil ?? -Infinity;
        // Also the proposals of a deposed leader may not be early by what *it* acknowledged; the true one's never.
        if (peer === this.#leader)
          assert.ok(this.now >= promised, `expiry at ${this.now}, promised ${promised}`);
      }
    }
    const stands = fate === "accept" || (fate === "unknown" && this.#draw(2) === 0);
    if (stands && peer === this.#leader) {
      this.#log.push({ ...what, term: this.#term, proposedAt: this.now });
    }
    if (fate === "refuse") {
      if (what.kind === "expire") peer.keeper.expiryFailed(1, leaseIds, "refused");
      else peer.keeper.checkpointFailed(1, leaseIds);
    } else if (fate === "unknown") {
      if (what.kind === "expire") peer.keeper.expiryFailed(1, leaseIds, "unknown");
      // A checkpoint of unknown outcome is applied, or leadership is lost.
      else if (!stands && peer === this.#leader)
        this.#log.push({ ...what, term: this.#term, proposedAt: this.now });
    }
  }

  #commit(count: number): void {
    for (const { kind, leases, proposedAt } of this.#log.splice(0, count)) {
      for (const { leaseId, remainingMs } of leases) {
        const lease = this.leases.get(leaseId);
        if (lease === undefined) continue;
        if (kind === "checkpoint") {
          lease.checkpointMs = remainingMs;
          this.#apply({ kind: "checkpointed", namespaceId: 1, leaseId, remainingMs });
        } else {
          assert.ok(
            proposedAt >= lease.promisedUntil,
            `expired at ${proposedAt}, promised ${lease.promisedUntil}`,
          );
          this.leases.delete(leaseId);
          this.#apply({
            kind: "ended",
            namespaceId: 1,
            leaseId,
            cause: "lease-expired",
            revision: 1 as Revision,
          });
        }
      }
    }
  }

  #apply(change: LeaseChange): void {
    for (const peer of this.peers) {
      if (peer.term === undefined || peer === this.#leader) peer.keeper.applied(change, this.now);
      else peer.backlog.push(change);
    }
  }
}

describe("session keeper under random schedules", () => {
  it("never expires before an acknowledged renewal's promise, answers once, and every idle lease ends", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 1_000_000 }), { minLength: 100, maxLength: 3000, size: "max" }),
        (script) => {
          new Cell(script).run(Math.floor(script.length / 8));
        },
      ),
      { numRuns: 500 },
    );
  });
});

/** The dumb twin of one undisturbed leader: looks at every lease at every tick. */
class Twin {
  readonly deadlines = new Map<string, number>();
  tick(now: number): string[] {
    return [...this.deadlines].filter(([, deadline]) => deadline <= now).map(([leaseId]) => leaseId);
  }
}

describe("session keeper beside a twin that scans all leases", () => {
  const operation = fc.record({
    kind: fc.constantFrom("grant", "renew", "end", "tick", "tick", "tick"),
    lease: fc.integer({ min: 0, max: 30 }),
    ttlMs: fc.constantFrom(10, 64, 500, 1000, 17_000, 5_000_000),
    ms: fc.integer({ min: 0, max: 400 }),
    idle: fc.constantFrom(0, 0, 0, 100, 1000),
  });

  it("expires exactly what the twin finds due, at most a wheel bucket later, and nothing that is not", () => {
    fc.assert(
      fc.property(fc.array(operation, { minLength: 20, maxLength: 400, size: "max" }), (operations) => {
        const options = { ...OPTIONS, expireBatchMax: 32, checkpointIntervalMs: 10 ** 9 };
        const keeper = createSessionKeeper(options);
        const twin = new Twin();
        let now = 0;
        keeper.lead(1 as Term, now);
        keeper.tick(now, now);
        const tick = (): void => {
          const certain = new Set(twin.tick(now - 64));
          const due = new Set(twin.tick(now));
          for (const { leaseIds } of keeper.tick(now, now).expire) {
            for (const leaseId of leaseIds) {
              assert.ok(due.has(leaseId), `lease ${leaseId} was not due`);
              keeper.applied(
                { kind: "ended", namespaceId: 1, leaseId, cause: "lease-expired", revision: 1 as Revision },
                now,
              );
              twin.deadlines.delete(leaseId);
              certain.delete(leaseId);
            }
          }
          assert.deepEqual([...certain], [], "nothing stays longer than a bucket");
        };
        for (const { kind, lease, ttlMs, ms, idle } of operations) {
          const leaseId = String(lease) as LeaseId;
          if (kind === "grant" && !twin.deadlines.has(leaseId)) {
            keeper.applied({ kind: "granted", namespaceId: 1, leaseId, ttlMs }, now);
            twin.deadlines.set(leaseId, now + ttlMs);
          } else if (kind === "renew") {
            keeper.renew({ namespaceId: 1, leaseIds: [leaseId] }, now, (answer) => {
              const remainingMs = answer?.remainingMs[0] ?? -1;
              assert.equal(remainingMs > 0, twin.deadlines.has(leaseId));
              if (remainingMs > 0) twin.deadlines.set(leaseId, now + remainingMs);
            });
          } else if (kind === "end" && twin.deadlines.delete(leaseId)) {
            keeper.applied(
              { kind: "ended", namespaceId: 1, leaseId, cause: "lease-revoked", revision: 1 as Revision },
              now,
            );
          } else if (kind === "tick") {
            for (let n = 0; n <= idle; n += 1) {
              now += ms;
              tick();
            }
          }
        }
      }),
      { numRuns: 60 },
    );
  });
});
