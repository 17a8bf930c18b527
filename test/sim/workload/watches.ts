/** Watches by the client's iterator: slow consumers, resumes, and the place that a consumer has reached. */
import type { Watch, WatchBatch } from "@lockstep/client";
import { judgeRejection } from "../checkers/rejections.ts";
import type { WatchChecker } from "../checkers/watch.ts";
import type { ActorContext } from "../contract.ts";
import { settle, withConnections, type Connection } from "./connection.ts";
import type { Tools } from "./tools.ts";
import {
  drawRange,
  drawStart,
  follow,
  hasCaughtUp,
  onWatchError,
  stopFollowing,
  type WatchPlan,
} from "./watching.ts";

const BUFFER_EVENTS = 4;
/** A consumer that rests sleeps so long on average: the buffer overflows meanwhile. */
const REST_MS_MEAN = 4_000;
/** Shorter than what a watch may take to catch up at the end. */
const REST_MS_MAX = 12_000;
const REST_CHANCE = 0.03;
/** After a batch, the chance to stop and to go on by another watch. */
const CHANGE_CHANCE = 0.01;
const LOOK_MS = 500;
/** After so many looks it ends behind what is committed: nobody has said that the cell is well. */
const CATCH_UP_LOOKS_MAX = 180;

export async function runWatches(context: ActorContext, tools: Tools): Promise<void> {
  let drawn: Omit<WatchPlan, "startRevision"> | undefined;
  const use = async (connection: Connection): Promise<void> => {
    drawn ??= drawRange(connection);
    while (!connection.over) await watchOnce(connection, { ...drawn, startRevision: drawStart(connection) });
  };
  await withConnections(context, tools, use, "watch");
}

async function watchOnce(connection: Connection, plan: WatchPlan): Promise<void> {
  const { client, tools, host } = connection;
  const { range, startRevision, returnPrevious, omit } = plan;
  const watch = client.watch(range.isPrefix ? { prefix: range.key } : range.key, {
    returnPrevious,
    bufferEvents: BUFFER_EVENTS,
    ...(startRevision === undefined ? {} : { startRevision }),
    ...(omit === undefined ? {} : { omit }),
  });
  const round = new WatchRound(connection, plan, watch);
  await round.run();
  watch.cancel();
  round.end();
  if (round.failure === undefined) return;
  const error = judgeRejection(round.failure, `watch of ${range.key} by ${host}`, tools.reporter);
  await onWatchError(connection, plan, { error, checker: round.checker });
}

class WatchRound {
  readonly #connection: Connection;
  readonly #plan: WatchPlan;
  readonly #watch: Watch;
  #checker: WatchChecker | undefined;
  /** What ended the watch. */
  failure: unknown;
  /** A cancelled watch is not created any more. */
  readonly #cancelled = Promise.withResolvers<undefined>();
  #over = false;

  constructor(connection: Connection, plan: WatchPlan, watch: Watch) {
    this.#connection = connection;
    this.#plan = plan;
    this.#watch = watch;
    if (plan.startRevision !== undefined) this.#checker = follow(connection, plan, plan.startRevision);
  }

  get checker(): WatchChecker | undefined {
    return this.#checker;
  }

  end(): void {
    this.#over = true;
    if (this.#checker !== undefined) stopFollowing(this.#connection, this.#checker);
  }

  async run(): Promise<void> {
    await Promise.all([this.#consume(), this.#look()]);
  }

  async #consume(): Promise<void> {
    await this.#consumeBatches();
    this.#over = true;
  }

  async #consumeBatches(): Promise<void> {
    if (this.#checker === undefined) {
      // From now on: what the cell calls now is told once it has registered the watch.
      const created = await settle(Promise.race([this.#watch.created, this.#cancelled.promise]));
      if (!created.ok) this.failure = created.error;
      if (!created.ok || created.value === undefined) return;
      this.#checker = follow(this.#connection, this.#plan, created.value + 1);
    }
    const batches = this.#watch.batches();
    for (;;) {
      const next = await settle(batches.next());
      if (!next.ok) this.failure = next.error;
      if (!next.ok || next.value.done === true) return;
      if (await this.#take(this.#checker, next.value.value)) continue;
      return;
    }
  }

  /** @returns false when the consumer changes to another watch. */
  async #take(checker: WatchChecker, batch: WatchBatch): Promise<boolean> {
    const { context, tools } = this.#connection;
    const { dice } = context;
    checker.batch(batch);
    tools.reporter.count("watch events", batch.events.length);
    checker.progress(this.#watch.revision);
    if (context.stopping) return true;
    if (dice.chance(CHANGE_CHANCE)) return false;
    if (dice.chance(REST_CHANCE)) await this.#rest();
    return true;
  }

  async #rest(): Promise<void> {
    const { context, tools } = this.#connection;
    await context.sleep(Math.min(REST_MS_MAX, context.dice.exponential(REST_MS_MEAN)));
    if ((this.#checker?.behind(BUFFER_EVENTS + 1) ?? 0) > BUFFER_EVENTS) {
      tools.reporter.count("watch slow consumers");
    }
  }

  /** Ends the watch when the world stops and everything has arrived, or when the connection is given up. */
  async #look(): Promise<void> {
    const connection = this.#connection;
    const { context } = connection;
    for (let looks = 0; !this.#over;) {
      await context.sleep(LOOK_MS);
      if (!connection.over) continue;
      looks += 1;
      const wait = context.stopping && looks < CATCH_UP_LOOKS_MAX;
      if (wait && !hasCaughtUp(connection, this.#checker)) continue;
      this.#watch.cancel();
      this.#cancelled.resolve(undefined);
      this.#over = true;
    }
  }
}
