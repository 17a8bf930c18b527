/** What helps a person with a history that has no linearization. */
import type { Model, Operation, Problem } from "./operation.ts";
import { Search } from "./search.ts";

/** Bounds of the search for a core: how many smaller histories, and how many steps for each. */
const TRIALS_MAX = 400;
const TRIAL_STEPS_MAX = 20_000;
/** Of the longest prefix, the end is what matters. */
const PREFIX_LINES_MAX = 12;
const STUCK_LINES_MAX = 12;

/**
 * Few members that are a violation already when the outcome of every other one is taken to be unknown. That asks for
 * less, so that what is left is to blame for certain; it may not be the smallest such set.
 *
 * @returns positions by invocation; those at the end whose outcome does not matter, but whose effect was seen, included
 */
export function coreOf<Input, Output, State>(
  model: Model<Input, Output, State>,
  operations: readonly Operation<Input, Output>[],
  { name, members }: Problem<State>,
): readonly number[] {
  let trials = TRIALS_MAX;
  const inPart = new Set(members);
  const problemWith = (firm: ReadonlySet<number>): { problem: Problem<State> | undefined; bad: boolean } => {
    trials -= 1;
    const relaxed = operations.map((operation, index) =>
      inPart.has(index) && !firm.has(index)
        ? { ...operation, outcome: { kind: "unknown" as const } }
        : operation,
    );
    const problem = model.problems(relaxed).find((one) => one.name === name);
    if (problem === undefined) return { problem, bad: false };
    const search = new Search(problem, (member) => operations[member]!.invokedAt, TRIAL_STEPS_MAX);
    return { problem, bad: search.run().kind === "violation" };
  };
  const returnOf = (member: number): number => {
    const { outcome } = operations[member]!;
    return outcome.kind === "ok" ? outcome.returnedAt : Infinity;
  };
  const byReturn = members
    .filter((member) => operations[member]!.outcome.kind === "ok")
    .sort((a, b) => returnOf(a) - returnOf(b) || a - b);
  let firm = shortestPrefix(byReturn, (some) => problemWith(new Set(some)).bad);
  for (let size = Math.ceil(firm.length / 2); size >= 1 && trials > 0; size = nextSize(size)) {
    for (let from = firm.length - size; from > -size && trials > 0; from -= size) {
      const rest = firm.filter((_, at) => at < from || at >= from + size);
      if (problemWith(new Set(rest)).bad) firm = rest;
    }
  }
  const { problem } = problemWith(new Set(firm));
  const kept = new Set(firm);
  const seen = members.filter((member) => kept.has(member) || problem?.must(member) === true);
  return seen.sort((a, b) => operations[a]!.invokedAt - operations[b]!.invokedAt || a - b);
}

function nextSize(size: number): number {
  return size === 1 ? 0 : Math.ceil(size / 2);
}

/** By bisection: with more answers a bad history stays bad. */
function shortestPrefix(
  members: readonly number[],
  bad: (some: readonly number[]) => boolean,
): readonly number[] {
  let low = 0;
  let high = members.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (bad(members.slice(0, middle))) high = middle;
    else low = middle + 1;
  }
  return members.slice(0, high);
}

export interface Explained<Input, Output> {
  readonly part: string;
  readonly prefix: readonly Operation<Input, Output>[];
  readonly stuck: readonly Operation<Input, Output>[];
  readonly core: readonly Operation<Input, Output>[];
  /** One for each of {@link stuck}; empty: it would fit, and what follows would not. */
  readonly reasons: readonly string[];
  readonly state: string;
}

export function explanation<Input, Output>(
  { part, prefix, stuck, core, reasons, state }: Explained<Input, Output>,
  describe: (operation: Operation<Input, Output>) => string,
): string {
  const lines = [`not linearizable: ${part}`];
  if (core.length > 0) {
    lines.push(`these ${core.length} contradict each other, whatever became of all others:`);
    lines.push(...core.map((operation) => `  ${describe(operation)}`));
  }
  lines.push(`the longest order that fits places ${prefix.length}, at the end:`);
  if (prefix.length > PREFIX_LINES_MAX) lines.push("  ...");
  lines.push(...prefix.slice(-PREFIX_LINES_MAX).map((operation) => `  ${describe(operation)}`));
  lines.push(`after it: ${state}`, "and what is under way then does not fit:");
  for (const [index, operation] of stuck.slice(0, STUCK_LINES_MAX).entries()) {
    const reason = reasons[index] ?? "";
    lines.push(`  ${describe(operation)}`);
    lines.push(`    ${reason === "" ? "fits here, but then others never do" : reason}`);
  }
  if (stuck.length > STUCK_LINES_MAX) lines.push(`  ... and ${stuck.length - STUCK_LINES_MAX} more`);
  return lines.join("\n");
}
