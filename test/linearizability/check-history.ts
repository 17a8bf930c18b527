/** Everything that a recorded history of keys is checked for. */
import { check } from "./checker.ts";
import type { CheckOptions } from "./checker.ts";
import type { History } from "./history.ts";
import { keyModel } from "./model.ts";
import { checkRevisionOrder } from "./revision-order.ts";
import { describeInput, describeOperation } from "./text.ts";
import { seenIn, valuesOf } from "./words.ts";

export type HistoryVerdict =
  | { readonly kind: "linearizable"; readonly parts: number; readonly steps: number }
  | { readonly kind: "violation"; readonly law: ViolatedLaw; readonly text: string }
  /** Nothing was shown: to be treated as a failure. */
  | { readonly kind: "budget-exhausted"; readonly text: string };

export type ViolatedLaw = "not-applied-but-visible" | "revision-order" | "linearizability";

export function checkHistory(history: History, options: CheckOptions = {}): HistoryVerdict {
  const visible = refusedButSeen(history);
  if (visible !== undefined) return { kind: "violation", law: "not-applied-but-visible", text: visible };
  const operations = history.operations();
  const disorder = checkRevisionOrder(operations);
  if (disorder !== undefined) return { kind: "violation", law: "revision-order", text: disorder.text };
  const result = check(keyModel, operations, options);
  switch (result.kind) {
    case "linearizable":
      return result;
    case "violation":
      return { kind: "violation", law: "linearizability", text: result.text };
    case "budget-exhausted": {
      const text = `not decided after ${result.steps} steps (${operations.length} operations): ${result.part}`;
      return { kind: "budget-exhausted", text };
    }
  }
}

/** Throws for anything but a linearizable history, an exhausted budget included. */
export function assertLinearizable(history: History, options: CheckOptions = {}): void {
  const verdict = checkHistory(history, options);
  if (verdict.kind === "linearizable") return;
  throw new Error(verdict.kind === "violation" ? `${verdict.law}: ${verdict.text}` : verdict.text);
}

function refusedButSeen(history: History): string | undefined {
  const operations = history.operations();
  const refused = new Map(
    history.refused().flatMap((operation) => valuesOf(operation.input).map((value) => [value, operation])),
  );
  if (refused.size === 0) return undefined;
  // A value that somebody else wrote too proves nothing.
  for (const { input } of operations) for (const value of valuesOf(input)) refused.delete(value);
  for (const operation of operations) {
    if (operation.outcome.kind !== "ok") continue;
    for (const { value } of seenIn(operation.input, operation.outcome.output)) {
      const writer = refused.get(value);
      if (writer === undefined) continue;
      const { process, invokedAt, input } = writer;
      const lines = [
        `${process} [${invokedAt}] ${describeInput(input)} -> not applied`,
        describeOperation(operation),
      ];
      return `a write that was reported as not applied was seen:\n${lines.map((line) => `  ${line}`).join("\n")}`;
    }
  }
  return undefined;
}
