// Runs scenarios, one after the other, on one cluster.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "./cluster.ts";
import { writeDiagnostics } from "./diagnostics.ts";
import { E2eError } from "./error.ts";
import type { Archive, ImageBuilder, ProjectImages } from "./images.ts";
import { formatDuration, type Say } from "./progress.ts";
import type { Scenario, ScenarioContext } from "./scenario.ts";
import type { Outcome } from "./summary.ts";
import { until } from "./waiting.ts";

const NAMESPACE_END_MS = 120_000;
/** What a scenario whose time is over may take to notice, before the run goes on without it. */
const NOTICE_MS = 15_000;

/** What a run is given. */
export interface RunInputs {
  readonly cluster: Cluster;
  readonly images: ImageBuilder;
  readonly say: Say;
  /** A folder for artifacts and diagnostics, one below it for each scenario. */
  readonly artifacts: string;
  /** Ends the run. */
  readonly signal: AbortSignal;
  /** After a failure: leave everything as it is and run nothing more. */
  readonly stopAtFailure: boolean;
}

/** Runs them in order. Between two, the cluster is put in order again; when that fails nothing more runs. */
export async function runScenarios(
  scenarios: readonly Scenario[],
  inputs: RunInputs,
): Promise<readonly Outcome[]> {
  const shared = new SharedImages(inputs);
  const outcomes: Outcome[] = [];
  // A function, for the answer changes while a scenario runs.
  const interrupted = (): boolean => inputs.signal.aborted;
  let ended = false;
  for (const scenario of scenarios) {
    if (ended || interrupted()) {
      outcomes.push({ name: scenario.name, result: "not run", seconds: 0 });
      continue;
    }
    const outcome = await new ScenarioRun(scenario, inputs, shared).run();
    outcomes.push(outcome);
    ended = outcome.result === "failed" && inputs.stopAtFailure;
    if (!ended && !interrupted()) ended = !(await putInOrder(inputs));
  }
  return outcomes;
}

async function putInOrder({ cluster, say }: RunInputs): Promise<boolean> {
  try {
    await cluster.restore();
    return true;
  } catch (error) {
    say(`The cluster could not be put in order again: ${(error as Error).message}`);
    return false;
  }
}

/** Images that every scenario may ask for, made and imported by the first that does. */
class SharedImages {
  readonly #inputs: RunInputs;
  #runBase: Promise<Archive> | undefined;
  #project: Promise<ProjectImages> | undefined;

  constructor(inputs: RunInputs) {
    this.#inputs = inputs;
  }

  runBase(): Promise<Archive> {
    return (this.#runBase ??= this.#import(this.#inputs.images.runBase()));
  }

  project(): Promise<ProjectImages> {
    return (this.#project ??= this.#importProject());
  }

  async #importProject(): Promise<ProjectImages> {
    const images = await this.#inputs.images.project();
    await this.#import(Promise.resolve(images.cell));
    await this.#import(Promise.resolve(images.operator));
    return images;
  }

  async #import(built: Promise<Archive>): Promise<Archive> {
    const archive = await built;
    const started = performance.now();
    await this.#inputs.cluster.importImage(archive);
    this.#inputs.say(
      `imported ${archive.image} into every node in ${formatDuration(performance.now() - started)}`,
    );
    return archive;
  }
}

class ScenarioRun {
  readonly #scenario: Scenario;
  readonly #inputs: RunInputs;
  readonly #shared: SharedImages;
  readonly #namespace: string;
  readonly #artifacts: string;
  readonly #undo: (() => Promise<void> | void)[] = [];

  constructor(scenario: Scenario, inputs: RunInputs, shared: SharedImages) {
    this.#scenario = scenario;
    this.#inputs = inputs;
    this.#shared = shared;
    this.#namespace = `e2e-${scenario.name}`;
    this.#artifacts = join(inputs.artifacts, scenario.name);
  }

  async run(): Promise<Outcome> {
    const { say, stopAtFailure } = this.#inputs;
    const { name, about } = this.#scenario;
    say(`\n── ${name}: ${about}`);
    mkdirSync(this.#artifacts, { recursive: true });
    const unbuilt = await this.#prepare();
    const started = performance.now();
    const failure = unbuilt ?? (await this.#attempt());
    const seconds = (performance.now() - started) / 1000;
    if (failure === undefined) say(`✓ ${name} (${seconds.toFixed(1)} s)`);
    else await this.#report(failure, seconds);
    if (failure !== undefined && stopAtFailure) return { name, result: "failed", seconds };
    const untidy = await this.#tidy();
    if (untidy !== undefined && failure === undefined) await this.#report(untidy, seconds);
    return { name, result: failure === undefined && untidy === undefined ? "passed" : "failed", seconds };
  }

  /** The first that needs images waits for them, for minutes at times: that is none of its own time. */
  async #prepare(): Promise<Error | undefined> {
    if (this.#scenario.images === "none") return undefined;
    try {
      await this.#shared.project();
      return undefined;
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  async #attempt(): Promise<Error | undefined> {
    const limit = AbortSignal.timeout(this.#scenario.minutes * 60_000);
    const signal = AbortSignal.any([limit, this.#inputs.signal]);
    const overdue = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => {
        const why = limit.aborted
          ? new E2eError("timeout", `its ${String(this.#scenario.minutes)} minutes are over`)
          : new E2eError("interrupted", "the run was interrupted");
        // First choice is the scenario's own error: it says what it was waiting for.
        void delay(NOTICE_MS, undefined, { ref: false }).then(() => reject(why));
      });
    });
    try {
      await this.#inputs.cluster.kubectl(["create", "namespace", this.#namespace], { signal });
      await Promise.race([this.#scenario.run(this.#context(signal)), overdue]);
      return signal.aborted ? new E2eError("timeout", "it ended only after its time was over") : undefined;
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  async #report(failure: Error, seconds: number): Promise<void> {
    const { say, cluster } = this.#inputs;
    say(`✗ ${this.#scenario.name} (${seconds.toFixed(1)} s)\n${failure.stack ?? failure.message}`);
    if (this.#inputs.signal.aborted) return;
    await writeDiagnostics(cluster, this.#namespace, this.#artifacts);
    say(`what the cluster looked like: ${this.#artifacts}`);
  }

  /** Undoes what the scenario asked to undo, and removes its namespace. Returns what went wrong. */
  async #tidy(): Promise<Error | undefined> {
    let first: Error | undefined;
    for (const undo of this.#undo.toReversed()) {
      try {
        await undo();
      } catch (error) {
        first ??= error as Error;
      }
    }
    if (this.#inputs.signal.aborted) return first;
    try {
      // A control plane that the scenario has stopped could not remove anything.
      await this.#inputs.cluster.controlPlane.restore();
      await this.#removeNamespace();
    } catch (error) {
      first ??= error as Error;
    }
    return first;
  }

  async #removeNamespace(): Promise<void> {
    const { cluster } = this.#inputs;
    const seconds = String(NAMESPACE_END_MS / 1000);
    await cluster.kubectl(
      ["delete", "namespace", this.#namespace, "--ignore-not-found", `--timeout=${seconds}s`],
      { timeoutMs: NAMESPACE_END_MS + 10_000 },
    );
  }

  #context(signal: AbortSignal): ScenarioContext {
    const { cluster, say, images } = this.#inputs;
    const namespaced = (args: readonly string[]): readonly string[] => [
      `--namespace=${this.#namespace}`,
      ...args,
    ];
    return {
      cluster,
      namespace: this.#namespace,
      signal,
      say: (line) => say(`  ${line}`),
      images,
      artifacts: this.#artifacts,
      kubectl: (args, options) => cluster.kubectl(namespaced(args), { signal, ...options }),
      kubectlJson: <T>(args: readonly string[], options = {}) =>
        cluster.kubectlJson<T>(namespaced(args), { signal, ...options }),
      apply: async (...objects) => {
        const list = { apiVersion: "v1", kind: "List", items: objects };
        await cluster.kubectl(namespaced(["apply", "-f", "-"]), { signal, input: JSON.stringify(list) });
      },
      until: (what, attempt, options) => until(what, attempt, { signal, ...options }),
      finally: (undo) => void this.#undo.push(undo),
      runBase: () => this.#shared.runBase(),
      projectImages: () => this.#shared.project(),
    };
  }
}
