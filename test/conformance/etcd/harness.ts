// Runs the scenarios of a client program, each of which prints one JSON line, and reports each as a test of its own.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { it } from "node:test";
import { run } from "../../support/run.ts";

/** The line that a program prints for a scenario; `etcd-conformance` and the python script speak it alike. */
export interface ScenarioResult {
  readonly name: string;
  readonly ok: boolean;
  /** Why it did not run. */
  readonly skipped?: string;
  readonly error?: string;
  readonly detail?: string;
}

/** A program with scenarios. All of them understand `-list`, `-run REGEXP` and `-endpoints HOST:PORT,...`. */
export interface ScenarioProgram {
  readonly command: string;
  /** What comes before the flags. */
  readonly args: readonly string[];
  readonly cwd?: string;
  /** Added to our own environment. */
  readonly env?: Readonly<Record<string, string>>;
}

function parse(line: string): ScenarioResult | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as ScenarioResult;
  } catch {
    return undefined;
  }
}

/** The names that `-list` prints. Throws when the program cannot be run. */
export async function scenarioNames(program: ScenarioProgram): Promise<readonly string[]> {
  const { code, out, err } = await run(program.command, [...program.args, "-list"], {
    ...(program.cwd === undefined ? {} : { cwd: program.cwd }),
    env: { ...process.env, ...program.env },
  });
  if (code !== 0) throw new Error(`${program.command} -list ended with ${String(code)}: ${err}`);
  return out.trim().split("\n");
}

/** One run of a program: who waits for a scenario gets its line, or an error when the run ends without one. */
export class ScenarioRun {
  readonly #waiting = new Map<string, PromiseWithResolvers<ScenarioResult>>();
  readonly #ended: Promise<void>;

  constructor(program: ScenarioProgram, flags: readonly string[], names: readonly string[]) {
    for (const name of names) {
      const result = Promise.withResolvers<ScenarioResult>();
      result.promise.catch(() => undefined); // Told to whoever waits; nobody may.
      this.#waiting.set(name, result);
    }
    const child = spawn(program.command, [...program.args, ...flags], {
      stdio: ["ignore", "pipe", "pipe"],
      cwd: program.cwd,
      env: { ...process.env, ...program.env },
    });
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (said = (said + text).slice(-4_000)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const result = parse(line);
      if (result !== undefined) this.#waiting.get(result.name)?.resolve(result);
    });
    this.#ended = new Promise((resolve) => {
      const end = (how: string): void => {
        const error = new Error(`${program.command} ended (${how}) without a verdict on it: ${said}`);
        for (const result of this.#waiting.values()) result.reject(error);
        resolve();
      };
      child.once("error", (error) => end(error.message));
      child.once("close", (code, signal) => end(String(code ?? signal)));
    });
  }

  result(name: string): Promise<ScenarioResult> {
    const waiting = this.#waiting.get(name);
    if (waiting === undefined) throw new TypeError(`no scenario ${name}`);
    return waiting.promise;
  }

  ended(): Promise<void> {
    return this.#ended;
  }
}

/** LOCKSTEP_ETCD_RUN selects scenarios by a regular expression of their names. */
const only = process.env["LOCKSTEP_ETCD_RUN"];

/** Those of the names that are asked for. */
export const chosenOf = (names: readonly string[]): readonly string[] =>
  only === undefined ? names : names.filter((name) => new RegExp(only).test(name));

/**
 * Declares a test for each of the names, within a `describe` whose `before` starts the target. One run of the program
 * serves them all; it begins with the first one, and `flags` is asked then.
 */
export function declareScenarios(
  program: ScenarioProgram,
  names: readonly string[],
  flags: () => readonly string[],
): void {
  let started: ScenarioRun | undefined;
  for (const name of names) {
    it(name, async (t) => {
      const narrowed = only === undefined ? [] : ["-run", only];
      started ??= new ScenarioRun(program, [...narrowed, ...flags()], names);
      const result = await started.result(name);
      if (result.detail !== undefined) t.diagnostic(result.detail);
      if (result.skipped !== undefined) t.skip(result.skipped);
      if (!result.ok) throw new Error(`${result.error ?? "it failed"}\nalone: LOCKSTEP_ETCD_RUN='^${name}$'`);
    });
  }
}
