/**
 * Cases over many targets, run in a thread of their own: one that hangs is ended, one that takes all memory ends
 * itself, and the campaign goes on behind it.
 */
import { Worker } from "node:worker_threads";
import type { Finding, FindingKind, Tally, Target } from "./contract.ts";
import { emptyTally, inputOf, type Job } from "./runner.ts";
import { PROGRESS, type WorkerInput, type WorkerMessage } from "./worker.ts";

/** A single case takes microseconds; a machine with other work may stall it for a while. */
const HANG_MS_DEFAULT = 10_000;
const LOOK_MS = 50;
/** Enough for the thread's modules and any honest case. */
const HEAP_MB_DEFAULT = 512;

export interface CampaignOptions {
  /** Module that exports `TARGETS`, as an URL. */
  readonly module: string;
  readonly targets: readonly Target[];
  readonly seed: number;
  readonly jobs: readonly Job[];
  /** A case that has not ended after this hangs. Default 10 s. */
  readonly hangMs?: number;
  /** A case that needs more heap ends its thread. Default 512 MB. */
  readonly heapMb?: number;
  /** Told after each target. */
  readonly progress?: (tally: Tally) => void;
}

export interface CampaignResult {
  readonly tallies: readonly Tally[];
  readonly findings: readonly Finding[];
}

/** Cases shared out by weight; every target gets at least one. */
export function shareOut(targets: readonly Target[], cases: number): Job[] {
  const weights = targets.reduce((sum, { weight }) => sum + weight, 0);
  let shared = 0;
  const jobs = targets.map(({ name, weight }) => {
    const count = Math.max(1, Math.floor((cases * weight) / weights));
    shared += count;
    return { target: name, first: 0, count };
  });
  const [largest] = [...jobs].sort((a, b) => b.count - a.count);
  return jobs.map((job) =>
    job === largest ? { ...job, count: job.count + Math.max(0, cases - shared) } : job,
  );
}

export async function runCampaign(options: CampaignOptions): Promise<CampaignResult> {
  const tallies: Tally[] = [];
  const findings: Finding[] = [];
  let jobs = options.jobs;
  while (jobs.length > 0) jobs = await runThread(options, jobs, { tallies, findings });
  return { tallies: merged(tallies), findings };
}

interface Gathered {
  readonly tallies: Tally[];
  readonly findings: Finding[];
}

/** @returns the jobs left when the thread had to end early. */
async function runThread(options: CampaignOptions, jobs: readonly Job[], gathered: Gathered): Promise<Job[]> {
  const progress = new SharedArrayBuffer(PROGRESS.places * Float64Array.BYTES_PER_ELEMENT);
  const seen = new Float64Array(progress);
  const input: WorkerInput = { targets: options.module, seed: options.seed, jobs, progress };
  const worker = new Worker(new URL("./worker.ts", import.meta.url), {
    workerData: input,
    resourceLimits: { maxOldGenerationSizeMb: options.heapMb ?? HEAP_MB_DEFAULT },
  });
  const ended = await outcomeOf(worker, seen, options, gathered);
  if (ended === undefined) return [];
  return blame({ options, jobs, seen, gathered }, ended);
}

interface Ended {
  readonly kind: FindingKind;
  readonly why: string;
}

/** undefined: it came to its end. */
function outcomeOf(
  worker: Worker,
  seen: Float64Array,
  options: CampaignOptions,
  { tallies, findings }: Gathered,
): Promise<Ended | undefined> {
  const { hangMs = HANG_MS_DEFAULT } = options;
  return new Promise((resolve) => {
    let over = false;
    let ticks = -1;
    let stillMs = 0;
    const timer = setInterval(() => {
      const now = seen[PROGRESS.ticks] ?? 0;
      stillMs = now === ticks && now > 0 ? stillMs + LOOK_MS : 0;
      ticks = now;
      if (stillMs >= hangMs) void settle({ kind: "hang", why: `not done after ${hangMs} ms` });
    }, LOOK_MS);
    const settle = async (outcome: Ended | undefined): Promise<void> => {
      // Ending the thread makes it leave, which is no news then.
      if (over) return;
      over = true;
      clearInterval(timer);
      await worker.terminate();
      resolve(outcome);
    };
    worker.on("message", (message: WorkerMessage) => {
      if (message.kind === "finding") findings.push(message.finding);
      else if (message.kind === "done") void settle(undefined);
      else {
        tallies.push(message.tally);
        options.progress?.(message.tally);
      }
    });
    worker.on("error", (thrown: unknown) => {
      const error = thrown as Error & { readonly code?: string };
      const kind = error.code === "ERR_WORKER_OUT_OF_MEMORY" ? "memory" : "crash";
      void settle({ kind, why: `the thread ended: ${error.stack ?? error.message}` });
    });
    worker.on("exit", (code) => void settle({ kind: "crash", why: `the thread left with code ${code}` }));
  });
}

interface Interrupted {
  readonly options: CampaignOptions;
  readonly jobs: readonly Job[];
  readonly seen: Float64Array;
  readonly gathered: Gathered;
}

/** The case that the thread stood at is the finding; what comes behind it is left to do. */
function blame({ options, jobs, seen, gathered }: Interrupted, { kind, why }: Ended): Job[] {
  const at = seen[PROGRESS.job] ?? 0;
  const index = seen[PROGRESS.index] ?? 0;
  const job = jobs[at];
  const target = options.targets.find(({ name }) => name === job?.target);
  if (job === undefined || target === undefined || (seen[PROGRESS.ticks] ?? 0) === 0) {
    throw new Error(`the thread ended before its first case: ${why}`);
  }
  const hex = inputOf(target, options.seed, index).bytes.toString("hex");
  gathered.findings.push({ target: target.name, seed: options.seed, index, kind, why, hex });
  const tally = emptyTally(target.name);
  tally.cases = (seen[PROGRESS.cases] ?? 0) + 1;
  tally.accepted = seen[PROGRESS.accepted] ?? 0;
  tally.refused = seen[PROGRESS.refused] ?? 0;
  gathered.tallies.push(tally);
  const count = job.first + job.count - index - 1;
  const rest = jobs.slice(at + 1);
  return count > 0 ? [{ ...job, first: index + 1, count }, ...rest] : rest;
}

function merged(tallies: readonly Tally[]): Tally[] {
  const byTarget = new Map<string, Tally>();
  for (const tally of tallies) {
    const sum = byTarget.get(tally.target);
    if (sum === undefined) {
      byTarget.set(tally.target, { ...tally });
      continue;
    }
    if (tally.slowestMs > sum.slowestMs) sum.slowestIndex = tally.slowestIndex;
    sum.slowestMs = Math.max(sum.slowestMs, tally.slowestMs);
    sum.allocatedMax = Math.max(sum.allocatedMax, tally.allocatedMax);
    sum.cases += tally.cases;
    sum.accepted += tally.accepted;
    sum.refused += tally.refused;
    sum.elapsedMs += tally.elapsedMs;
  }
  return [...byTarget.values()];
}
