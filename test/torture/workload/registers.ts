import type { Client } from "@lockstep/client";
import type { History } from "../../linearizability/history.ts";
import { compareAndSet, valuesOf } from "../../linearizability/words.ts";
import type { KeyInput, KeyOutput, KeyTxn, Seen } from "../../linearizability/words.ts";
import { actAgainAndAgain, toFailure } from "./actor.ts";
import type { Result, Stage, Values } from "./actor.ts";
import { execute } from "./key-operations.ts";
import { stepsTaken } from "./witness.ts";

const KEYS = 10;
const ACTORS = 10;
/** Ten actors at this pace keep some 200 operations a second going on a calm machine. */
const MEAN_PAUSE_MS = 40;
const DEADLINE_MS_MIN = 500;
const DEADLINE_MS_MAX = 6_000;

/** Registers under puts, gets, deletes, compare-and-sets and two-key transactions by several clients. */
export async function tortureRegisters(stage: Stage, values: Values, history: History): Promise<void> {
  const actors = Array.from({ length: ACTORS }, (_, n) => new RegisterActor(stage, values, history, n));
  await Promise.all(actors.map((actor) => actor.run()));
}

class RegisterActor {
  readonly #stage: Stage;
  readonly #values: Values;
  readonly #history: History;
  readonly #name: string;
  /** What this actor saw last of a key: the expectation of its compare-and-sets. */
  readonly #last = new Map<string, Seen | null>();

  constructor(stage: Stage, values: Values, history: History, number: number) {
    this.#name = `r${String(number)}`;
    this.#stage = { ...stage, dice: stage.dice.fork(this.#name) };
    this.#values = values;
    this.#history = history;
  }

  run(): Promise<void> {
    return actAgainAndAgain(this.#stage, MEAN_PAUSE_MS, (client) => this.#act(client));
  }

  async #act(client: Client): Promise<Result> {
    const { dice, ledger, findings, onWrite } = this.#stage;
    const input = this.#draw();
    const deadlineMs = dice.between(DEADLINE_MS_MIN, DEADLINE_MS_MAX);
    const operation = this.#history.begin(this.#name, input, performance.now());
    findings.count("register operations");
    try {
      const output = await execute(client, input, deadlineMs);
      this.#history.ok(operation, output, performance.now());
      this.#learn(input, output);
      if (this.#tellLedger(input, output)) onWrite();
      return undefined;
    } catch (error) {
      const failure = toFailure(this.#stage, error);
      if (failure.outcome === "not-applied") {
        this.#history.notApplied(operation);
        for (const value of valuesOf(input)) ledger.refused(value);
        findings.count("register operations refused");
      } else {
        this.#history.unknown(operation);
        for (const value of valuesOf(input)) ledger.unknown(value);
        findings.count("register operations unknown");
      }
      return failure;
    }
  }

  #draw(): KeyInput {
    const { dice } = this.#stage;
    const key = this.#key();
    const kinds = new Map([
      ["get", 35],
      ["put", 25],
      ["cas", 25],
      ["txn", 12],
      ["delete", 3],
    ] as const);
    switch (dice.weighted(kinds)) {
      case "get":
        return { kind: "get", key };
      case "put":
        return { kind: "put", key, value: this.#values.next(this.#name) };
      case "delete":
        return { kind: "delete", key };
      case "cas":
        return this.#compareAndSet(key);
      case "txn":
        return this.#transaction(key);
    }
  }

  #compareAndSet(key: string): KeyTxn {
    const last = this.#last.get(key) ?? null;
    const value = this.#values.next(this.#name);
    if (last === null) return compareAndSet(key, { absent: true }, value, true);
    const { modRevision } = last;
    return this.#stage.dice.chance(0.5) && modRevision !== undefined
      ? compareAndSet(key, { modRevision }, value, true)
      : compareAndSet(key, { value: last.value }, value, true);
  }

  /** Moves two keys at once if one of them is as it was seen last. Always the same two: what belongs together is searched
   * together by the checker. */
  #transaction(key: string): KeyTxn {
    const other = this.#partner(key);
    const last = this.#last.get(key) ?? null;
    return {
      kind: "txn",
      compares: [{ key, target: "mod-revision", operator: "=", operand: last?.modRevision ?? 0 }],
      success: [
        { kind: "put", key, value: this.#values.next(this.#name) },
        { kind: "put", key: other, value: this.#values.next(this.#name) },
      ],
      failure: [
        { kind: "get", key },
        { kind: "get", key: other },
      ],
    };
  }

  #partner(key: string): string {
    const number = Number(key.slice(key.lastIndexOf("/") + 1));
    return `/register/${String(number ^ 1)}`;
  }

  #key(): string {
    return `/register/${String(this.#stage.dice.between(0, KEYS - 1))}`;
  }

  #learn(input: KeyInput, output: KeyOutput): void {
    const outputs = output.kind === "txn" ? output.responses : [output];
    for (const [n, step] of stepsTaken(input, output).entries()) {
      const answer = outputs[n];
      if (answer?.kind === "get") this.#last.set(step.key, answer.found);
      else if (step.kind === "delete") this.#last.set(step.key, null);
      else if (step.kind === "put" && answer?.kind === "put" && answer.revision !== undefined) {
        this.#last.set(step.key, { value: step.value, modRevision: answer.revision });
      }
    }
  }

  /** @returns whether something was written */
  #tellLedger(input: KeyInput, output: KeyOutput): boolean {
    const { ledger } = this.#stage;
    const taken = stepsTaken(input, output);
    const applied = new Set<string>();
    for (const step of taken) {
      if (step.kind !== "put" || output.revision === undefined) continue;
      applied.add(step.value);
      ledger.acknowledged(step.key, step.value, output.revision);
    }
    // The branch that was not taken never happened.
    for (const value of valuesOf(input)) if (!applied.has(value)) ledger.refused(value);
    const outputs = output.kind === "txn" ? output.responses : [output];
    for (const [n, step] of taken.entries()) {
      const answer = outputs[n];
      if (answer?.kind !== "get" || answer.found?.modRevision === undefined) continue;
      ledger.seen(step.key, answer.found.value, answer.found.modRevision);
    }
    return applied.size > 0;
  }
}
