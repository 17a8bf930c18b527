/**
 * A linearizability checker: is there one order of a history's operations that respects real time and that a single,
 * sequential object would have answered in the same way?
 *
 * **Algorithm.** Wing and Gong's search with the improvements that Lowe described and Porcupine made popular: operations
 * in a list ordered by time, of which one that may come first is taken out, tried, and put back when it leads nowhere;
 * every point (what is placed, and the state) is visited once; parts that do not influence each other (here: groups of
 * keys, which the model finds) are checked one by one. Three additions keep unknown outcomes and long histories cheap,
 * and none of them gives up an answer:
 * - The model tells beforehand what holds in every order (facts.ts): above all the **rank** of an operation, from the
 *   revision that the cell showed. Between operations with ranks there is nothing left to try.
 * - What need not be placed (an unknown outcome that nobody saw) is tried last, only if it changes something, and of
 *   several with the same effect only the one that was invoked first; first of all what explains an answer that does not
 *   fit yet. What was seen is placed by the time it was seen.
 * - What changes nothing is placed as soon as it fits.
 *
 * **Why our own** and not a checker in another process: it is deterministic and counts its steps instead of reading a
 * clock, so that a simulated history gives the same verdict on every machine; it runs inside of the simulator, thousands
 * of histories a minute; and it knows revisions, which make it both stricter and faster than one for plain registers.
 *
 * **How it is tested.** Against histories that are known to be good or bad, one for each kind of lie; against a twin that
 * tries all orders, all subsets of unknown outcomes and all revisions, and shares no code with it, on thousands of small
 * random histories and on mutations of good ones (the verdicts must be equal); and on large histories of a simulated
 * correct cell.
 *
 * **Limits.** Finding a small core of a bad history succeeds in short histories and gives up in long ones; the longest
 * prefix and what is stuck after it are always told. Histories whose answers tell no revisions fall back to plain search:
 * fine for some hundred operations on a key, slow beyond.
 *
 * A check is bounded by steps. A caller must treat `budget-exhausted` as a failure of its test: nothing was shown.
 */
import { coreOf, explanation } from "./explain.ts";
import type { Model, Operation, Problem } from "./operation.ts";
import { Search } from "./search.ts";

/** For each part of the history; a history of some thousand operations takes about as many. */
export const DEFAULT_STEPS_MAX = 2_000_000;

export interface CheckOptions {
  /** How many placements may be tried in each part. Default {@link DEFAULT_STEPS_MAX}. */
  readonly stepsMax?: number;
  /** Look for a small part of a bad history that is bad by itself. Default: true. */
  readonly minimise?: boolean;
}

export interface Violation<Input, Output> {
  readonly kind: "violation";
  /** The part that has no linearization. */
  readonly part: string;
  /** The longest order that could be placed. */
  readonly prefix: readonly Operation<Input, Output>[];
  /** What was under way after it and cannot come next, nor ever. */
  readonly stuck: readonly Operation<Input, Output>[];
  /** Few operations that contradict each other whatever the outcomes of all others; empty: not looked for or not found. */
  readonly core: readonly Operation<Input, Output>[];
  readonly steps: number;
  /** All of it for people. */
  readonly text: string;
}

export type CheckResult<Input, Output> =
  | { readonly kind: "linearizable"; readonly parts: number; readonly steps: number }
  | Violation<Input, Output>
  | { readonly kind: "budget-exhausted"; readonly part: string; readonly steps: number };

/** @param operations in any order. The first part that fails ends the check. */
export function check<Input, Output, State>(
  model: Model<Input, Output, State>,
  operations: readonly Operation<Input, Output>[],
  options: CheckOptions = {},
): CheckResult<Input, Output> {
  const problems = model.problems(operations);
  const stepsMax = options.stepsMax ?? DEFAULT_STEPS_MAX;
  let steps = 0;
  let exhausted: { readonly part: string; readonly steps: number } | undefined;
  for (const problem of problems) {
    const result = new Search(problem, (member) => operations[member]!.invokedAt, stepsMax).run();
    steps += result.steps;
    if (result.kind === "budget-exhausted") exhausted ??= { part: problem.name, steps: result.steps };
    if (result.kind === "violation") {
      return violation(model, operations, { problem, result, minimise: options.minimise ?? true });
    }
  }
  if (exhausted !== undefined) return { kind: "budget-exhausted", ...exhausted };
  return { kind: "linearizable", parts: problems.length, steps };
}

interface Found<State> {
  readonly problem: Problem<State>;
  readonly result: {
    readonly prefix: readonly number[];
    readonly stuck: readonly number[];
    readonly state: State;
    readonly steps: number;
  };
  readonly minimise: boolean;
}

function violation<Input, Output, State>(
  model: Model<Input, Output, State>,
  operations: readonly Operation<Input, Output>[],
  { problem, result, minimise }: Found<State>,
): Violation<Input, Output> {
  const pick = (members: readonly number[]): Operation<Input, Output>[] =>
    members.map((one) => operations[one]!);
  const core = minimise ? coreOf(model, operations, problem.members) : [];
  const found = {
    part: problem.name,
    prefix: pick(result.prefix),
    stuck: pick(result.stuck),
    core: pick(core),
    steps: result.steps,
  };
  const reasons = result.stuck.map((member) => problem.explain(result.state, member));
  const state = model.describeState(problem, result.state);
  const text = explanation({ ...found, reasons, state }, (operation) => model.describe(operation));
  return { kind: "violation", ...found, text };
}
