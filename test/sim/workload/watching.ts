/** What both kinds of watchers have in common: what they watch, from where, and where they go on. */
import type { LockstepError } from "@lockstep/client";
import { WatchChecker, type WatchedRange, type WatchedSpec } from "../checkers/watch.ts";
import { seen } from "../checkers/reads.ts";
import type { Connection } from "./connection.ts";
import { REGISTER_PREFIX, registerKey } from "./registers.ts";

/** A watch in the future starts at most so many revisions ahead. */
const FUTURE_REVISIONS_MAX = 20;
/** A client finds a leader again, and resumes, within this time once the cell is well. */
const CATCH_UP_US_MAX = 30_000_000;

export interface WatchPlan extends Omit<WatchedSpec, "startRevision"> {
  /** undefined: from the present on. */
  readonly startRevision: number | undefined;
}

/** What is watched stays the same for the life of an actor; it is drawn once. */
export function drawRange(connection: Connection): Omit<WatchPlan, "startRevision"> {
  const { context, tools } = connection;
  const { dice } = context;
  const range: WatchedRange = dice.pick([
    { key: registerKey(dice.between(1, tools.plan.registerKeys)), isPrefix: false },
    { key: REGISTER_PREFIX, isPrefix: true },
    { key: "", isPrefix: true },
    { key: "", isPrefix: true },
    { key: "/locks/", isPrefix: true },
    { key: "e/", isPrefix: true },
  ]);
  return {
    range,
    returnPrevious: dice.chance(0.5),
    omit: dice.pick([undefined, undefined, undefined, "put", "delete"] as const),
  };
}

/** Where a watch begins: where the last one stopped, in the past, now, or in the future. */
export function drawStart(connection: Connection): number | undefined {
  const { context, tools } = connection;
  const { dice } = context;
  const place = tools.places.get(context.name);
  if (place !== undefined) {
    tools.reporter.count("watch resumes");
    return place;
  }
  const newest = tools.truth.revision;
  const kind = dice.pick(["now", "past", "future"] as const);
  if (kind === "now") return undefined;
  if (kind === "future") return newest + dice.between(1, FUTURE_REVISIONS_MAX);
  return Math.max(1, dice.between(Math.min(tools.compactions.highest, newest), newest));
}

/** Begins to follow a watch, until {@link stopFollowing}. */
export function follow(connection: Connection, plan: WatchPlan, startRevision: number): WatchChecker {
  const { tools, context, host } = connection;
  const checker = new WatchChecker(tools, { name: context.name, host }, { ...plan, startRevision });
  let open = tools.openWatches.get(host);
  if (open === undefined) {
    open = new Set();
    tools.openWatches.set(host, open);
  }
  open.add(checker);
  return checker;
}

/** The watch is over; another one goes on from its place. */
export function stopFollowing(connection: Connection, checker: WatchChecker): void {
  const { tools, context, host } = connection;
  tools.openWatches.get(host)?.delete(checker);
  tools.places.set(context.name, checker.nextRevision);
}

/**
 * For a watch whose actor is to come to an end: everything that is committed has to arrive first, and does so within
 * a bound once the cell is well; unless it can reach one member only, which may be gone for good.
 * @returns whether the watch has delivered all of it
 */
export function hasCaughtUp(connection: Connection, checker: WatchChecker | undefined): boolean {
  const { tools, nowUs } = connection;
  const { healedAtUs } = tools.health;
  if (connection.pinned || checker === undefined || checker.behind(1) === 0) return true;
  if (healedAtUs !== undefined && nowUs > healedAtUs + CATCH_UP_US_MAX) checker.expectCaughtUp();
  return false;
}

/** Its place was compacted away: read the state, and watch from the revision after that answer. */
export async function readAnew(connection: Connection, { range }: WatchPlan): Promise<void> {
  const { tools, context } = connection;
  const input = range.isPrefix ? { prefix: range.key } : range.key;
  const what = `read ${range.key} anew`;
  const answer = await connection.call({
    what,
    send: (client) => client.range(input, { deadlineMs: tools.plan.deadlineMs }),
  });
  if (!answer.ok) return;
  const { revision, kvs, count, more } = answer.value;
  tools.reads.linearizableRevision(revision, answer.bounds, what);
  if (range.isPrefix) tools.reads.list(range.key, revision, { states: kvs.map(seen), count, more }, { what });
  else tools.reads.state(range.key, revision, kvs[0] === undefined ? undefined : seen(kvs[0]), what);
  connection.noteRevision(revision);
  tools.places.set(context.name, revision + 1);
}

/** A watch ended with an error. */
export async function onWatchError(
  connection: Connection,
  plan: WatchPlan,
  ended: { readonly error: LockstepError; readonly checker: WatchChecker | undefined },
): Promise<void> {
  const { tools, context } = connection;
  const { error, checker } = ended;
  if (error.code === "compacted") {
    tools.reporter.count("watch compacted");
    checker?.compacted(error.compactRevision);
    await readAnew(connection, plan);
    return;
  }
  await context.sleep(500);
}
