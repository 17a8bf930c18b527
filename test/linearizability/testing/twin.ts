/**
 * The twin of the checker: tries every order that respects real time, with every subset of the unknown outcomes and every
 * revision that an operation may have. For histories of a handful of operations.
 */
import type { KeyOperation } from "../facts.ts";
import { perform } from "./dumb-cell.ts";
import type { CellKeys } from "./dumb-cell.ts";

/** @returns whether the whole history, over all its keys together, is linearizable */
export function bruteForce(history: readonly KeyOperation[]): boolean {
  const placed = history.map(() => false);
  const limit =
    Math.max(0, ...numbersIn(history.map(({ input, outcome }) => [input, outcome]))) + history.length;

  const mayBeNext = (operation: KeyOperation): boolean =>
    history.every(
      ({ outcome }, index) =>
        placed[index] === true || outcome.kind === "unknown" || outcome.returnedAt >= operation.invokedAt,
    );

  const search = (keys: CellKeys, last: number): boolean => {
    if (history.every(({ outcome }, index) => placed[index] === true || outcome.kind === "unknown"))
      return true;
    for (const [index, operation] of history.entries()) {
      if (placed[index] === true || !mayBeNext(operation)) continue;
      placed[index] = true;
      for (const [nextKeys, nextLast] of outcomesOf(operation, { keys, last, limit })) {
        if (search(nextKeys, nextLast)) return true;
      }
      placed[index] = false;
    }
    return false;
  };
  return search(new Map(), 0);
}

function outcomesOf(
  { input, outcome }: KeyOperation,
  { keys, last, limit }: { readonly keys: CellKeys; readonly last: number; readonly limit: number },
): readonly (readonly [CellKeys, number])[] {
  const told = outcome.kind === "ok" ? outcome.output : undefined;
  const idle = perform(keys, input, 0);
  if (!idle.changed) {
    if (told === undefined) return [];
    const { revision, ...rest } = told;
    const at = revision ?? last;
    return at >= last && fits(rest, idle.output) ? [[keys, at]] : [];
  }
  const found: [CellKeys, number][] = [];
  for (let revision = last + 1; revision <= limit; revision += 1) {
    if (told?.revision !== undefined && told.revision !== revision) continue;
    const done = perform(keys, input, revision);
    if (told === undefined || fits(told, done.output)) found.push([done.keys, revision]);
  }
  return found;
}

/** Whatever was told is so. */
function fits(told: unknown, real: unknown): boolean {
  if (Array.isArray(told)) {
    return Array.isArray(real) && told.length === real.length && told.every((one, at) => fits(one, real[at]));
  }
  if (typeof told !== "object" || told === null) return told === real;
  if (typeof real !== "object" || real === null) return false;
  const fields = real as Readonly<Record<string, unknown>>;
  return Object.entries(told).every(([name, one]) => one === undefined || fits(one, fields[name]));
}

function numbersIn(tree: unknown): number[] {
  if (typeof tree === "number") return [tree];
  if (typeof tree !== "object" || tree === null) return [];
  return Object.entries(tree).flatMap(([name, one]) => (name === "returnedAt" ? [] : numbersIn(one)));
}
