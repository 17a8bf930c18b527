import { LockstepError } from "@lockstep/client";
import type { Client, WatchBatch } from "@lockstep/client";
import type { Findings } from "../findings.ts";
import { connectTo, pause } from "./actor.ts";
import type { Stage } from "./actor.ts";
import { toPlain, toText } from "./canonical-history.ts";
import type { CanonicalHistory, PlainEvent, PlainRevision } from "./canonical-history.ts";

/** How a watcher behaves. */
interface Manner {
  readonly name: string;
  readonly prefix: string;
  /** Takes its time now and then, so that the cell cuts it off and it has to go on from history. */
  readonly slow: boolean;
  /** Gives its client up now and then and resumes with another one by revision. */
  readonly restless: boolean;
}

const MANNERS: readonly Manner[] = [
  { name: "steady", prefix: "/", slow: false, restless: false },
  { name: "slow", prefix: "/", slow: true, restless: false },
  { name: "restless", prefix: "/", slow: false, restless: true },
  { name: "registers only", prefix: "/register/", slow: false, restless: true },
];
const REST_MS_MEAN = 5_000;

/** One watcher and everything that it was told. */
export class Watcher {
  readonly manner: Manner;
  /** Everything up to and including this revision was told. */
  upTo = 0;
  readonly #stage: Stage;
  readonly #seen: PlainRevision[] = [];

  constructor(stage: Stage, manner: Manner) {
    this.manner = manner;
    this.#stage = { ...stage, dice: stage.dice.fork(`watcher ${manner.name}`) };
  }

  /** Until the workload ends. */
  async run(): Promise<void> {
    const { stopping, findings } = this.#stage;
    let client: Client | undefined;
    while (!stopping.aborted) {
      client ??= await connectTo(this.#stage);
      if (client === undefined) break;
      try {
        await this.#watch(client);
      } catch (error) {
        if (!(error instanceof LockstepError)) throw error;
        findings.count("watches ended by an error");
        findings.record({ kind: "watch ended", watcher: this.manner.name, code: error.code });
        if (error.code === "compacted") {
          findings.violation(
            "watches resume",
            `watcher ${this.manner.name} at ${String(this.upTo)}: nothing was ever compacted, and yet: ${error.message}`,
          );
          break;
        }
        await pause(stopping, 500);
      }
      client.close();
      client = undefined;
    }
    client?.close();
  }

  /** Compares what was told with what happened, from the first revision on. */
  check(history: CanonicalHistory, findings: Findings): void {
    const { name, prefix } = this.manner;
    const wanted = history.revisions
      .filter(({ revision }) => revision <= this.upTo)
      .map(({ revision, events }) => ({
        revision,
        events: events.filter(({ key }) => key.startsWith(prefix)),
      }))
      .filter(({ events }) => events.length > 0);
    for (let n = 0; n < Math.max(wanted.length, this.#seen.length); n += 1) {
      const [happened, told] = [wanted[n], this.#seen[n]];
      const texts = [happened, told].map((one) => (one === undefined ? "nothing" : toText(one)));
      if (texts[0] === texts[1]) continue;
      findings.violation(
        "watches are complete",
        `watcher ${name} up to ${String(this.upTo)}, place ${String(n)}: it was told ${String(texts[1])}; what happened is ${String(texts[0])}`,
      );
      return;
    }
    findings.count("watched revisions compared", wanted.length);
  }

  async #watch(client: Client): Promise<void> {
    const { stopping, dice, findings } = this.#stage;
    findings.count("watches begun");
    const leave = new AbortController();
    const onStop = (): void => leave.abort();
    stopping.addEventListener("abort", onStop, { once: true });
    const timer = this.manner.restless ? setTimeout(onStop, dice.exponential(REST_MS_MEAN) + 200) : undefined;
    const watch = client.watch(
      { prefix: this.manner.prefix },
      { startRevision: this.upTo + 1, signal: leave.signal, bufferEvents: this.manner.slow ? 64 : 1_024 },
    );
    try {
      for await (const batch of watch.batches()) {
        this.#take(batch);
        if (this.manner.slow && dice.chance(0.02)) await pause(stopping, dice.exponential(2_000));
      }
    } finally {
      clearTimeout(timer);
      stopping.removeEventListener("abort", onStop);
    }
  }

  #take(batch: WatchBatch): void {
    const { findings } = this.#stage;
    const groups = new Map<number, PlainEvent[]>();
    let newest = this.upTo;
    for (const event of batch.events) {
      const revision = event.kv.modRevision;
      if (revision < newest || revision <= this.upTo || revision > batch.revision) {
        findings.violation(
          "watches are ordered and unique",
          `watcher ${this.manner.name}, which knew everything up to ${String(this.upTo)}, was told of revision ${String(revision)} after ${String(newest)} in a batch up to ${String(batch.revision)}`,
        );
      }
      newest = Math.max(newest, revision);
      const group = groups.get(revision) ?? [];
      group.push(toPlain(event));
      groups.set(revision, group);
    }
    for (const [revision, events] of groups) this.#seen.push({ revision, events });
    this.upTo = Math.max(this.upTo, batch.revision);
  }
}

export function createWatchers(stage: Stage): readonly Watcher[] {
  return MANNERS.map((manner) => new Watcher(stage, manner));
}

/** The whole history as one member's client tells it when all is at rest. */
export async function readHistory(
  client: Client,
  upTo: number,
  deadlineMs: number,
): Promise<PlainRevision[]> {
  const seen: PlainRevision[] = [];
  const signal = AbortSignal.timeout(deadlineMs);
  const watch = client.watch({ prefix: "/" }, { startRevision: 1, signal, returnPrevious: false });
  for await (const { revision: reached, events } of watch.batches()) {
    for (const event of events) {
      const revision = event.kv.modRevision;
      const last = seen.at(-1);
      const plain = toPlain(event);
      if (last?.revision === revision) (last.events as PlainEvent[]).push(plain);
      else seen.push({ revision, events: [plain] });
    }
    if (reached >= upTo) return seen;
  }
  throw new Error(
    `the history did not come within ${String(deadlineMs)} ms; the last revision was ${String(seen.at(-1)?.revision)}`,
  );
}
