import { quorumOf } from "./facts.ts";
import type { Facts } from "./facts.ts";
import type { Outcome } from "./outcome.ts";
import { BUSY_LOOK_MS } from "./time.ts";

/** Kinds during which no voluntary disruption is allowed. */
const EXCLUSIVE = new Set(["Create", "Grow", "Shrink", "Replace", "Roll"]);

/**
 * minAvailable of the PodDisruptionBudget. All voters while a change is under way: an eviction in the middle of it
 * would come on top of what the change itself takes. Without a configuration it stays as it is.
 */
export function wantedBudget(facts: Facts): number {
  const voters = facts.voters.filter(({ kind }) => kind === "voter").length;
  if (voters === 0) return facts.o.disruptionBudget ?? quorumOf(facts.previous.voters ?? 1);
  const { operation } = facts;
  return operation !== undefined && EXCLUSIVE.has(operation.kind) ? voters : quorumOf(voters);
}

/** Services, PodDisruptionBudget and the like are as wanted before anything else is done. */
export function keepShared(facts: Facts): Outcome | undefined {
  const { o, previous } = facts;
  if (o.namespaceTerminating) return undefined;
  const budget = wantedBudget(facts);
  if (o.outdatedObjects.length === 0 && o.disruptionBudget === budget) return undefined;
  return {
    action: {
      kind: "apply-shared",
      disruptionMinAvailable: budget,
      admitted: previous.admitted === true,
    },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

/** Clients are let in once, when all voters that were asked for at first have joined. */
export function admitClients(facts: Facts): Outcome | undefined {
  const { configuration, previous, spec, voters } = facts;
  if (previous.admitted === true || configuration === undefined || configuration.joint) return undefined;
  const [founder] = voters;
  const isAlone = spec.voters === 1 && founder?.healthy === true && founder.view.pod?.start !== "bootstrap";
  // More than one voter: those that were asked for at first came all at once.
  if (voters.length === 1 && !isAlone) return undefined;
  return {
    patch: { admitted: true },
    action: {
      kind: "apply-shared",
      disruptionMinAvailable: facts.o.disruptionBudget ?? wantedBudget(facts),
      admitted: true,
    },
    events: [
      {
        type: "Normal",
        reason: "Admitted",
        message: `All ${String(voters.length)} voters have joined; clients are let in.`,
      },
    ],
    lookAgainMs: 0,
  };
}
