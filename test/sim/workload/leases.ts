/** Leases by hand and by sessions: granted, renewed, revoked, left to expire, asked about. */
import type { ActorContext } from "../contract.ts";
import { withConnections, type Connection } from "./connection.ts";
import { closeSession, drawSessionPlan, openSession } from "./held-session.ts";
import { append } from "./sequences.ts";
import { pause, type Tools } from "./tools.ts";

const EPHEMERAL_PREFIX = "e/";
const STEPS_PER_LEASE_MAX = 8;

export async function runLeases(context: ActorContext, tools: Tools): Promise<void> {
  await withConnections(context, tools, async (connection) => {
    while (!connection.over) {
      if (context.dice.chance(0.5)) await liveInSession(connection);
      else await liveByHand(connection);
      await pause(context, tools.plan.operationsPerSecond);
    }
  });
}

/** A session with ephemeral keys, which ends by a word, by silence or with its process. */
async function liveInSession(connection: Connection): Promise<void> {
  const { context, tools } = connection;
  const { dice } = context;
  const session = await openSession(connection, drawSessionPlan(connection, 0.5));
  if (session === undefined) return;
  const steps = dice.between(1, STEPS_PER_LEASE_MAX);
  for (let step = 0; step < steps && !connection.over && !session.lost.aborted; step++) {
    const kind = dice.pick(["put", "put", "append", "ask"] as const);
    if (kind === "put") await putEphemeral(connection, session.leaseId);
    else if (kind === "append") await append(connection, session.leaseId);
    else await askAbout(connection, session.leaseId);
    await context.sleep(dice.exponential(session.ttlMs / 4));
  }
  if (dice.chance(0.6)) await closeSession(connection, session);
  else if (dice.chance(0.5)) tools.sessions.abandoned(session.leaseId, connection.nowUs);
  else await untilLost(connection, session.lost);
  // Abandoned on purpose: the channel would go on renewing it, so the process goes.
  if (!session.lost.aborted) connection.close();
}

/** Lives on for a while, then goes without closing. */
async function untilLost(connection: Connection, lost: AbortSignal): Promise<void> {
  const { context, tools } = connection;
  for (let waits = 0; waits < 5 && !lost.aborted && !connection.over; waits++) {
    await context.sleep(tools.plan.ttlMsMax / 2);
  }
}

/** A lease that is renewed by single calls; what it promises is counted from when each was sent. */
class HandLease {
  readonly leaseId: string;
  readonly ttlMs: number;
  readonly #connection: Connection;
  #sentMs: number;
  #promisedMs: number;
  #trusted = true;

  constructor(connection: Connection, lease: { leaseId: string; ttlMs: number; sentMs: number }) {
    this.#connection = connection;
    this.leaseId = lease.leaseId;
    this.ttlMs = lease.ttlMs;
    this.#sentMs = lease.sentMs;
    this.#promisedMs = lease.ttlMs;
  }

  remainingMs(): number {
    if (!this.#trusted) return 0;
    const { process } = this.#connection.sim;
    return Math.max(0, this.#promisedMs - (process.monotonicMs() - this.#sentMs));
  }

  renewed(sentMs: number, promisedMs: number): void {
    this.#sentMs = sentMs;
    this.#promisedMs = promisedMs;
  }

  forget(): void {
    this.#trusted = false;
  }
}

async function liveByHand(connection: Connection): Promise<void> {
  const { context, tools, sim, host } = connection;
  const { dice } = context;
  const { deadlineMs } = tools.plan;
  const sentMs = sim.process.monotonicMs();
  const asked = dice.between(tools.plan.ttlMsMin, tools.plan.ttlMsMax);
  const granted = await connection.call({
    what: `grant a lease of ${String(asked)} ms`,
    send: (client) => client.leaseGrant({ ttlMs: asked, owner: context.name, deadlineMs }),
  });
  if (!granted.ok) return;
  const { leaseId, ttlMs } = granted.value;
  const lease = new HandLease(connection, { leaseId, ttlMs, sentMs });
  tools.sessions.opened({ leaseId, host, ttlMs, remainingMs: () => lease.remainingMs() });
  const steps = dice.between(0, STEPS_PER_LEASE_MAX);
  for (let step = 0; step < steps && !connection.over; step++) {
    await context.sleep(dice.exponential(ttlMs / 4));
    const kind = dice.pick(["renew", "renew", "put", "ask", "list"] as const);
    if (kind === "renew") await renew(connection, lease);
    else if (kind === "put") await putEphemeral(connection, leaseId);
    else if (kind === "ask") await askAbout(connection, leaseId);
    else await list(connection);
  }
  if (dice.chance(0.5)) await revoke(connection, lease);
  else tools.sessions.abandoned(leaseId, connection.nowUs);
}

async function renew(connection: Connection, lease: HandLease): Promise<void> {
  const { tools, sim } = connection;
  const endedBefore = tools.sessions.hasEnded(lease.leaseId);
  const sentMs = sim.process.monotonicMs();
  const answer = await connection.call({
    what: `renew lease ${lease.leaseId}`,
    send: (client) => client.leaseRenew([lease.leaseId], { deadlineMs: tools.plan.deadlineMs }),
  });
  if (!answer.ok) return;
  const remainingMs = answer.value.remainingMs[0] ?? 0;
  tools.sessions.answered(lease.leaseId, remainingMs === 0 ? -1 : remainingMs, endedBefore);
  if (remainingMs === 0) return;
  tools.reporter.count("lease renewals");
  lease.renewed(sentMs, remainingMs);
}

async function revoke(connection: Connection, lease: HandLease): Promise<void> {
  const { tools } = connection;
  const { leaseId } = lease;
  tools.sessions.revoking(leaseId);
  lease.forget();
  const endedBefore = tools.sessions.hasEnded(leaseId);
  const answer = await connection.call({
    what: `revoke lease ${leaseId}`,
    send: (client) => client.leaseRevoke(leaseId, { deadlineMs: tools.plan.deadlineMs }),
  });
  tools.sessions.abandoned(leaseId, connection.nowUs);
  if (answer.ok) tools.sessions.answered(leaseId, -1, endedBefore);
  else if (answer.error.code === "lease-not-found") tools.sessions.answered(leaseId, -1, endedBefore);
}

/** A key under the lease: it must not be there without it. */
async function putEphemeral(connection: Connection, leaseId: string): Promise<void> {
  const { tools, context } = connection;
  const { writes, reads, reporter, sessions } = tools;
  const key = `${EPHEMERAL_PREFIX}${context.name}/${String(context.dice.between(1, 3))}`;
  const value = tools.uniqueValue();
  const what = `put ${key} under lease ${leaseId}`;
  writes.begin(value);
  const answer = await connection.call({
    what,
    send: (client) => client.put(key, value, { leaseId, deadlineMs: tools.plan.deadlineMs }),
    onDeath: () => writes.unknown(value),
  });
  if (!answer.ok) {
    if (answer.outcome === "unknown") writes.unknown(value);
    else writes.notApplied(value);
    if (answer.error.code === "lease-not-found") sessions.answered(leaseId, -1, false);
    return;
  }
  reporter.count("puts");
  const { revision, createRevision, version } = answer.value;
  reads.writtenRevision(revision, answer.bounds, what);
  writes.written(value, revision);
  reads.state(key, revision, { key, value, createRevision, modRevision: revision, version, leaseId }, what);
  connection.noteRevision(revision);
}

async function askAbout(connection: Connection, leaseId: string): Promise<void> {
  const { tools } = connection;
  const endedBefore = tools.sessions.hasEnded(leaseId);
  const answer = await connection.call({
    what: `time to live of lease ${leaseId}`,
    send: (client) => client.leaseTimeToLive(leaseId, { keys: true, deadlineMs: tools.plan.deadlineMs }),
  });
  if (!answer.ok) return;
  const { remainingMs, ttlMs } = answer.value;
  tools.sessions.answered(leaseId, remainingMs, endedBefore);
  if (remainingMs > ttlMs) {
    tools.reporter.violation("I10-answer", `lease ${leaseId} has ${remainingMs} ms left of ${ttlMs}`);
  }
}

async function list(connection: Connection): Promise<void> {
  const { tools } = connection;
  const { sessions } = tools;
  const ended = sessions.endedCount;
  const answer = await connection.call({
    what: "list leases",
    send: (client) => client.leaseList({ deadlineMs: tools.plan.deadlineMs }),
  });
  if (!answer.ok) return;
  sessions.listed(
    answer.value.leases.map(({ leaseId }) => leaseId),
    ended,
  );
}
