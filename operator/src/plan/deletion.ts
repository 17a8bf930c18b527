/** The end of a cell. Nobody is removed from the configuration one by one: all of it goes. */
import { namespaceGoes } from "./create.ts";
import type { Facts } from "./facts.ts";
import type { Outcome } from "./outcome.ts";
import { BUSY_LOOK_MS } from "./time.ts";

const TENANTS_SHOWN = 5;

export function deleteCell(facts: Facts): Outcome | undefined {
  const { o, cell, spec } = facts;
  if (cell.metadata.deletionTimestamp === undefined) {
    return o.namespaceTerminating ? releaseInNamespace(facts) : undefined;
  }
  if (o.tenants.length > 0 && !o.namespaceTerminating) return { stalled: waitForTenants(o.tenants) };
  const waiting = { reason: "Deleting", message: "The members are taken away." };
  const member = facts.members.find(({ object }) => object !== undefined);
  if (member?.object === undefined) {
    return { action: { kind: "release-cell" }, operation: null, waiting, lookAgainMs: BUSY_LOOK_MS };
  }
  const uid = member.object.metadata.uid ?? "";
  return {
    action: member.deleting
      ? {
          kind: "release-member",
          member: member.name,
          uid,
          deleteClaim: spec.storage.reclaimPolicy === "Delete",
        }
      : { kind: "delete-member", member: member.name, uid },
    operation: null,
    waiting,
    lookAgainMs: BUSY_LOOK_MS,
  };
}

/** The namespace takes the cell's objects one after the other; none of them may hold it up. */
function releaseInNamespace(facts: Facts): Outcome {
  const member = facts.members.find(({ deleting }) => deleting);
  if (member?.object === undefined) return { waiting: namespaceGoes() };
  const uid = member.object.metadata.uid ?? "";
  return {
    action: { kind: "release-member", member: member.name, uid, deleteClaim: false },
    waiting: namespaceGoes(),
    lookAgainMs: BUSY_LOOK_MS,
  };
}

function waitForTenants(tenants: readonly string[]): { reason: string; message: string } {
  const shown = tenants.slice(0, TENANTS_SHOWN).join(", ");
  const more = tenants.length > TENANTS_SHOWN ? ` and ${String(tenants.length - TENANTS_SHOWN)} more` : "";
  return {
    reason: "TenantsExist",
    message: `The cell is deleted when nobody uses it any more: ${shown}${more}. Delete these cellnamespaces.lockstep.dev first.`,
  };
}
