/** Operations and states as people read them. */
import type { Operation } from "./operation.ts";
import type { KeyCompare, KeyInput, KeyOutput, KeyStep, Seen, StepOutput } from "./words.ts";

export function describeOperation({
  process,
  input,
  invokedAt,
  outcome,
}: Operation<KeyInput, KeyOutput>): string {
  const end = outcome.kind === "ok" ? String(outcome.returnedAt) : "?";
  const answer = outcome.kind === "ok" ? describeOutput(outcome.output) : "outcome unknown";
  return `${process} [${invokedAt}..${end}] ${describeInput(input)} -> ${answer}`;
}

export function describeInput(input: KeyInput): string {
  if (input.kind !== "txn") return describeStep(input);
  const steps = (all: readonly KeyStep[]): string => all.map(describeStep).join(", ") || "nothing";
  const compares = input.compares.map(describeCompare).join(" and ") || "always";
  return `if ${compares} then ${steps(input.success)} else ${steps(input.failure)}`;
}

function describeStep(step: KeyStep): string {
  return step.kind === "put" ? `put ${step.key}=${step.value}` : `${step.kind} ${step.key}`;
}

function describeCompare({ key, target, operator, operand }: KeyCompare): string {
  return `${target}(${key}) ${operator} ${operand}`;
}

export function describeOutput(output: KeyOutput): string {
  const at = output.revision === undefined ? "" : ` @${output.revision}`;
  if (output.kind !== "txn") return `${describeAnswer(output)}${at}`;
  const responses = output.responses.map(describeAnswer).join(", ");
  const failures = (output.failures ?? []).map(({ index, actual }) => `${index}: ${describeSeen(actual)}`);
  const failed = failures.length === 0 ? "" : ` (failed ${failures.join(", ")})`;
  return `${output.succeeded ? "then" : "else"}${failed} [${responses}]${at}`;
}

function describeAnswer(output: StepOutput): string {
  const before =
    output.kind === "get" || output.previous === undefined
      ? ""
      : `, before: ${describeSeen(output.previous)}`;
  switch (output.kind) {
    case "get":
      return describeSeen(output.found);
    case "put":
      return `ok${numbers({ create: output.createRevision, version: output.version })}${before}`;
    case "delete":
      return `${output.deleted} deleted${before}`;
  }
}

function describeSeen(seen: Seen | null): string {
  if (seen === null) return "absent";
  const { value, createRevision: create, modRevision: mod, version } = seen;
  return `${value}${numbers({ create, mod, version })}`;
}

/** Of a state in a model; a write's revision that nobody saw is not a whole number. */
export function describeKey(
  state:
    | { readonly value: string; readonly create: number; readonly mod: number; readonly version: number }
    | undefined,
): string {
  if (state === undefined) return "absent";
  const { create, mod, version } = state;
  return `${state.value.replace("\0", "")}${numbers({ create, mod, version })}`;
}

function numbers(all: Readonly<Record<string, number | undefined>>): string {
  const told = Object.entries(all).flatMap(([name, value]) =>
    value === undefined
      ? []
      : [`${name} ${Number.isInteger(value) ? value : `unseen, about ${Math.ceil(value)}`}`],
  );
  return told.length === 0 ? "" : ` (${told.join(", ")})`;
}
