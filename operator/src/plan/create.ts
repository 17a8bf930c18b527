/** The first voter of a cell. Founding happens once: with no member and no volume of the cell anywhere. */
import { findMember } from "./facts.ts";
import type { Facts } from "./facts.ts";
import { memberNames } from "./names.ts";
import { atStep, beginOperation, begun, endOperation } from "./outcome.ts";
import type { Outcome } from "./outcome.ts";
import { choosePlace } from "./placement.ts";
import { BUSY_LOOK_MS, SICK_LOOK_MS } from "./time.ts";

/** The cell's id is written down as soon as a majority of its own proves it. */
export function learnCellId(facts: Facts): Outcome | undefined {
  const { configuration, previous } = facts;
  if (configuration === undefined || previous.cellId !== undefined) return undefined;
  return {
    patch: { cellId: configuration.cellId },
    waiting: { reason: "Founded", message: `The cell has the id ${configuration.cellId}.` },
    lookAgainMs: 0,
  };
}

export function foundCell(facts: Facts): Outcome | undefined {
  const { configuration, previous, operation, o } = facts;
  if (configuration !== undefined) return undefined;
  const objects = facts.members.filter(({ object }) => object !== undefined);
  if (previous.cellId !== undefined)
    return objects.length === 0 ? membersAreGone(previous.cellId) : undefined;
  const name = operation?.kind === "Create" ? operation.incoming?.[0] : undefined;
  if (operation !== undefined && name !== undefined) {
    const first = findMember(facts, name);
    if (first?.deleting === true) return endOperation(facts, operation, `Cancelled: ${name} was deleted`);
    if (first?.object !== undefined) {
      const trouble = first.view.pod?.trouble ?? first.view.claim?.trouble;
      const message = `Waits for the first voter ${name} to answer.`;
      return {
        operation: { ...operation, message },
        waiting: { reason: "Founding", message },
        ...(trouble === undefined ? {} : { stalled: trouble }),
        lookAgainMs: BUSY_LOOK_MS,
      };
    }
  }
  if (objects.length > 0) {
    const message = `Waits for one of ${objects.map((member) => member.name).join(", ")} to answer.`;
    return { waiting: { reason: "WaitingForMembers", message }, lookAgainMs: SICK_LOOK_MS };
  }
  if (o.namespaceTerminating) return { waiting: namespaceGoes() };
  const obstacle = o.obstacles[0];
  if (obstacle !== undefined) return { stalled: obstacle, lookAgainMs: SICK_LOOK_MS };
  if (o.orphanedClaims.length > 0) return { stalled: retained(o.orphanedClaims), lookAgainMs: SICK_LOOK_MS };
  if (o.certificates.kind === "waiting") {
    const waiting = { reason: "WaitingForCertificates", message: o.certificates.message };
    return { waiting, lookAgainMs: SICK_LOOK_MS };
  }
  const place = choosePlace(facts, { replaced: undefined, mayShareHost: false });
  if ("blocked" in place) {
    return { stalled: { reason: "Unschedulable", message: place.blocked }, lookAgainMs: SICK_LOOK_MS };
  }
  if (operation !== undefined && name !== undefined) {
    return {
      action: { kind: "create-member", name, zone: place.zone, bootstrap: true, replaces: undefined },
      operation: atStep(facts, operation, "members", `The first voter ${name} is made.`),
      lookAgainMs: BUSY_LOOK_MS,
    };
  }
  return beginCreate(facts);
}

function beginCreate(facts: Facts): Outcome {
  const operation = beginOperation(facts, {
    kind: "Create",
    cause: "the cell does not exist yet",
    trigger: "Spec",
    step: "begin",
    message: "The first voter is chosen.",
  });
  const incoming = memberNames(facts.cell.metadata.name, operation.id, 1, new Set());
  return begun({ ...operation, incoming });
}

function retained(claims: readonly string[]): { reason: string; message: string } {
  return {
    reason: "RetainedData",
    message: `Volumes of an earlier cell of this name are still there: ${claims.join(", ")}. Delete these PersistentVolumeClaims to start empty, or create CellMembers of their names to adopt them.`,
  };
}

function membersAreGone(cellId: string): Outcome {
  const message = `The cell ${cellId} existed, and none of its CellMembers is left. It is not founded anew over what was there: restore its CellMembers and volumes, or delete this CoordinationCell.`;
  return { stalled: { reason: "MembersLost", message }, lookAgainMs: SICK_LOOK_MS };
}

export function namespaceGoes(): { reason: string; message: string } {
  return {
    reason: "NamespaceTerminating",
    message: "The Kubernetes namespace is being deleted; nothing new is made in it.",
  };
}
