import { findMember } from "../machine/membership.ts";
import type { Replica } from "../replica/replica.ts";
import { AdminError } from "./admin-error.ts";

/** How long the admin API waits for a majority's decision. */
export const DECISION_TIMEOUT_MS = 15_000;

/** @throws AdminError that names the leader when this member is not it */
export function requireLeader(replica: Replica): void {
  if (replica.isLeader) return;
  const leader = findMember(replica.parts.state.membership, replica.leaderId);
  throw new AdminError(
    "not-leader",
    leader === undefined
      ? "This member does not lead and knows no leader. Try again, or another member."
      : `Member ${leader.name} leads; its admin address is ${leader.addresses.admin}.`,
    leader?.addresses.admin,
  );
}

/** Resolves once a read-index round has proved that what is applied here is as new as when it was asked for. */
export function readPoint(replica: Replica): Promise<void> {
  const { clock } = replica.parts.environment;
  return new Promise((resolve, reject) => {
    replica.read({
      serve: resolve,
      fail: (failure) => reject(new AdminError("no-leader", failure.message)),
      deadlineMs: clock.monotonicMs() + DECISION_TIMEOUT_MS,
    });
  });
}
