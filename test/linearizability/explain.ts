/** What helps a person with a history that has no linearization. */
import type { Model, Operation, Problem } from "./operation.ts";
import { Search } from "./search.ts";

/** Bounds of the search for a core: how many smaller histories, and how many steps for each and for all. */
const TRIALS_MAX = 200;
const TRIAL_STEPS_MAX = 5_000;
const CORE_STEPS_MAX = 100_000;
/** Of the longest prefix, the end is what matters. */
const PREFIX_LINES_MAX = 12;
const STUCK_LINES_MAX = 12;

/** What is larger than this explains nothing to anybody. */
const CORE_MAX = 12;

/**
 * Few members that are a violation already when the outcome of every other one is taken to be unknown. That asks for
 * less, so that what is left is to blame for certain; it may not be the smallest such set.
 *
 * @returns positions by invocation, with those whose outcome does not matter but whose effect was seen; empty: nothing
 * small was found within bounds, as happens in long histories, where too much becomes possible with unknown outcomes
 */
export function coreOf<Input, Output, State>(
  model: Model<Input, Output, State>,
  operations: readonly Operation<Input, Output>[],
  members: readonly number[],
): readonly number[] {
  const trials = new Trials(model, operations, members);
  const returnOf = (member: number): number => {
    const { outcome } = operations[member]!;
    return outcome.kind === "ok" ? outcome.returnedAt : Infinity;
  };
  const byReturn = members
    .filter((member) => operations[member]!.outcome.kind === "ok")
    .sort((a, b) => returnOf(a) - returnOf(b) || a - b);
  // What the other parts show is rarely needed.
  if (!trials.bad(byReturn)) trials.widen();
  let firm = shortestPrefix(byReturn, (some) => trials.bad(some));
  for (let size = Math.ceil(firm.length / 2); size >= 1 && trials.mayGoOn(); size = nextSize(size)) {
    for (let from = firm.length - size; from > -size && trials.mayGoOn(); from -= size) {
      const rest = firm.filter((_, at) => at < from || at >= from + size);
      if (trials.bad(rest)) firm = rest;
    }
  }
  const kept = new Set([...firm, ...trials.seenBy(firm)]);
  const core = members.filter((member) => kept.has(member));
  if (core.length > CORE_MAX || !trials.bad(firm)) return [];
  return core.sort((a, b) => operations[a]!.invokedAt - operations[b]!.invokedAt || a - b);
}

/** Checks histories in which only some members of one part have an outcome. */
class Trials<Input, Output, State> {
  private readonly model: Model<Input, Output, State>;
  private readonly operations: readonly Operation<Input, Output>[];
  private readonly members: ReadonlySet<number>;
  private trials = 0;
  private steps = 0;
  private wide = false;

  constructor(
    model: Model<Input, Output, State>,
    operations: readonly Operation<Input, Output>[],
    members: readonly number[],
  ) {
    this.model = model;
    this.operations = operations;
    this.members = new Set(members);
  }

  mayGoOn(): boolean {
    return this.trials < TRIALS_MAX && this.steps < CORE_STEPS_MAX;
  }

  /** From now on all other parts take part as they are. */
  widen(): void {
    this.wide = true;
  }

  bad(firm: readonly number[]): boolean {
    this.trials += 1;
    const { history, problems } = this.relaxed(firm);
    return problems.some((problem) => {
      const result = new Search(problem, (one) => history[one]!.invokedAt, TRIAL_STEPS_MAX).run();
      this.steps += result.steps;
      return result.kind === "violation";
    });
  }

  /** Members that must have taken effect although their outcome is taken to be unknown. */
  seenBy(firm: readonly number[]): readonly number[] {
    const { scope, problems } = this.relaxed(firm);
    return problems.flatMap((problem) =>
      problem.members.filter((one) => problem.must(one)).map((one) => scope[one]!),
    );
  }

  private relaxed(firm: readonly number[]): {
    readonly scope: readonly number[];
    readonly history: readonly Operation<Input, Output>[];
    readonly problems: readonly Problem<State>[];
  } {
    const kept = new Set(firm);
    let end = -Infinity;
    for (const member of firm) {
      const { outcome } = this.operations[member]!;
      if (outcome.kind === "ok") end = Math.max(end, outcome.returnedAt);
    }
    const scope: number[] = [];
    const history: Operation<Input, Output>[] = [];
    for (const [index, operation] of this.operations.entries()) {
      const inPart = this.members.has(index);
      // What began after the last answer cannot have caused it.
      if (inPart ? operation.invokedAt > end : !this.wide) continue;
      scope.push(index);
      history.push(!inPart || kept.has(index) ? operation : { ...operation, outcome: { kind: "unknown" } });
    }
    const problems = this.model
      .problems(history)
      .filter((problem) => problem.members.some((one) => this.members.has(scope[one]!)));
    return { scope, history, problems };
  }
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
    lines.push(`these ${core.length} contradict each other, whatever the outcomes of all others:`);
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
