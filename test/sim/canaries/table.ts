import { CANARIES, findCanary, isExpectedLaw } from "./canaries.ts";
import type { Canary } from "./canaries.ts";

export interface CanaryViolation {
  readonly seed: number;
  /** Id of the invariant that fired. */
  readonly law: string;
  readonly text: string;
}

/**
 * Runs the seeds from `fromSeed` to `toSeed`, both included, in a child process that carries the canary, up to the
 * first violation. undefined: all of them passed. Rejects when the child could not do that; then nothing is known.
 */
export type RunCanary = (
  canary: Canary,
  fromSeed: number,
  toSeed: number,
) => Promise<CanaryViolation | undefined>;

export interface CanaryOptions {
  /** Seeds 1 to this are tried before a canary counts as not caught. */
  readonly seedsMax: number;
  /** Canaries that run at the same time. */
  readonly jobs: number;
  /** Names; absent or empty: all. */
  readonly only?: readonly string[];
  readonly run: RunCanary;
}

export type CanaryResult =
  | { readonly kind: "caught"; readonly canary: Canary; readonly violation: CanaryViolation }
  | { readonly kind: "not-caught"; readonly canary: Canary; readonly seeds: number }
  /** The run itself failed: neither caught nor not. */
  | { readonly kind: "broken"; readonly canary: Canary; readonly reason: string };

/** Most canaries die within a few seeds: the first child gets few, each next one twice as many. */
const CHUNK_FIRST = 8;
const CHUNK_MAX = 256;

/**
 * Looks for the first seed that catches each canary. The answer is in the order of the table, whatever finishes first.
 *
 * @throws {TypeError} for a name that is no canary's
 */
export async function runCanaries(options: CanaryOptions): Promise<readonly CanaryResult[]> {
  const { only = [], jobs } = options;
  const wanted = only.length === 0 ? CANARIES : only.map(findCanary);
  const results: CanaryResult[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    for (let at = next++; at < wanted.length; at = next++) {
      const canary = wanted[at];
      if (canary !== undefined) results[at] = await runOne(canary, options);
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(jobs, wanted.length)) }, work));
  return results;
}

async function runOne(canary: Canary, { seedsMax, run }: CanaryOptions): Promise<CanaryResult> {
  let chunk = CHUNK_FIRST;
  let from = 1;
  while (from <= seedsMax) {
    const to = Math.min(seedsMax, from + chunk - 1);
    try {
      const violation = await run(canary, from, to);
      if (violation !== undefined) return { kind: "caught", canary, violation };
    } catch (error) {
      return { kind: "broken", canary, reason: error instanceof Error ? error.message : String(error) };
    }
    from = to + 1;
    chunk = Math.min(CHUNK_MAX, chunk * 2);
  }
  return { kind: "not-caught", canary, seeds: seedsMax };
}

/** Whether every canary was caught, by whatever law. */
export function allCaught(results: readonly CanaryResult[]): boolean {
  return results.every((result) => result.kind === "caught");
}

/**
 * One line for each canary: its name, the seeds it took, the invariant that caught it, and the bug. A law that was not
 * expected is marked with those that were: it caught the bug, but a checker that should have may be asleep.
 */
export function renderTable(results: readonly CanaryResult[]): string {
  const rows = [["canary", "seeds", "caught by", "bug"], ...results.map(row)];
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0)));
  const lines = rows.map((cells) =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
  const caught = results.filter((result) => result.kind === "caught").length;
  return [...lines, "", `${caught} of ${results.length} canaries caught`].join("\n");
}

function row(result: CanaryResult): readonly string[] {
  const { name, bug } = result.canary;
  switch (result.kind) {
    case "caught":
      return [name, String(result.violation.seed), lawText(result.canary, result.violation.law), bug];
    case "not-caught":
      return [name, `>${result.seeds}`, "NOT CAUGHT", bug];
    case "broken":
      return [name, "-", `BROKEN: ${firstLine(result.reason)}`, bug];
  }
}

function lawText(canary: Canary, law: string): string {
  return isExpectedLaw(canary, law) ? law : `${law} (expected ${canary.laws.join(", ")})`;
}

function firstLine(text: string): string {
  return text.split("\n", 1)[0] ?? "";
}
