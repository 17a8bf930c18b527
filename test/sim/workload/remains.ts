/** What attempts leave behind: nothing, and that while their session lives on. */
import type { Session } from "@lockstep/client";
import { RECIPE_ROOTS } from "../checkers/resources.ts";
import type { Tools } from "./tools.ts";
import type { Connection } from "./connection.ts";

/** An attempt whose answer was lost is looked for up to 26 s after it, and then the cell has to answer. */
const GONE_US_MAX = 40_000_000;
const LOOK_MS = 500;
/** In a world with faults: then nothing is sure, but there is something to clear away. */
const LINGER_CHANCE = 0.5;

/**
 * Stays, with nothing held and nobody waiting, until no key of the session is left. In a cell that is well that has a
 * bound; whoever closes the session at once would not see what only the session's end removes.
 */
export async function lingerForRemains(connection: Connection, session: Session): Promise<void> {
  const { context, tools, host } = connection;
  const left = (): readonly string[] => keysOf(tools, session.leaseId);
  if (left().length === 0) return;
  if (tools.health.healedAtUs === undefined && !context.dice.chance(LINGER_CHANCE)) return;
  tools.reporter.count("remains waited for");
  const sinceUs = connection.nowUs;
  while (!session.lost.aborted && left().length > 0) {
    const { healedAtUs } = tools.health;
    if (healedAtUs !== undefined && connection.nowUs > Math.max(sinceUs, healedAtUs) + GONE_US_MAX) {
      tools.reporter.violation(
        "I11-left",
        `${host} holds nothing and waits for nothing since ${sinceUs} us, its lease ${session.leaseId} lives, and ${left().join(", ")} is still there`,
      );
    }
    await context.sleep(LOOK_MS);
  }
}

function keysOf(tools: Tools, leaseId: string): readonly string[] {
  return recipeKeys(tools).flatMap((state) => (state.leaseId === leaseId ? [state.key] : []));
}

/** For the end of a history: all sessions have ended, and with them everything that they made. */
export function expectNothingLeft(tools: Tools): void {
  for (const { key, leaseId } of recipeKeys(tools)) {
    tools.reporter.violation("I11-left", `${key} (lease ${leaseId}) is there after the end of all sessions`);
  }
}

function recipeKeys({ truth }: Pick<Tools, "truth">) {
  return RECIPE_ROOTS.flatMap((root) => truth.rangeAt(root, truth.revision));
}
