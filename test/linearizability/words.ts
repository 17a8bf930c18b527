/** Operations on keys and their answers as a client sees them, in plain values that fit into a line of JSON. */

export type CompareTarget = "value" | "version" | "create-revision" | "mod-revision";
export type CompareOperator = "=" | "!=" | "<" | ">";

/** A missing key compares as version and revisions 0; its value compares false whatever the operator. */
export interface KeyCompare {
  readonly key: string;
  readonly target: CompareTarget;
  readonly operator: CompareOperator;
  /** Text for a value (latin-1: ordered as its bytes), a number otherwise. */
  readonly operand: string | number;
}

export type KeyStep =
  | { readonly kind: "get"; readonly key: string }
  | { readonly kind: "put"; readonly key: string; readonly value: string }
  | { readonly kind: "delete"; readonly key: string };

export interface KeyTxn {
  readonly kind: "txn";
  readonly compares: readonly KeyCompare[];
  readonly success: readonly KeyStep[];
  readonly failure: readonly KeyStep[];
}

/** Reads are linearizable ones: a serializable read promises something else. */
export type KeyInput = KeyStep | KeyTxn;

/** What an answer told of a key's state; absent: it did not tell. */
export interface Seen {
  readonly value: string;
  readonly createRevision?: number;
  readonly modRevision?: number;
  readonly version?: number;
}

export interface GetOutput {
  readonly kind: "get";
  /** The revision that the answer reflects. */
  readonly revision?: number;
  /** null: there is no such key. */
  readonly found: Seen | null;
}

export interface PutOutput {
  readonly kind: "put";
  readonly revision?: number;
  readonly createRevision?: number;
  readonly version?: number;
  /** Absent: not asked for. */
  readonly previous?: Seen | null;
}

export interface DeleteOutput {
  readonly kind: "delete";
  readonly revision?: number;
  /** 0 or 1. */
  readonly deleted: number;
  readonly previous?: Seen | null;
}

export type StepOutput = GetOutput | PutOutput | DeleteOutput;

export interface TxnOutput {
  readonly kind: "txn";
  readonly succeeded: boolean;
  readonly revision?: number;
  /** One for each step of the branch taken. */
  readonly responses: readonly StepOutput[];
  /** All compares that did not hold, with what was there; absent: not told. */
  readonly failures?: readonly { readonly index: number; readonly actual: Seen | null }[];
}

export type KeyOutput = StepOutput | TxnOutput;

/** What a compare-and-set expects; exactly one, `absent` being a create revision of 0. */
export type Expected =
  | { readonly value: string }
  | { readonly modRevision: number }
  | { readonly version: number }
  | { readonly absent: true };

/** Puts `value` if `key` is as expected; otherwise tells what is there when `read` is set. */
export function compareAndSet(key: string, expected: Expected, value: string, read = false): KeyTxn {
  const compare = (target: CompareTarget, operand: string | number): KeyTxn => ({
    kind: "txn",
    compares: [{ key, target, operator: "=", operand }],
    success: [{ kind: "put", key, value }],
    failure: read ? [{ kind: "get", key }] : [],
  });
  if ("value" in expected) return compare("value", expected.value);
  if ("modRevision" in expected) return compare("mod-revision", expected.modRevision);
  if ("version" in expected) return compare("version", expected.version);
  return compare("create-revision", 0);
}

/** Every step of either branch. */
export function stepsOf(input: KeyInput): readonly KeyStep[] {
  return input.kind === "txn" ? [...input.success, ...input.failure] : [input];
}

export function keysOf(input: KeyInput): readonly string[] {
  if (input.kind !== "txn") return [input.key];
  return [...new Set([...input.compares.map(({ key }) => key), ...stepsOf(input).map(({ key }) => key)])];
}

/** The values that the operation may write. */
export function valuesOf(input: KeyInput): readonly string[] {
  return stepsOf(input).flatMap((step) => (step.kind === "put" ? [step.value] : []));
}

/** The answer says that something changed. */
export function wrote(output: KeyOutput): boolean {
  switch (output.kind) {
    case "get":
      return false;
    case "put":
      return true;
    case "delete":
      return output.deleted > 0;
    case "txn":
      return output.responses.some(wrote);
  }
}

/** Everything that an answer told of states that others made or it made itself. */
export function seenIn(input: KeyInput, output: KeyOutput): readonly Seen[] {
  const found: (Seen | null | undefined)[] = [];
  const outputs = output.kind === "txn" ? output.responses : [output];
  for (const one of outputs) found.push(one.kind === "get" ? one.found : one.previous);
  if (input.kind === "txn" && output.kind === "txn") {
    for (const { actual } of output.failures ?? []) found.push(actual);
    for (const [index, { target, operator, operand }] of input.compares.entries()) {
      const failed =
        output.failures === undefined
          ? !output.succeeded
          : output.failures.some((failure) => failure.index === index);
      if (target === "value" && operator === "=" && !failed) found.push({ value: String(operand) });
    }
  }
  return found.filter((seen) => seen !== null && seen !== undefined);
}

/** The newest revision that an answer gives away; 0: none. */
export function newestRevision(output: KeyOutput, seen: readonly Seen[]): number {
  let newest = output.revision ?? 0;
  for (const { modRevision = 0 } of seen) newest = Math.max(newest, modRevision);
  return newest;
}
