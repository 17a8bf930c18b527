import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describeError, withCluster } from "../context.ts";
import type { BenchContext } from "../context.ts";
import { runToEnd } from "../processes.ts";
import { median } from "../table.ts";

/** Fresh processes of each kind; medians are told. */
const STARTS = 15;
const BUILD = join(import.meta.dirname, "../../../scripts/build.ts");
const PROGRAM = join(import.meta.dirname, "../startup/program.ts");

type Where = "thread" | "main";

/** Of one start, one after the other. */
interface Parts {
  /** `import("@lockstep/client")`. */
  readonly importMs: number;
  /** From the call of `connect` until the thread runs; 0 without one. */
  readonly threadMs: number;
  /** From then until a member has greeted. */
  readonly connectedMs: number;
  /** A linearizable read. */
  readonly firstAnswerMs: number;
  readonly totalMs: number;
}

/** How long a program waits for its first answer, from the moment it asks for the library. */
export interface StartupResult {
  /** Where the client's connection lives. */
  readonly where: Where;
  /** Medians, each of its own part: they do not add up to that of the whole. Absent: the run failed. */
  readonly parts?: Parts;
  readonly fastestMs?: number;
  readonly slowestMs?: number;
  readonly failure?: string;
}

/** The client as it is published, in the project of somebody who has installed it. @returns the program there */
async function makeProject(directory: string): Promise<string> {
  const packages = join(directory, "packages");
  const project = join(directory, "project");
  mkdirSync(join(project, "node_modules/@lockstep"), { recursive: true });
  await runToEnd({
    command: process.execPath,
    args: [BUILD, "--packages", packages],
    logFile: join(directory, "build.log"),
  });
  cpSync(join(packages, "client"), join(project, "node_modules/@lockstep/client"), { recursive: true });
  cpSync(PROGRAM, join(project, "program.ts"));
  writeFileSync(join(project, "package.json"), '{ "type": "module" }\n');
  return join(project, "program.ts");
}

async function startOnce(program: string, endpoint: string, where: Where): Promise<Parts> {
  const out = await runToEnd({
    command: process.execPath,
    args: [program, endpoint, where],
    logFile: `${program}.log`,
  });
  return JSON.parse(out) as Parts;
}

function summaryOf(where: Where, starts: readonly Parts[]): StartupResult {
  const middle = (part: keyof Parts): number => median(starts.map((start) => start[part]));
  const totals = starts.map((start) => start.totalMs);
  const parts = {
    importMs: middle("importMs"),
    threadMs: middle("threadMs"),
    connectedMs: middle("connectedMs"),
    firstAnswerMs: middle("firstAnswerMs"),
    totalMs: middle("totalMs"),
  };
  return { where, parts, fastestMs: Math.min(...totals), slowestMs: Math.max(...totals) };
}

/** Programs that begin, with the connection in a thread (the default) and without, in turn. Lockstep only. */
export async function runStartup(context: BenchContext): Promise<readonly StartupResult[]> {
  const { options, say } = context;
  if (!options.systems.includes("lockstep")) return [];
  say(`startup: ${String(STARTS)} programs with a thread, and as many without`);
  const name = "startup";
  return withCluster({ system: "lockstep", name }, context, async ({ cluster, directory }) => {
    try {
      const program = await makeProject(directory);
      const endpoint = (await cluster.leader()).spec.endpoint;
      const starts = { thread: [] as Parts[], main: [] as Parts[] };
      for (let start = 0; start < STARTS; start += 1) {
        starts.thread.push(await startOnce(program, endpoint, "thread"));
        starts.main.push(await startOnce(program, endpoint, "main"));
      }
      return [summaryOf("thread", starts.thread), summaryOf("main", starts.main)];
    } catch (error) {
      return [{ where: "thread", failure: describeError(error) }];
    }
  });
}
