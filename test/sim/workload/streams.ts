/** Watches below the iterator, as a router uses them: progress notices, and consumers that are full. */
import { toWireRange } from "../../../client/src/bytes.ts";
import type { ChannelWatch, LockstepError, WatchBatch, WatchListener } from "@lockstep/client";
import { judgeRejection } from "../checkers/rejections.ts";
import type { WatchChecker } from "../checkers/watch.ts";
import type { ActorContext } from "../contract.ts";
import { withConnections, type Connection } from "./connection.ts";
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

const INBOX_MAX = 8;
const STEP_MS = 250;
const PROGRESS_CHANCE = 0.3;
const REST_CHANCE = 0.02;
const REST_MS_MEAN = 4_000;
/** Shorter than what a watch may take to catch up at the end. */
const REST_MS_MAX = 12_000;
const CHANGE_CHANCE = 0.01;
/** After so many steps it ends behind what is committed: nobody has said that the cell is well. */
const CATCH_UP_STEPS_MAX = 360;

type Message =
  | { readonly kind: "created"; readonly revision: number }
  | { readonly kind: "batch"; readonly batch: WatchBatch }
  | { readonly kind: "progress"; readonly revision: number }
  | { readonly kind: "ended"; readonly error: LockstepError };

/**
 * What the channel delivers is only put down here, and judged in the actor's own turn: what is thrown inside of a
 * frame would be taken for a broken stream.
 */
class Inbox implements WatchListener {
  messages: Message[] = [];
  full = false;

  created(revision: number): void {
    this.messages.push({ kind: "created", revision });
  }

  events(batch: WatchBatch): boolean {
    this.messages.push({ kind: "batch", batch });
    this.full = this.messages.length > INBOX_MAX;
    return !this.full;
  }

  progress(revision: number): void {
    this.messages.push({ kind: "progress", revision });
  }

  ended(error: LockstepError): void {
    this.messages.push({ kind: "ended", error });
  }

  take(): readonly Message[] {
    const { messages } = this;
    this.messages = [];
    return messages;
  }
}

export async function runStreams(context: ActorContext, tools: Tools): Promise<void> {
  let drawn: Omit<WatchPlan, "startRevision"> | undefined;
  const use = async (connection: Connection): Promise<void> => {
    drawn ??= drawRange(connection);
    while (!connection.over) {
      await new StreamRound(connection, { ...drawn, startRevision: drawStart(connection) }).run();
    }
  };
  await withConnections(context, tools, use, "watch");
}

class StreamRound {
  readonly #connection: Connection;
  readonly #plan: WatchPlan;
  readonly #inbox = new Inbox();
  readonly #watch: ChannelWatch;
  #checker: WatchChecker | undefined;
  #error: LockstepError | undefined;

  constructor(connection: Connection, plan: WatchPlan) {
    this.#connection = connection;
    this.#plan = plan;
    const { range, startRevision, returnPrevious, omit } = plan;
    if (startRevision !== undefined) this.#checker = follow(connection, plan, startRevision);
    this.#watch = connection.client.channel.watch(
      {
        range: toWireRange(range.isPrefix ? { prefix: range.key } : range.key),
        startRevision: startRevision ?? 0,
        returnPrevious,
        omit,
      },
      this.#inbox,
    );
  }

  async run(): Promise<void> {
    const { context } = this.#connection;
    for (let last = 0; this.#error === undefined;) {
      await context.sleep(STEP_MS);
      this.#judge();
      if (context.stopping) {
        last += 1;
        if (last >= CATCH_UP_STEPS_MAX || hasCaughtUp(this.#connection, this.#checker)) break;
      } else if (this.#connection.over || context.dice.chance(CHANGE_CHANCE)) {
        break;
      } else if (context.dice.chance(REST_CHANCE)) {
        await context.sleep(Math.min(REST_MS_MAX, context.dice.exponential(REST_MS_MEAN)));
      }
      if (context.dice.chance(PROGRESS_CHANCE)) this.#watch.requestProgress();
    }
    this.#watch.cancel();
    const checker = this.#checker;
    if (checker !== undefined) stopFollowing(this.#connection, checker);
    if (this.#error !== undefined) {
      await onWatchError(this.#connection, this.#plan, { error: this.#error, checker });
    }
  }

  #judge(): void {
    const { reporter } = this.#connection.tools;
    const wasFull = this.#inbox.full;
    for (const message of this.#inbox.take()) this.#message(message);
    if (!wasFull) return;
    this.#inbox.full = false;
    reporter.count("watch slow consumers");
    this.#watch.resume();
  }

  #message(message: Message): void {
    const { reporter } = this.#connection.tools;
    switch (message.kind) {
      case "created":
        this.#checker ??= follow(this.#connection, this.#plan, message.revision + 1);
        return;
      case "batch":
        this.#known().batch(message.batch);
        reporter.count("watch events", message.batch.events.length);
        return;
      case "progress":
        this.#known().notice(message.revision);
        reporter.count("progress notices");
        return;
      case "ended":
        this.#error = judgeRejection(message.error, `stream of ${this.#plan.range.key}`, reporter);
    }
  }

  #known(): WatchChecker {
    const { reporter } = this.#connection.tools;
    return this.#checker ?? reporter.violation("I9-created", "a watch delivers before it was created");
  }
}
