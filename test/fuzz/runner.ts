/** Runs cases of one target in this thread, and judges them. A case that never ends is the campaign's to notice. */
import { performance } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import {
  ALLOCATED_BASE_BYTES,
  ALLOCATED_PER_BYTE,
  BrokenLaw,
  CASE_MS_MAX,
  type Finding,
  type FindingKind,
  type Input,
  type Tally,
  type Target,
} from "./contract.ts";
import { Dice } from "./generate/dice.ts";

/** More findings of one target say nothing new; its other cases still count. */
const FINDINGS_PER_TARGET_MAX = 5;
/** A busy machine or a collection is over when the case is run again; a slow decoder is not. */
const REPEATS = 3;

export function inputOf(target: Target, seed: number, index: number): Input {
  return target.generate(new Dice(target.name, seed, index));
}

export function emptyTally(target: string): Tally {
  return {
    target,
    cases: 0,
    accepted: 0,
    refused: 0,
    slowestMs: 0,
    slowestIndex: 0,
    allocatedMax: 0,
    elapsedMs: 0,
  };
}

interface Measured {
  readonly outcome: { readonly value: unknown } | { readonly error: unknown };
  readonly ms: number;
  readonly allocated: number;
}

function heapBytes(): number {
  const { used_heap_size: used, external_memory: external } = getHeapStatistics();
  return used + external;
}

/** Not `async`: most decoders answer at once, and a promise for each case would cost more than the case. */
function measure(target: Target, bytes: Buffer): Measured | Promise<Measured> {
  const heapBefore = heapBytes();
  const started = performance.now();
  const end = (outcome: Measured["outcome"]): Measured => {
    const ms = performance.now() - started;
    return { outcome, ms, allocated: heapBytes() - heapBefore };
  };
  try {
    const value = target.decode(bytes);
    if (!(value instanceof Promise)) return end({ value });
    return value.then(
      (settled: unknown) => end({ value: settled }),
      (error: unknown) => end({ error }),
    );
  } catch (error) {
    return end({ error });
  }
}

export interface Problem {
  readonly kind: FindingKind;
  readonly why: string;
}

/** The verdict on one case. */
export interface Judged {
  readonly accepted: boolean;
  readonly ms: number;
  readonly allocated: number;
  readonly problem: Problem | undefined;
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return `threw ${String(error)}`;
  return (error.stack ?? error.message).split("\n").slice(0, 6).join("\n");
}

/** The least of several runs, in time that this thread had a processor for. */
async function measureAgain(target: Target, bytes: Buffer, first: Measured): Promise<Measured> {
  let { ms, allocated } = first;
  for (let i = 0; i < REPEATS; i++) {
    const before = process.threadCpuUsage();
    const again = await measure(target, bytes);
    const { user, system } = process.threadCpuUsage(before);
    ms = Math.min(ms, again.ms, (user + system) / 1000);
    allocated = Math.min(allocated, again.allocated);
  }
  return { outcome: first.outcome, ms, allocated };
}

function excess({ bounds = {} }: Target, bytes: Buffer, { ms, allocated }: Measured): Problem | undefined {
  const msMax = bounds.ms ?? CASE_MS_MAX;
  if (ms > msMax)
    return { kind: "hang", why: `${ms.toFixed(0)} ms for ${bytes.length} bytes, at most ${msMax}` };
  const base = bounds.allocatedBytes ?? ALLOCATED_BASE_BYTES;
  const allowed = base + bytes.length * (bounds.allocatedPerByte ?? ALLOCATED_PER_BYTE);
  if (allocated <= allowed) return undefined;
  return { kind: "memory", why: `${allocated} bytes allocated for ${bytes.length}, at most ${allowed}` };
}

function lawProblem(error: unknown): Problem {
  return { kind: "law", why: error instanceof BrokenLaw ? error.message : describe(error) };
}

/** What is wrong with how the case ended; what a law says about an accepted value may take a promise. */
function judgeOutcome(
  target: Target,
  input: Input,
  { outcome }: Measured,
): Problem | undefined | Promise<Problem | undefined> {
  if ("error" in outcome) {
    const { error } = outcome;
    if (!target.refused(error)) return { kind: "crash", why: describe(error) };
    return input.valid ? { kind: "law", why: `what is valid was refused: ${describe(error)}` } : undefined;
  }
  if (target.check === undefined) return undefined;
  try {
    const checked = target.check(outcome.value, input);
    if (!(checked instanceof Promise)) return undefined;
    return checked.then(
      () => undefined,
      (error: unknown) => lawProblem(error),
    );
  } catch (error) {
    return lawProblem(error);
  }
}

/** Runs one case, whatever made its input. */
export async function judge(target: Target, input: Input): Promise<Judged> {
  const first = measure(target, input.bytes);
  return finishJudging(target, input, first instanceof Promise ? await first : first);
}

async function finishJudging(target: Target, input: Input, first: Measured): Promise<Judged> {
  let measured = first;
  if (excess(target, input.bytes, measured) !== undefined) {
    measured = await measureAgain(target, input.bytes, measured);
  }
  const { ms, allocated } = measured;
  const problem = excess(target, input.bytes, measured) ?? (await judgeOutcome(target, input, measured));
  return { accepted: "value" in measured.outcome, ms, allocated, problem };
}

/** The same at once, for the usual case; undefined: it needs a promise. */
function judgeNow(target: Target, input: Input, measured: Measured): Judged | undefined {
  if (excess(target, input.bytes, measured) !== undefined) return undefined;
  const problem = judgeOutcome(target, input, measured);
  if (problem instanceof Promise) return undefined;
  return { accepted: "value" in measured.outcome, ms: measured.ms, allocated: measured.allocated, problem };
}

/** Cases `first` to `first + count - 1` of a target. */
export interface Job {
  readonly target: string;
  readonly first: number;
  readonly count: number;
}

export interface RunHooks {
  /** Before each case: whoever watches sees that the last one ended. */
  begun(index: number, tally: Tally): void;
  found(finding: Finding): void;
}

export async function runJob(target: Target, job: Job, seed: number, hooks: RunHooks): Promise<Tally> {
  const tally = emptyTally(target.name);
  const started = performance.now();
  let findings = 0;
  for (let index = job.first; index < job.first + job.count; index++) {
    hooks.begun(index, tally);
    const input = inputOf(target, seed, index);
    const first = measure(target, input.bytes);
    const measured = first instanceof Promise ? await first : first;
    const judged = judgeNow(target, input, measured) ?? (await finishJudging(target, input, measured));
    count(tally, judged, { index, bytes: input.bytes.length, target });
    if (judged.problem !== undefined && findings++ < FINDINGS_PER_TARGET_MAX) {
      const hex = input.bytes.toString("hex");
      hooks.found({ target: target.name, seed, index, ...judged.problem, hex });
    }
  }
  tally.elapsedMs = performance.now() - started;
  return tally;
}

function count(
  tally: Tally,
  { accepted, ms, allocated }: Judged,
  { index, bytes, target }: { index: number; bytes: number; target: Target },
): void {
  tally.cases += 1;
  if (accepted) tally.accepted += 1;
  else tally.refused += 1;
  if (ms > tally.slowestMs) {
    tally.slowestMs = ms;
    tally.slowestIndex = index;
  }
  const beyond = allocated - bytes * (target.bounds?.allocatedPerByte ?? ALLOCATED_PER_BYTE);
  if (beyond > tally.allocatedMax) tally.allocatedMax = beyond;
}
