/**
 * The cell's revisions against real time, over all keys together: what an answer shows is never behind what was shown
 * before its operation was invoked, a write is above it, and no two writes share a revision.
 */
import type { KeyOperation } from "./facts.ts";
import { describeOperation } from "./text.ts";
import { newestRevision, seenIn, wrote } from "./words.ts";

export interface RevisionOrderViolation {
  readonly first: KeyOperation;
  readonly second: KeyOperation;
  readonly text: string;
}

/** @returns undefined: nothing contradicts. */
export function checkRevisionOrder(history: readonly KeyOperation[]): RevisionOrderViolation | undefined {
  const answered = history.flatMap((operation) => {
    const { input, outcome } = operation;
    if (outcome.kind !== "ok") return [];
    const { output, returnedAt } = outcome;
    const shows = newestRevision(output, seenIn(input, output));
    return [{ operation, returnedAt, shows, revision: output.revision, writes: wrote(output) }];
  });
  const writers = new Map<number, KeyOperation>();
  for (const { operation, revision, writes } of answered) {
    if (!writes || revision === undefined) continue;
    const first = writers.get(revision);
    if (first !== undefined) return told("two writes have one revision", first, operation);
    writers.set(revision, operation);
  }
  const byReturn = answered.toSorted((a, b) => a.returnedAt - b.returnedAt);
  const byCall = answered.toSorted((a, b) => a.operation.invokedAt - b.operation.invokedAt);
  let next = 0;
  let newest: (typeof answered)[number] | undefined;
  for (const { operation, revision, writes } of byCall) {
    for (; next < byReturn.length && byReturn[next]!.returnedAt < operation.invokedAt; next += 1) {
      const shown = byReturn[next]!;
      if (newest === undefined || shown.shows > newest.shows) newest = shown;
    }
    if (newest === undefined || revision === undefined) continue;
    if (writes && revision <= newest.shows) {
      return told("a write is not above what was shown before it was invoked", newest.operation, operation);
    }
    if (revision < newest.shows) {
      return told("an answer is behind what was shown before it was asked for", newest.operation, operation);
    }
  }
  return undefined;
}

function told(what: string, first: KeyOperation, second: KeyOperation): RevisionOrderViolation {
  return { first, second, text: `${what}:\n  ${describeOperation(first)}\n  ${describeOperation(second)}` };
}
