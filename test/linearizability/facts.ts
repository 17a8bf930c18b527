/**
 * What a whole history tells about each of its operations before any order is tried. Every fact here holds in each
 * linearization that there may be, so that using it loses none.
 *
 * - A write's revision is known from its acknowledgement, or from whoever saw its unique value.
 * - A write whose value was seen took effect, before the answer that showed it.
 * - A revision that was shown as a key's create or mod revision, and that no known write has, belongs to a write of the
 *   same group of keys whose revision is not known: an **orphan**.
 * - A write that was invoked after an answer with revision r has a larger one, whatever the keys.
 */
import type { Operation, Time } from "./operation.ts";
import type { KeyInput, KeyOutput, KeyStep, Seen } from "./words.ts";
import { keysOf, newestRevision, seenIn, valuesOf, wrote } from "./words.ts";

export type KeyOperation = Operation<KeyInput, KeyOutput>;

/** Stands for a value that nobody ever asked for or saw; no workload writes a NUL. */
const UNREAD = "\0unread";
const NOTHING: readonly Seen[] = [];

export interface OperationFacts {
  readonly operation: KeyOperation;
  readonly group: number;
  /** It was acknowledged, or its value was seen. */
  must: boolean;
  deadline: Time;
  /** Of a write: where it is in the cell's order, when known. */
  revision: number | undefined;
  /** Of an acknowledged operation that wrote nothing: the revision it reflects, when told. */
  reflects: number | undefined;
  pure: boolean;
  /** It has a larger revision than this one, should it write. */
  after: number;
  /** With values that nobody saw made alike. */
  input: KeyInput;
  /** What its answer showed of keys. */
  readonly seen: readonly Seen[];
}

export interface GroupFacts {
  readonly keys: readonly string[];
  readonly members: readonly number[];
  readonly orphans: ReadonlySet<number>;
  /** Revisions that this group's compares ask for and that are neither a known write's of the group nor its orphans. */
  readonly asked: readonly number[];
  /** Of the orphans and the asked ones: those that some other group has, or showed first. */
  readonly foreign: ReadonlySet<number>;
}

export interface Facts {
  readonly operations: readonly OperationFacts[];
  readonly groups: readonly GroupFacts[];
  /** Revisions that belong to a known write or are some group's orphans. */
  readonly taken: ReadonlySet<number>;
}

export function factsOf(history: readonly KeyOperation[]): Facts {
  const { groupOf, groups } = keyGroups(history);
  const seen = history.map(({ input, outcome }) =>
    outcome.kind === "ok" ? seenIn(input, outcome.output) : NOTHING,
  );
  const after = newestBefore(history, seen);
  const operations = history.map((operation, index): OperationFacts => {
    const { outcome, input } = operation;
    const group = groupOf.get(keysOf(input)[0] ?? "") ?? -1;
    const unknown: OperationFacts = {
      operation,
      group,
      must: false,
      deadline: Infinity,
      revision: undefined,
      reflects: undefined,
      pure: false,
      after: after[index]!,
      input,
      seen: seen[index]!,
    };
    if (outcome.kind === "unknown") return unknown;
    const { output, returnedAt: deadline } = outcome;
    const own = wrote(output) ? { revision: writtenAt(output) } : { reflects: output.revision, pure: true };
    return { ...unknown, must: true, deadline, ...own };
  });
  learnFromValues(operations);
  levelUnread(operations);
  const members = groups.map((): number[] => []);
  for (const [index, { group, input, must }] of operations.entries()) {
    // Whether an unanswered read took place is nobody's concern.
    if (must || valuesOf(input).length > 0 || mayDelete(input)) members[group]?.push(index);
  }
  const known = new Set(operations.flatMap(({ revision }) => revision ?? []));
  const orphans = members.map((group) => orphansOf(group.map((index) => operations[index]!)));
  const taken = new Set(known);
  return {
    operations,
    taken,
    groups: groups.map((keys, group): GroupFacts => {
      const own = members[group]!.map((index) => operations[index]!);
      const knownHere = new Set(own.map(({ revision }) => revision));
      const orphansHere = orphans[group]!;
      const asked = askedBy(own).filter((one) => !knownHere.has(one) && !orphansHere.has(one));
      const others = new Set(orphans.flatMap((one, other) => (other === group ? [] : [...one])));
      const earlier = new Set(orphans.slice(0, group).flatMap((one) => [...one]));
      const foreign = [
        ...[...orphansHere].filter((one) => known.has(one) || earlier.has(one)),
        ...asked.filter((one) => known.has(one) || others.has(one)),
      ];
      for (const one of orphansHere) taken.add(one);
      return { keys, members: members[group]!, orphans: orphansHere, asked, foreign: new Set(foreign) };
    }),
  };
}

function writtenAt(output: KeyOutput): number | undefined {
  if (output.kind !== "txn" || output.revision !== undefined) return output.revision;
  return output.responses.find((response) => response.kind === "put")?.revision;
}

function mayDelete(input: KeyInput): boolean {
  const deletes = (step: KeyStep): boolean => step.kind === "delete";
  return input.kind === "txn" ? [...input.success, ...input.failure].some(deletes) : deletes(input);
}

/** Keys that any operation names together belong to one group. */
function keyGroups(history: readonly KeyOperation[]): {
  readonly groupOf: ReadonlyMap<string, number>;
  readonly groups: readonly (readonly string[])[];
} {
  const parents = new Map<string, string>();
  const root = (key: string): string => {
    let at = key;
    for (let up = parents.get(at); up !== undefined && up !== at; up = parents.get(at)) {
      parents.set(at, parents.get(up) ?? up);
      at = up;
    }
    return at;
  };
  for (const { input } of history) {
    const keys = keysOf(input);
    for (const key of keys) {
      if (!parents.has(key)) parents.set(key, key);
      parents.set(root(key), root(keys[0]!));
    }
  }
  const groupOf = new Map<string, number>();
  const groups: string[][] = [];
  const numbers = new Map<string, number>();
  for (const key of [...parents.keys()].sort()) {
    const top = root(key);
    const group = numbers.get(top) ?? groups.push([]) - 1;
    numbers.set(top, group);
    groupOf.set(key, group);
    groups[group]!.push(key);
  }
  return { groupOf, groups };
}

/** For each operation the newest revision that any answer had shown when it was invoked. */
function newestBefore(
  history: readonly KeyOperation[],
  seen: readonly (readonly Seen[])[],
): readonly number[] {
  const answers = history.flatMap(({ outcome }, index) => {
    if (outcome.kind === "unknown") return [];
    const { output, returnedAt: at } = outcome;
    return [{ at, revision: newestRevision(output, seen[index]!) }];
  });
  answers.sort((a, b) => a.at - b.at);
  const order = [...history.keys()].sort((a, b) => history[a]!.invokedAt - history[b]!.invokedAt);
  const newest = new Array<number>(history.length).fill(0);
  let next = 0;
  let revision = 0;
  for (const index of order) {
    for (; next < answers.length && answers[next]!.at < history[index]!.invokedAt; next += 1) {
      revision = Math.max(revision, answers[next]!.revision);
    }
    newest[index] = revision;
  }
  return newest;
}

/** Values of which it is certain which operation wrote them. */
function writers(operations: readonly OperationFacts[]): ReadonlyMap<string, OperationFacts | undefined> {
  const found = new Map<string, OperationFacts | undefined>();
  for (const one of operations) {
    for (const value of new Set(valuesOf(one.input))) found.set(value, found.has(value) ? undefined : one);
  }
  return found;
}

function learnFromValues(operations: readonly OperationFacts[]): void {
  const writerOf = writers(operations);
  for (const observer of operations) {
    const { outcome } = observer.operation;
    if (outcome.kind !== "ok") continue;
    for (const { value, modRevision } of observer.seen) {
      const writer = writerOf.get(value);
      if (writer === undefined || writer === observer) continue;
      if (writer.operation.outcome.kind === "unknown") {
        writer.must = true;
        writer.deadline = Math.min(writer.deadline, outcome.returnedAt);
      }
      if (!writer.pure) writer.revision ??= modRevision;
    }
  }
}

/** Makes writes alike whose values play no part, so that it does not matter which of them is used. */
function levelUnread(operations: readonly OperationFacts[]): void {
  const mentioned = new Set<string>();
  for (const { operation, seen } of operations) {
    const { input } = operation;
    if (input.kind === "txn") {
      for (const { target, operator, operand } of input.compares) {
        // What is compared by order may depend on any value.
        if (target === "value" && (operator === "<" || operator === ">")) return;
        if (target === "value") mentioned.add(String(operand));
      }
    }
    for (const { value } of seen) mentioned.add(value);
  }
  const level = (step: KeyStep): KeyStep =>
    step.kind === "put" && !mentioned.has(step.value) ? { ...step, value: UNREAD } : step;
  for (const one of operations) {
    if (one.must) continue;
    const { input } = one;
    one.input =
      input.kind === "txn"
        ? { ...input, success: input.success.map(level), failure: input.failure.map(level) }
        : level(input);
  }
}

function orphansOf(members: readonly OperationFacts[]): ReadonlySet<number> {
  const known = new Set(members.map(({ revision }) => revision));
  const orphans = new Set<number>();
  const add = (revision: number | undefined): void => {
    if (revision !== undefined && revision > 0 && !known.has(revision)) orphans.add(revision);
  };
  for (const { operation, seen } of members) {
    const { outcome } = operation;
    if (outcome.kind !== "ok") continue;
    for (const { createRevision, modRevision } of seen) {
      add(createRevision);
      add(modRevision);
    }
    const outputs = outcome.output.kind === "txn" ? outcome.output.responses : [outcome.output];
    for (const output of outputs) if (output.kind === "put") add(output.createRevision);
  }
  return orphans;
}

function askedBy(members: readonly OperationFacts[]): readonly number[] {
  const asked = members.flatMap(({ input }) =>
    input.kind === "txn"
      ? input.compares.flatMap(({ target, operand }) =>
          (target === "mod-revision" || target === "create-revision") && Number(operand) > 0
            ? [Number(operand)]
            : [],
        )
      : [],
  );
  return [...new Set(asked)].sort((a, b) => a - b);
}
