import { join } from "node:path";
import { describeError, inThousands, scaled, withCluster } from "../context.ts";
import type { BenchContext, Running } from "../context.ts";
import type { LocksReport } from "../native/locks-report.ts";
import { runToEnd } from "../processes.ts";

const LOCKS = 10_000;
const HAND_OVERS = 2_000;
const MAIN = join(import.meta.dirname, "../native/locks-main.ts");

export interface LocksResult {
  readonly report?: LocksReport;
  readonly failure?: string;
}

/** One client process that holds 10,000 locks over one session, and hands some over. */
export async function runLocks(context: BenchContext): Promise<readonly LocksResult[]> {
  const { options, say } = context;
  if (!options.systems.includes("lockstep")) return [];
  say(`locks: ${inThousands(scaled(options, LOCKS))} in one process over one session, and hand-overs`);
  try {
    const report = await withCluster({ system: "lockstep", name: "locks" }, context, measure);
    return [{ report }];
  } catch (error) {
    say(`  FAILED: ${describeError(error)}`);
    return [{ failure: describeError(error) }];
  }
}

async function measure({ cluster, directory, context }: Running): Promise<LocksReport> {
  const { options } = context;
  const output = await runToEnd({
    command: process.execPath,
    args: [
      ...["--expose-gc", MAIN, "--endpoints", cluster.endpoints.join(",")],
      ...["--locks", String(scaled(options, LOCKS)), "--hand-overs", String(scaled(options, HAND_OVERS))],
    ],
    logFile: join(directory, "locks.log"),
    onLine: () => undefined,
  });
  return JSON.parse(output.trimEnd().split("\n").at(-1) ?? "") as LocksReport;
}
