/** The thread that runs the cases: a campaign can end it when a case does not end by itself. */
import { parentPort, workerData } from "node:worker_threads";
import type { Finding, Tally, Target } from "./contract.ts";
import { type Job, runJob } from "./runner.ts";

/** What a campaign hands over. */
export interface WorkerInput {
  /** Module that exports `TARGETS`. */
  readonly targets: string;
  readonly seed: number;
  readonly jobs: readonly Job[];
  /** {@link PROGRESS}: where this thread stands, readable while it hangs. */
  readonly progress: SharedArrayBuffer;
}

/** Places in the shared progress, each a float. */
export const PROGRESS = { job: 0, index: 1, cases: 2, accepted: 3, refused: 4, ticks: 5, places: 6 } as const;

export type WorkerMessage =
  | { readonly kind: "finding"; readonly finding: Finding }
  | { readonly kind: "tally"; readonly tally: Tally }
  | { readonly kind: "done" };

async function work({ targets, seed, jobs, progress }: WorkerInput): Promise<void> {
  const { TARGETS } = (await import(targets)) as { readonly TARGETS: readonly Target[] };
  const seen = new Float64Array(progress);
  // Most cases are refused with an error, and most of what that costs is its stack.
  Error.stackTraceLimit = 4;
  let ticks = 0;
  // A thread with nothing to wait for would leave when a case's promise never settles, and that is a hang.
  const alive = setInterval(() => undefined, 60_000);
  const post = (message: WorkerMessage): void => parentPort?.postMessage(message);
  for (const [at, job] of jobs.entries()) {
    const target = TARGETS.find(({ name }) => name === job.target);
    if (target === undefined) throw new TypeError(`no target ${job.target}`);
    const tally = await runJob(target, job, seed, {
      begun: (index, { cases, accepted, refused }) => {
        seen[PROGRESS.job] = at;
        seen[PROGRESS.index] = index;
        seen[PROGRESS.cases] = cases;
        seen[PROGRESS.accepted] = accepted;
        seen[PROGRESS.refused] = refused;
        seen[PROGRESS.ticks] = ++ticks;
      },
      found: (finding) => post({ kind: "finding", finding }),
    });
    post({ kind: "tally", tally });
  }
  clearInterval(alive);
  post({ kind: "done" });
}

if (parentPort !== null) await work(workerData as WorkerInput);
