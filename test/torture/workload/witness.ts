import type { KeyOperation } from "../../linearizability/facts.ts";
import { describeOperation } from "../../linearizability/text.ts";
import type {
  KeyCompare,
  KeyInput,
  KeyOutput,
  KeyStep,
  Seen,
  StepOutput,
} from "../../linearizability/words.ts";
import { valuesOf } from "../../linearizability/words.ts";
import type { CanonicalHistory, KeyState } from "./canonical-history.ts";

/** An operation at its place in the one order that the revisions tell. */
interface Placed {
  readonly operation: KeyOperation;
  readonly revision: number;
  /** It made its revision; otherwise it saw it. */
  readonly wrote: boolean;
  readonly returnedAt: number;
}

/**
 * Checks that the order of the cell's revisions is a linearization: every answer is what a single object would have
 * answered at its revision, and no operation that came after another one ended has an earlier place. Where a search has
 * to find an order, this has one in hand; it trusts the cell's word for the revisions and nothing else, and an order that
 * passes proves the history linearizable.
 *
 * @returns what contradicts it, for people
 */
export function checkWitness(operations: readonly KeyOperation[], history: CanonicalHistory): string[] {
  const problems: string[] = [];
  const revisionOf = new Map<string, number>();
  for (const { revision, events } of history.revisions) {
    for (const { kind, value } of events) if (kind === "put") revisionOf.set(value, revision);
  }
  const placed: Placed[] = [];
  for (const operation of operations) {
    const place = placeOf(operation, revisionOf);
    if (place === undefined) continue;
    placed.push(place);
    const { outcome, input } = operation;
    if (outcome.kind === "ok" && !answersFit(input, outcome.output, place, history)) {
      problems.push(
        `${describeOperation(operation)} does not fit the history at revision ${String(place.revision)}`,
      );
    }
  }
  return [...problems, ...againstRealTime(placed)];
}

function placeOf(operation: KeyOperation, revisionOf: ReadonlyMap<string, number>): Placed | undefined {
  const { input, outcome } = operation;
  if (outcome.kind === "unknown") {
    // It took effect if somebody ever saw its value; a deletion has none, and may have been anywhere.
    const revision = valuesOf(input)
      .map((value) => revisionOf.get(value))
      .find((one) => one !== undefined);
    return revision === undefined ? undefined : { operation, revision, wrote: true, returnedAt: Infinity };
  }
  const { output, returnedAt } = outcome;
  if (output.revision === undefined) return undefined;
  return { operation, revision: output.revision, wrote: didWrite(input, output), returnedAt };
}

function didWrite(input: KeyInput, output: KeyOutput): boolean {
  if (output.kind === "delete") return output.deleted > 0;
  if (output.kind !== "txn") return output.kind === "put";
  return stepsTaken(input, output).some(({ kind }) => kind === "put");
}

export function stepsTaken(input: KeyInput, output: KeyOutput): readonly KeyStep[] {
  if (input.kind !== "txn") return [input];
  return output.kind === "txn" && output.succeeded ? input.success : input.failure;
}

function answersFit(input: KeyInput, output: KeyOutput, place: Placed, history: CanonicalHistory): boolean {
  const before = place.wrote ? place.revision - 1 : place.revision;
  if (input.kind === "txn") {
    const holds = input.compares.every((compare) =>
      compareHolds(compare, history.stateAt(compare.key, before)),
    );
    if (output.kind !== "txn" || holds !== output.succeeded) return false;
  }
  const answers = output.kind === "txn" ? output.responses : [output];
  return stepsTaken(input, output).every((step, n) => stepFits(step, answers[n], { place, before, history }));
}

function stepFits(
  step: KeyStep,
  answer: StepOutput | undefined,
  {
    place,
    before,
    history,
  }: { readonly place: Placed; readonly before: number; readonly history: CanonicalHistory },
): boolean {
  const after = history.stateAt(step.key, place.revision);
  switch (step.kind) {
    case "get":
      return answer?.kind === "get" && isSame(answer.found, after);
    case "put":
      return after?.value === step.value && after.modRevision === place.revision;
    case "delete":
      return (
        answer?.kind === "delete" &&
        after === undefined &&
        answer.deleted > 0 === (history.stateAt(step.key, before) !== undefined)
      );
  }
}

function isSame(seen: Seen | null, state: KeyState | undefined): boolean {
  if (seen === null || state === undefined) return seen === null && state === undefined;
  return (
    seen.value === state.value &&
    seen.modRevision === state.modRevision &&
    seen.createRevision === state.createRevision &&
    seen.version === state.version
  );
}

/** The workload compares for equality only. */
function compareHolds({ target, operand }: KeyCompare, state: KeyState | undefined): boolean {
  switch (target) {
    case "value":
      return state?.value === operand;
    case "version":
      return (state?.version ?? 0) === operand;
    case "create-revision":
      return (state?.createRevision ?? 0) === operand;
    case "mod-revision":
      return (state?.modRevision ?? 0) === operand;
  }
}

/** Whoever was asked after an answer had come must have a later place, or the same one if it only looked. */
function againstRealTime(placed: readonly Placed[]): string[] {
  const problems: string[] = [];
  const byEnd = [...placed].sort((a, b) => a.returnedAt - b.returnedAt);
  const byBegin = [...placed].sort((a, b) => a.operation.invokedAt - b.operation.invokedAt);
  let ended = 0;
  let newest: Placed | undefined;
  for (const place of byBegin) {
    const { invokedAt } = place.operation;
    for (let next = byEnd[ended]; next !== undefined && next.returnedAt < invokedAt; next = byEnd[ended]) {
      if (next.revision > (newest?.revision ?? 0)) newest = next;
      ended += 1;
    }
    if (newest === undefined || place.revision > newest.revision) continue;
    if (place.revision === newest.revision && !place.wrote) continue;
    problems.push(
      `${describeOperation(place.operation)} has its place at revision ${String(place.revision)}, and yet it began after this one had ended at ${String(newest.revision)}: ${describeOperation(newest.operation)}`,
    );
  }
  return problems;
}
