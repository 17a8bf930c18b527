/** Turns one answer of a history into a lie, which may or may not be noticed by anybody. */
import type { KeyOperation } from "../facts.ts";
import type { KeyOutput } from "../words.ts";
import { seenIn } from "../words.ts";
import type { SmallDice } from "./dice.ts";

interface Leaf {
  readonly holder: Record<string, unknown>;
  readonly name: string;
}

/** @returns undefined: there is no answer to change */
export function mutateOne(
  history: readonly KeyOperation[],
  dice: SmallDice,
): readonly KeyOperation[] | undefined {
  const answered = history.flatMap(({ outcome }, index) => (outcome.kind === "ok" ? [index] : []));
  if (answered.length === 0) return undefined;
  const index = dice.pick(answered);
  const operation = history[index]!;
  if (operation.outcome.kind !== "ok") return undefined;
  const { output, returnedAt } = operation.outcome;
  const changed = [...history];
  if (dice.chance(0.25)) {
    // It may have been asked for later or answered sooner.
    const at = dice.between(operation.invokedAt, returnedAt);
    changed[index] = dice.chance(0.5)
      ? { ...operation, invokedAt: at }
      : { ...operation, outcome: { kind: "ok", output, returnedAt: at } };
    return changed;
  }
  const lie = structuredClone(output) as unknown as Record<string, unknown>;
  const leaves = leavesOf(lie);
  if (leaves.length === 0) return undefined;
  const { holder, name } = dice.pick(leaves);
  holder[name] = another(holder[name], { history, dice, name });
  changed[index] = { ...operation, outcome: { kind: "ok", output: lie as unknown as KeyOutput, returnedAt } };
  return changed;
}

function leavesOf(tree: Record<string, unknown>): readonly Leaf[] {
  return Object.entries(tree).flatMap(([name, value]): readonly Leaf[] => {
    if (name === "kind" || name === "index" || value === undefined) return [];
    const own = [{ holder: tree, name }];
    if (typeof value !== "object" || value === null) return own;
    const deeper = leavesOf(value as Record<string, unknown>);
    return name === "found" || name === "previous" || name === "actual" ? [...own, ...deeper] : deeper;
  });
}

function another(
  value: unknown,
  {
    history,
    dice,
    name,
  }: { readonly history: readonly KeyOperation[]; readonly dice: SmallDice; readonly name: string },
): unknown {
  if (typeof value === "boolean") return !value;
  if (name === "deleted") return 1 - Number(value);
  if (typeof value === "number") return Math.max(1, value + dice.pick([-2, -1, 1, 2]));
  const states = history.flatMap(({ input, outcome }) =>
    outcome.kind === "ok" ? seenIn(input, outcome.output) : [],
  );
  if (typeof value === "string") return dice.pick([...states.map((state) => state.value), "v1", "v2", "v3"]);
  return states.length > 0 && dice.chance(0.7) ? structuredClone(dice.pick(states)) : null;
}
