/**
 * Lockstep's keys as a client of the cell sees them: the meaning of gets, puts, deletes and small transactions, with the
 * revisions that the cell assigns. A linearization is accepted only when each answer's value, version, create and mod
 * revision is what its place implies **and** the revisions rise along it: the cell promises one order, and shows it.
 *
 * Assumed of the history: keys did not exist before it, nobody else changes them (no lease hangs on them), and its reads
 * are linearizable ones. Values need not be unique, but what is written twice teaches less.
 */
import type { Facts, GroupFacts, KeyOperation, OperationFacts } from "./facts.ts";
import { factsOf } from "./facts.ts";
import type { Model, Problem, Time } from "./operation.ts";
import { Revisions, TakenRuns } from "./revisions.ts";
import type { Place } from "./revisions.ts";
import { Sightings } from "./sightings.ts";
import { describeKey, describeOperation } from "./text.ts";
import type { KeyCompare, KeyInput, KeyOutput, KeyStep, Seen, StepOutput, TxnOutput } from "./words.ts";

export interface KeyState {
  readonly value: string;
  readonly create: number;
  readonly mod: number;
  readonly version: number;
}

export interface GroupState {
  /** The group's order of revisions has come so far. */
  readonly last: number;
  /** undefined: the key does not exist. */
  readonly keys: readonly (KeyState | undefined)[];
}

type Keys = (KeyState | undefined)[];
/** Collects what did not fit; handed in only when somebody asks. */
type Misfits = string[] | undefined;

export const keyModel: Model<KeyInput, KeyOutput, GroupState> = {
  problems(history: readonly KeyOperation[]): readonly Problem<GroupState>[] {
    const facts = factsOf(history);
    const taken = new TakenRuns(facts.taken);
    return facts.groups
      .filter(({ members }) => members.length > 0)
      .map((group) => new GroupProblem(facts, group, taken));
  },
  describe: describeOperation,
  describeState(problem: Problem<GroupState>, state: GroupState): string {
    const keys = problem instanceof GroupProblem ? problem.keys : [];
    return keys.map((key, slot) => `${key}: ${describeKey(state.keys[slot])}`).join(", ");
  },
};

class GroupProblem implements Problem<GroupState> {
  readonly name: string;
  readonly members: readonly number[];
  readonly initial: GroupState;
  readonly keys: readonly string[];
  private readonly operations: readonly OperationFacts[];
  private readonly revisions: Revisions;
  private readonly sightings: Sightings;
  private readonly slotOf: ReadonlyMap<string, number>;

  constructor(facts: Facts, group: GroupFacts, taken: TakenRuns) {
    this.keys = group.keys;
    this.name = group.keys.join(" ");
    this.members = group.members;
    this.operations = facts.operations;
    this.revisions = new Revisions(facts, group, taken);
    this.sightings = new Sightings(group.members.map((member) => facts.operations[member]!));
    this.slotOf = new Map(group.keys.map((key, slot) => [key, slot]));
    this.initial = { last: 0, keys: group.keys.map(() => undefined) };
  }

  must(member: number): boolean {
    return this.operations[member]!.must;
  }

  deadline(member: number): Time {
    return this.operations[member]!.deadline;
  }

  rank(member: number): number | undefined {
    const { revision, reflects } = this.operations[member]!;
    if (revision !== undefined) return 2 * revision;
    return reflects === undefined ? undefined : 2 * reflects + 1;
  }

  pure(member: number): boolean {
    return this.operations[member]!.pure;
  }

  alike(member: number): string {
    return JSON.stringify(this.operations[member]!.input);
  }

  key({ last, keys }: GroupState): string {
    let text = `${last}`;
    for (const key of keys) {
      text +=
        key === undefined ? ";" : `;${key.create},${key.mod},${key.version},${key.value.length},${key.value}`;
    }
    return text;
  }

  step(state: GroupState, member: number): readonly GroupState[] {
    return this.attempt(state, this.operations[member]!, undefined);
  }

  explain(state: GroupState, member: number): string {
    const misfits: string[] = [];
    this.attempt(state, this.operations[member]!, misfits);
    return [...new Set(misfits)].join("; ");
  }

  private attempt(state: GroupState, facts: OperationFacts, misfits: Misfits): readonly GroupState[] {
    const { input, operation } = facts;
    const output = operation.outcome.kind === "ok" ? operation.outcome.output : undefined;
    const branch = this.branch(state.keys, input, output, misfits);
    if (branch === undefined) return [];
    if (!this.changes(state.keys, branch)) return this.unchanged(state, facts, { branch, output, misfits });
    if (facts.pure) {
      misfits?.push("here it would change something, and its answer says that it did not");
      return [];
    }
    const next: GroupState[] = [];
    for (const { shown, last } of this.placesFor(state, facts, misfits)) {
      const keys = [...state.keys];
      if (!this.run(keys, branch, { revision: shown, output, misfits })) continue;
      if (facts.revision !== undefined || this.leavesRoom(state, { last, keys }, misfits))
        next.push({ last, keys });
    }
    return next;
  }

  /** What was seen later allows that something was written here. */
  private leavesRoom(before: GroupState, after: GroupState, misfits: Misfits): boolean {
    return this.keys.every((key, slot) => {
      const state = after.keys[slot];
      if (state === before.keys[slot] || this.sightings.allows(key, after.last, state)) return true;
      misfits?.push(`${key} was seen later as if nothing had happened here`);
      return false;
    });
  }

  private placesFor(
    state: GroupState,
    { revision, after }: OperationFacts,
    misfits: Misfits,
  ): readonly Place[] {
    if (revision === undefined) {
      const places = this.revisions.places(state.last, after);
      if (places.length === 0) misfits?.push(`no revision above ${state.last} is free for it`);
      return places;
    }
    if (this.revisions.mayWrite(state.last, revision)) return [{ shown: revision, last: revision }];
    misfits?.push(
      revision <= state.last
        ? `its revision ${revision} is not above ${state.last}, where the order has come`
        : `another write has a revision between ${state.last} and its own, ${revision}`,
    );
    return [];
  }

  private unchanged(
    state: GroupState,
    facts: OperationFacts,
    {
      branch,
      output,
      misfits,
    }: { branch: readonly KeyStep[]; output: KeyOutput | undefined; misfits: Misfits },
  ): readonly GroupState[] {
    if (facts.revision !== undefined || (facts.must && !facts.pure)) {
      misfits?.push("here it would change nothing, and it did change something");
      return [];
    }
    if (!this.run([...state.keys], branch, { revision: state.last, output, misfits })) return [];
    const { reflects } = facts;
    if (reflects === undefined || reflects === state.last) return [state];
    if (this.revisions.mayReflect(state.last, reflects)) return [{ ...state, last: reflects }];
    misfits?.push(
      reflects < state.last
        ? `it reflects revision ${reflects}, and the order has come to ${Math.ceil(state.last)}`
        : `it reflects revision ${reflects}, and a write up to there was not placed yet`,
    );
    return [];
  }

  /** The steps that run; undefined: the answer tells otherwise. */
  private branch(
    keys: readonly (KeyState | undefined)[],
    input: KeyInput,
    output: KeyOutput | undefined,
    misfits: Misfits,
  ): readonly KeyStep[] | undefined {
    if (input.kind !== "txn") return [input];
    const failed: number[] = [];
    for (const [index, compare] of input.compares.entries()) {
      if (!holds(compare, this.at(keys, compare.key))) failed.push(index);
    }
    const succeeded = failed.length === 0;
    if (output?.kind === "txn") {
      if (output.succeeded !== succeeded) {
        misfits?.push(`its compares ${succeeded ? "all hold" : `fail (${failed.join(", ")})`}`);
        return undefined;
      }
      if (!this.failuresFit(keys, input.compares, { failed, output, misfits })) return undefined;
    }
    return succeeded ? input.success : input.failure;
  }

  private failuresFit(
    keys: readonly (KeyState | undefined)[],
    compares: readonly KeyCompare[],
    { failed, output, misfits }: { failed: readonly number[]; output: TxnOutput; misfits: Misfits },
  ): boolean {
    const { failures } = output;
    if (failures === undefined) return true;
    const told = failures.map(({ index }) => index).sort((a, b) => a - b);
    if (told.join() !== failed.join()) {
      misfits?.push(`the compares that fail are [${failed.join(", ")}], not [${told.join(", ")}]`);
      return false;
    }
    return failures.every(({ index, actual }) => {
      const { key } = compares[index]!;
      return fits(key, { seen: actual, state: this.at(keys, key) }, misfits);
    });
  }

  private changes(keys: readonly (KeyState | undefined)[], steps: readonly KeyStep[]): boolean {
    return steps.some(
      ({ kind, key }) => kind === "put" || (kind === "delete" && this.at(keys, key) !== undefined),
    );
  }

  private at(keys: readonly (KeyState | undefined)[], key: string): KeyState | undefined {
    return keys[this.slotOf.get(key)!];
  }

  /** Changes `keys`; false: an answer does not fit. */
  private run(
    keys: Keys,
    steps: readonly KeyStep[],
    context: { readonly revision: number; readonly output: KeyOutput | undefined; readonly misfits: Misfits },
  ): boolean {
    const { revision, output, misfits } = context;
    const outputs = output === undefined || output.kind === "txn" ? output?.responses : [output];
    if (outputs !== undefined && outputs.length !== steps.length) {
      misfits?.push(`it has ${outputs.length} answers to ${steps.length} steps`);
      return false;
    }
    return steps.every((step, index) => {
      const slot = this.slotOf.get(step.key)!;
      const before = keys[slot];
      const after = effect(step, before, revision);
      keys[slot] = after;
      const answer = outputs?.[index];
      return answer === undefined || answers(step, { answer, before, after, misfits });
    });
  }
}

function effect(step: KeyStep, before: KeyState | undefined, revision: number): KeyState | undefined {
  switch (step.kind) {
    case "get":
      return before;
    case "put": {
      const { value } = step;
      if (before === undefined) return { value, create: revision, mod: revision, version: 1 };
      return { value, create: before.create, mod: revision, version: before.version + 1 };
    }
    case "delete":
      return undefined;
  }
}

interface Answered {
  readonly answer: StepOutput;
  readonly before: KeyState | undefined;
  readonly after: KeyState | undefined;
  readonly misfits: Misfits;
}

function answers(step: KeyStep, { answer, before, after, misfits }: Answered): boolean {
  if (answer.kind !== step.kind) {
    misfits?.push(`a ${step.kind} was answered like a ${answer.kind}`);
    return false;
  }
  if (answer.kind === "get") return fits(step.key, { seen: answer.found, state: before }, misfits);
  const { previous } = answer;
  if (previous !== undefined && !fits(`${step.key} before`, { seen: previous, state: before }, misfits))
    return false;
  if (answer.kind === "delete") {
    return equal(`keys deleted of ${step.key}`, [answer.deleted, before === undefined ? 0 : 1], misfits);
  }
  return (
    equal(`${step.key}: version`, [answer.version, after?.version], misfits) &&
    equal(`${step.key}: create revision`, [answer.createRevision, after?.create], misfits) &&
    equal(`${step.key}: revision`, [answer.revision, after?.mod], misfits)
  );
}

function fits(
  key: string,
  { seen, state }: { readonly seen: Seen | null; readonly state: KeyState | undefined },
  misfits: Misfits,
): boolean {
  if (seen === null || state === undefined) {
    if (seen === null && state === undefined) return true;
    misfits?.push(`${key} is ${describeKey(state)} here`);
    return false;
  }
  return (
    equal(`${key}: value`, [seen.value, state.value], misfits) &&
    equal(`${key}: mod revision`, [seen.modRevision, state.mod], misfits) &&
    equal(`${key}: create revision`, [seen.createRevision, state.create], misfits) &&
    equal(`${key}: version`, [seen.version, state.version], misfits)
  );
}

/** What was not told fits everything. */
function equal(
  what: string,
  [told, here]: readonly [string | number | undefined, string | number | undefined],
  misfits: Misfits,
): boolean {
  if (told === undefined || told === here) return true;
  misfits?.push(`${what} is ${String(here)} here, not ${told}`);
  return false;
}

function holds({ target, operator, operand }: KeyCompare, state: KeyState | undefined): boolean {
  switch (target) {
    case "value":
      return state !== undefined && ordered(state.value, operator, String(operand));
    case "version":
      return ordered(state?.version ?? 0, operator, Number(operand));
    case "create-revision":
      return ordered(state?.create ?? 0, operator, Number(operand));
    case "mod-revision":
      return ordered(state?.mod ?? 0, operator, Number(operand));
  }
}

function ordered<T extends string | number>(
  actual: T,
  operator: KeyCompare["operator"],
  operand: T,
): boolean {
  switch (operator) {
    case "=":
      return actual === operand;
    case "!=":
      return actual !== operand;
    case "<":
      return actual < operand;
    case ">":
      return actual > operand;
  }
}
