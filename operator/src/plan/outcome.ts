import type { CoordinationCellStatus, OperationStatus } from "../api/types.ts";
import type { Facts } from "./facts.ts";
import { operationId } from "./names.ts";
import { backoffMs, fromStamp, PROGRESS_DEADLINE_MS, toStamp } from "./time.ts";
import type { Action, PlannedEvent } from "./types.ts";

/** Why nothing goes on, and what is next: `reason` is stable CamelCase. */
export interface Blocker {
  readonly reason: string;
  readonly message: string;
}

/** What a rule decided. A rule that has nothing to say answers undefined, and the next one is asked. */
export interface Outcome {
  readonly action?: Action;
  /** The operation from now on; null: none any more; absent: as it was. */
  readonly operation?: OperationStatus | null;
  readonly patch?: Pick<
    CoordinationCellStatus,
    "cellId" | "recoveries" | "lastOperation" | "lastAutomaticReplacement" | "admitted"
  >;
  /** Waiting, and it will pass by itself. */
  readonly waiting?: Blocker;
  /** A person has to do something. */
  readonly stalled?: Blocker;
  readonly events?: readonly PlannedEvent[];
  readonly lookAgainMs?: number;
}

export type Rule = (facts: Facts) => Outcome | undefined;

export function beginOperation(
  facts: Facts,
  wanted: Pick<OperationStatus, "kind" | "cause" | "trigger" | "step" | "message"> &
    Partial<Pick<OperationStatus, "outgoing" | "incoming" | "requestedBy" | "podUid">>,
): OperationStatus {
  const { nowMs, cell, previous } = facts;
  const last = previous.lastOperation;
  const isRetry = last?.kind === wanted.kind && last.result.startsWith("Aborted");
  return {
    ...wanted,
    id: operationId(cell.metadata.uid ?? cell.metadata.name, wanted.kind, nowMs),
    attempt: isRetry ? last.attempt + 1 : 1,
    startedAt: toStamp(nowMs),
    stepSince: toStamp(nowMs),
    deadline: toStamp(nowMs + PROGRESS_DEADLINE_MS),
  };
}

/** A pass that begins an operation, and tells people. */
export function begun(operation: OperationStatus): Outcome {
  return {
    operation,
    events: [{ type: "Normal", reason: `${operation.kind}Begun`, message: operation.cause }],
    waiting: { reason: operation.kind, message: operation.message },
    lookAgainMs: 0,
  };
}

/** The operation in `step`; entering another step is progress and moves the deadline. */
export function atStep(
  facts: Facts,
  operation: OperationStatus,
  step: string,
  message: string,
): OperationStatus {
  if (operation.step === step) return { ...operation, message };
  return {
    ...operation,
    step,
    message,
    stepSince: toStamp(facts.nowMs),
    deadline: toStamp(facts.nowMs + PROGRESS_DEADLINE_MS),
  };
}

/** Ends the operation. `result` begins with Succeeded, Cancelled, Aborted or Superseded. */
export function endOperation(facts: Facts, operation: OperationStatus, result: string): Outcome {
  const succeeded = result.startsWith("Succeeded");
  const text = `${operation.kind}: ${result}`;
  return {
    operation: null,
    patch: { lastOperation: { ...operation, finishedAt: toStamp(facts.nowMs), result } },
    events: [
      {
        type: succeeded ? "Normal" : "Warning",
        reason: `${operation.kind}${result.split(":")[0] ?? ""}`,
        message: `${text} (${operation.cause})`,
      },
    ],
    waiting: { reason: operation.kind, message: text },
    lookAgainMs: 0,
  };
}

export function isOverdue(facts: Facts, operation: OperationStatus): boolean {
  return facts.nowMs > (fromStamp(operation.deadline) ?? Number.POSITIVE_INFINITY);
}

/** Milliseconds until an operation of `kind` may be tried again after it was aborted; 0: now. */
export function backoffLeftMs(facts: Facts, kind: OperationStatus["kind"]): number {
  const last = facts.previous.lastOperation;
  if (last?.kind !== kind || !last.result.startsWith("Aborted")) return 0;
  const finished = fromStamp(last.finishedAt) ?? 0;
  return Math.max(0, finished + backoffMs(last.attempt) - facts.nowMs);
}
