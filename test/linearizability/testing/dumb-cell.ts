/** The sequential cell once more, as plainly as it can be written. Shares no code with the model. */
import type { KeyCompare, KeyInput, KeyOutput, KeyStep, Seen, StepOutput } from "../words.ts";

export type CellKeys = ReadonlyMap<string, Required<Seen>>;

export interface Done {
  readonly keys: CellKeys;
  readonly changed: boolean;
  /** Tells everything there is to tell, but for the revision of the whole where nothing changed. */
  readonly output: KeyOutput;
}

/** @param revision what the operation gets if it changes something */
export function perform(keys: CellKeys, input: KeyInput, revision: number): Done {
  const next = new Map(keys);
  const written: string[] = [];
  const one = (step: KeyStep): StepOutput => {
    const before = next.get(step.key) ?? null;
    if (step.kind === "get") return { kind: "get", found: before };
    if (step.kind === "put") {
      const createRevision = before === null ? revision : before.createRevision;
      const version = before === null ? 1 : before.version + 1;
      next.set(step.key, { value: step.value, modRevision: revision, createRevision, version });
      written.push(step.key);
      return { kind: "put", revision, createRevision, version, previous: before };
    }
    if (before === null) return { kind: "delete", deleted: 0, previous: null };
    next.delete(step.key);
    written.push(step.key);
    return { kind: "delete", deleted: 1, previous: before };
  };
  if (input.kind !== "txn") {
    const output = one(input);
    const changed = written.length > 0;
    return { keys: next, changed, output: changed ? { ...output, revision } : output };
  }
  const failures: { index: number; actual: Seen | null }[] = [];
  for (const [index, compare] of input.compares.entries()) {
    const actual = keys.get(compare.key) ?? null;
    if (!holds(compare, actual)) failures.push({ index, actual });
  }
  const succeeded = failures.length === 0;
  const responses = (succeeded ? input.success : input.failure).map(one);
  const changed = written.length > 0;
  const output: KeyOutput = { kind: "txn", succeeded, responses, failures };
  return { keys: next, changed, output: changed ? { ...output, revision } : output };
}

function holds(compare: KeyCompare, actual: Required<Seen> | null): boolean {
  if (compare.target === "value" && actual === null) return false;
  const left = {
    value: actual?.value ?? "",
    version: actual?.version ?? 0,
    "create-revision": actual?.createRevision ?? 0,
    "mod-revision": actual?.modRevision ?? 0,
  }[compare.target];
  if (compare.operator === "=") return left === compare.operand;
  if (compare.operator === "!=") return left !== compare.operand;
  return compare.operator === "<" ? left < compare.operand : left > compare.operand;
}
