/** Queues of sequential keys, listed and paged through. */
import { NO_LEASE_ID, type LeaseId } from "@lockstep/client";
import { seen } from "../checkers/reads.ts";
import type { ActorContext } from "../contract.ts";
import { withConnections, type Connection } from "./connection.ts";
import { pause, type Tools } from "./tools.ts";

export const QUEUE_PREFIX = "q/";
const DIGITS = 16;
const PAGE_KEYS = 3;
/** A queue that is longer is cleared. */
const ENTRIES_MAX = 20;

export async function runSequences(context: ActorContext, tools: Tools): Promise<void> {
  await withConnections(context, tools, async (connection) => {
    while (!connection.over) {
      const entries = tools.truth.rangeAt(QUEUE_PREFIX, tools.truth.revision).length;
      const kind = context.dice.pick(["append", "append", "list", "page", "take"] as const);
      if (entries > ENTRIES_MAX) await clear(connection);
      else if (kind === "take") await takeFirst(connection);
      else if (kind === "append") await append(connection);
      else if (kind === "list") await list(connection);
      else await page(connection);
      await pause(context, tools.plan.operationsPerSecond);
    }
  });
}

/** The stored key ends in the revision of the put: its place among all others. With a lease, it goes with that. */
export async function append(connection: Connection, leaseId: LeaseId = NO_LEASE_ID): Promise<void> {
  const { writes, reads, reporter, sessions, plan, uniqueValue } = connection.tools;
  const value = uniqueValue();
  const what = `append ${value} to ${QUEUE_PREFIX}`;
  writes.begin(value);
  const answer = await connection.call({
    what,
    send: (client) =>
      client.put(QUEUE_PREFIX, value, {
        sequential: true,
        deadlineMs: plan.deadlineMs,
        ...(leaseId === NO_LEASE_ID ? {} : { leaseId }),
      }),
    onDeath: () => writes.unknown(value),
  });
  if (!answer.ok) {
    if (answer.outcome === "unknown") writes.unknown(value);
    else writes.notApplied(value);
    if (answer.error.code === "lease-not-found") sessions.answered(leaseId, -1, false);
    return;
  }
  reporter.count("sequential keys");
  const { revision, key } = answer.value;
  const expected = `${QUEUE_PREFIX}${String(revision).padStart(DIGITS, "0")}`;
  if (key.toString("latin1") !== expected) {
    reporter.violation(
      "I8-sequential",
      `${what} at revision ${revision} is stored as ${key.toString("latin1")}`,
    );
  }
  reads.writtenRevision(revision, answer.bounds, what);
  writes.written(value, revision);
  const state = {
    key: expected,
    value,
    createRevision: revision,
    modRevision: revision,
    version: 1,
    leaseId,
  };
  reads.state(expected, revision, state, what);
  connection.noteRevision(revision);
}

async function list(connection: Connection): Promise<void> {
  const { reads, plan } = connection.tools;
  const { dice } = connection.context;
  const options = {
    reverse: dice.chance(0.3),
    keysOnly: dice.chance(0.3),
    countOnly: dice.chance(0.1),
    ...(dice.chance(0.5) ? { limit: dice.between(1, ENTRIES_MAX) } : {}),
  };
  const what = `list ${QUEUE_PREFIX} ${JSON.stringify(options)}`;
  const answer = await connection.call({
    what,
    send: (client) => client.range({ prefix: QUEUE_PREFIX }, { ...options, deadlineMs: plan.deadlineMs }),
  });
  if (!answer.ok) return;
  const { revision, kvs, count, more } = answer.value;
  reads.linearizableRevision(revision, answer.bounds, what);
  const shown = { states: kvs.map(seen), count, more };
  if (options.countOnly) reads.count(QUEUE_PREFIX, revision, shown, what);
  else reads.list(QUEUE_PREFIX, revision, shown, { ...options, what });
  connection.noteRevision(revision);
}

/** Deletes all of it in one revision, and is told what there was. */
async function clear(connection: Connection): Promise<void> {
  const { reads, reporter, plan } = connection.tools;
  const what = `clear ${QUEUE_PREFIX}`;
  const answer = await connection.call({
    what,
    send: (client) =>
      client.delete({ prefix: QUEUE_PREFIX }, { returnPrevious: true, deadlineMs: plan.deadlineMs }),
  });
  if (!answer.ok) return;
  const { revision, deleted, previous } = answer.value;
  if (deleted > 0) reads.writtenRevision(revision, answer.bounds, what);
  else reads.linearizableRevision(revision, answer.bounds, what);
  const before = { states: previous.map(seen), count: deleted, more: false };
  reads.list(QUEUE_PREFIX, deleted > 0 ? revision - 1 : revision, before, { what: `${what}, before it,` });
  reads.list(QUEUE_PREFIX, revision, { states: [], count: 0, more: false }, { what });
  reporter.count("deletes");
  connection.noteRevision(revision);
}

/** All of it in small pages, at the revision of the first one: one picture, whatever happens meanwhile. */
async function page(connection: Connection): Promise<void> {
  const { reads, plan, reporter, compactions } = connection.tools;
  const states: ReturnType<typeof seen>[] = [];
  let at = 0;
  let from = QUEUE_PREFIX;
  for (;;) {
    // 0: the newest, which the first page fixes.
    const asked = at;
    const what = `page of ${QUEUE_PREFIX} from ${from} at revision ${asked}`;
    const answer = await connection.call({
      what,
      send: (client) =>
        client.range(
          { from, to: "q0" },
          { limit: PAGE_KEYS, deadlineMs: plan.deadlineMs, ...(asked === 0 ? {} : { revision: asked }) },
        ),
    });
    if (!answer.ok) {
      if (answer.error.code !== "compacted" || asked < compactions.highest) return;
      return reporter.violation(
        "I8-compacted",
        `${what}: compacted; nobody asked for more than ${compactions.highest}`,
      );
    }
    reads.linearizableRevision(answer.value.revision, answer.bounds, what);
    connection.noteRevision(answer.value.revision);
    if (at === 0) at = answer.value.revision;
    states.push(...answer.value.kvs.map(seen));
    const last = answer.value.kvs.at(-1);
    if (!answer.value.more || last === undefined) break;
    from = `${last.key.toString("latin1")}\0`;
  }
  const what = `pages of ${QUEUE_PREFIX}`;
  reads.list(QUEUE_PREFIX, at, { states, count: states.length, more: false }, { what });
  reporter.count("reads at a revision");
}

/** Takes the first entry, if it is still the one that was seen. */
async function takeFirst(connection: Connection): Promise<void> {
  const { reads, truth, reporter, plan } = connection.tools;
  const first = truth.rangeAt(QUEUE_PREFIX, truth.revision)[0];
  if (first === undefined) return;
  const { key, modRevision } = first;
  const what = `take ${key}`;
  const answer = await connection.call({
    what,
    send: (client) =>
      client.txn(
        { compares: [{ key, modRevision }], success: [{ delete: { key } }] },
        { deadlineMs: plan.deadlineMs },
      ),
  });
  if (!answer.ok) return;
  const { revision, succeeded } = answer.value;
  if (succeeded) reads.writtenRevision(revision, answer.bounds, what);
  else reads.linearizableRevision(revision, answer.bounds, what);
  reads.state(key, revision, undefined, what);
  reporter.count(succeeded ? "deletes" : "transactions");
  connection.noteRevision(revision);
}
