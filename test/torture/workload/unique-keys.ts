import type { Client } from "@lockstep/client";
import { actAgainAndAgain, toFailure } from "./actor.ts";
import type { Result, Stage, Values } from "./actor.ts";

const WRITERS = 4;
const MEAN_PAUSE_MS = 40;
const DEADLINE_MS = 5_000;
/** Every so many writes a key that was acknowledged is read back, as of its revision or later. */
const READ_BACK_CHANCE = 0.2;
const SEQUENTIAL_CHANCE = 0.3;

/**
 * Keys that are written once and must be there at the end; a part of them with sequential names, which a second execution
 * of a retried request would make twice.
 */
export async function tortureUniqueKeys(stage: Stage, values: Values): Promise<void> {
  const writers = Array.from({ length: WRITERS }, (_, n) => {
    const name = `u${String(n)}`;
    const writer = new UniqueWriter({ ...stage, dice: stage.dice.fork(name) }, values, name);
    return actAgainAndAgain(stage, MEAN_PAUSE_MS, (client) => writer.write(client));
  });
  await Promise.all(writers);
}

class UniqueWriter {
  readonly #stage: Stage;
  readonly #values: Values;
  readonly #name: string;
  #last: { readonly key: string; readonly revision: number } | undefined;

  constructor(stage: Stage, values: Values, name: string) {
    this.#stage = stage;
    this.#values = values;
    this.#name = name;
  }

  async write(client: Client): Promise<Result> {
    const { dice, ledger, findings, onWrite } = this.#stage;
    if (this.#last !== undefined && dice.chance(READ_BACK_CHANCE)) return this.#readBack(client, this.#last);
    const value = this.#values.next(this.#name);
    const sequential = dice.chance(SEQUENTIAL_CHANCE);
    findings.count("unique keys written");
    try {
      const key = sequential ? `/sequential/${this.#name}-` : `/unique/${value}`;
      const put = await client.put(key, value, { sequential, deadlineMs: DEADLINE_MS });
      const stored = put.key.toString();
      ledger.acknowledged(stored, value, put.revision);
      this.#last = { key: stored, revision: put.revision };
      onWrite();
      return undefined;
    } catch (error) {
      const failure = toFailure(this.#stage, error);
      if (failure.outcome === "not-applied") {
        ledger.refused(value);
        findings.count("unique keys refused");
      } else {
        ledger.unknown(value);
        findings.count("unique keys unknown");
      }
      return failure;
    }
  }

  /** Any member that reflects the write's revision has it. */
  async #readBack(
    client: Client,
    last: { readonly key: string; readonly revision: number },
  ): Promise<Result> {
    const { dice, ledger, findings } = this.#stage;
    const { key, revision } = last;
    findings.count("reads of old and stale kinds");
    try {
      if (dice.chance(0.5)) {
        const found = await client.get(key, { revision, deadlineMs: DEADLINE_MS });
        ledger.readAt(key, revision, found?.text());
        return undefined;
      }
      const options = {
        consistency: "serializable",
        minRevision: revision,
        deadlineMs: DEADLINE_MS,
      } as const;
      const answer = await client.range(key, options);
      const found = answer.kvs[0];
      if (answer.revision < revision || found?.modRevision !== revision) {
        findings.violation(
          "serializable reads from a revision on",
          `${key} was written at ${String(revision)}; a read that reflects ${String(answer.revision)} found it at ${String(found?.modRevision)}`,
        );
      }
      return undefined;
    } catch (error) {
      return toFailure(this.#stage, error);
    }
  }
}
