/** One client process as an actor uses it: every call is bounded, recorded and judged. */
import type { Client, LockstepError, OperationOutcome } from "@lockstep/client";
import { failedOutcome, judgeRejection } from "../checkers/rejections.ts";
import type { ReadBounds } from "../checkers/reads.ts";
import type { ActorContext, SimClient, TimeUs } from "../contract.ts";
import type { Tools } from "./tools.ts";

const CONNECT_PAUSE_MS = 500;
/** After so many failed calls in a row an actor takes a new process. */
const FAILURES_MAX = 8;
/** One that can reach a single member only does not last long: that member may be gone for good. */
const PINNED_MS_MEAN = 8_000;
/** A watch has to be there when its member falls behind, and when that gets the state from the leader. */
const PINNED_WATCH_MS_MEAN = 20_000;

export type FailedOutcome = Exclude<OperationOutcome, "applied">;

export type Answer<T> =
  | { readonly ok: true; readonly value: T; readonly bounds: ReadBounds }
  | { readonly ok: false; readonly error: LockstepError; readonly outcome: FailedOutcome };

export interface CallPlan<T> {
  /** For people: `put r/1`. */
  readonly what: string;
  readonly send: (client: Client) => Promise<T>;
  /** Its process died before the answer came. */
  readonly onDeath?: () => void;
}

export class Connection {
  readonly id: number;
  readonly sim: SimClient;
  readonly context: ActorContext;
  readonly tools: Tools;
  /** It reaches one member only, and may never reach that again. */
  readonly pinned: boolean;
  /** By the clock of its process; Infinity: as long as it works. */
  readonly #endMs: number;
  /** The highest revision in a linearizable answer so far (I12). */
  #floor = 0;
  #failures = 0;
  #closed = false;

  constructor(
    sim: SimClient,
    {
      context,
      tools,
      pinnedMs,
    }: Pick<Connection, "context" | "tools"> & { readonly pinnedMs: number | undefined },
  ) {
    this.id = tools.nextConnection();
    this.sim = sim;
    this.context = context;
    this.tools = tools;
    this.pinned = pinnedMs !== undefined;
    this.#endMs = pinnedMs === undefined ? Infinity : sim.process.monotonicMs() + pinnedMs;
  }

  get client(): Client {
    return this.sim.client;
  }

  get host(): string {
    return this.sim.process.host;
  }

  get nowUs(): TimeUs {
    return this.context.scheduler.nowUs;
  }

  /** Nothing has worked for a while: take another process. */
  get hopeless(): boolean {
    return this.#failures >= FAILURES_MAX;
  }

  /** It has served its time, or serves no more. */
  get spent(): boolean {
    return this.hopeless || this.#closed || this.sim.process.monotonicMs() >= this.#endMs;
  }

  get over(): boolean {
    return this.context.stopping || this.spent;
  }

  /** A linearizable answer has shown this revision. */
  noteRevision(revision: number): void {
    this.#floor = Math.max(this.#floor, revision);
  }

  async call<T>(plan: CallPlan<T>): Promise<Answer<T>> {
    const { openCalls, truth, reporter } = this.tools;
    const bounds: ReadBounds = { committed: truth.revision, floor: this.#floor };
    const ended = openCalls.begin(this.host, plan.onDeath ?? ((): void => undefined));
    const settled = await settle(plan.send(this.client));
    ended();
    if (settled.ok) {
      this.#failures = 0;
      return { ok: true, value: settled.value, bounds };
    }
    const what = `${plan.what} by ${this.host}`;
    const error = judgeRejection(settled.error, what, reporter);
    const outcome = failedOutcome(error, what, reporter);
    reporter.trace(this.host, () => `${plan.what}: ${error.code} (${outcome})`);
    this.#failures = isUnreachable(error.code) ? this.#failures + 1 : 0;
    return { ok: false, error, outcome };
  }

  close(): void {
    this.#closed = true;
    this.client.close();
  }
}

type Settled<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown };

/** Keeps what the checkers throw apart from what the client rejects with. */
export async function settle<T>(promise: Promise<T>): Promise<Settled<T>> {
  try {
    return { ok: true, value: await promise };
  } catch (error) {
    return { ok: false, error };
  }
}

function isUnreachable(code: string): boolean {
  return code === "unavailable" || code === "deadline-exceeded" || code === "closed";
}

/** Runs `use` with one connection after another, until the world stops. */
export async function withConnections(
  context: ActorContext,
  tools: Tools,
  use: (connection: Connection) => Promise<void>,
  kind: "calls" | "watch" = "calls",
): Promise<void> {
  const pinnedMsMean = kind === "watch" ? PINNED_WATCH_MS_MEAN : PINNED_MS_MEAN;
  while (!context.stopping) {
    const pinned = context.dice.chance(tools.plan.pinnedChance);
    const settled = await settle(context.connect({ pinned }));
    if (!settled.ok) {
      judgeRejection(settled.error, `connect of ${context.name}`, tools.reporter);
      await context.sleep(CONNECT_PAUSE_MS);
      continue;
    }
    const pinnedMs = pinned ? context.dice.exponential(pinnedMsMean) : undefined;
    const connection = new Connection(settled.value, { context, tools, pinnedMs });
    await use(connection);
    connection.close();
  }
}
