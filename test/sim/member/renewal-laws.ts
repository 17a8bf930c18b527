import type { Coordinator } from "@lockstep/gateway/coordinator";
import type { SimMember } from "../contract.ts";
import type { World } from "../world.ts";

const NAMESPACE_ID = 1;
const MARGIN_US = 5_000;

/**
 * I10, from the inside: what a member promises when it acknowledges a renewal. Both rules are those by which the next
 * leader computes its deadlines, so a breach is seen when it is made and not only when a session dies of it.
 *
 * - A leader that was deposed promises nothing once its successor may have begun to count: at most one election timeout
 *   after the successor was elected.
 * - No promise stands on a lease whose remaining time is written down: the next leader would count from that.
 */
export function watchRenewals(world: World, { host, core }: SimMember): void {
  const coordinator: Pick<Coordinator, "renew"> = core.coordinator;
  const renew = coordinator.renew.bind(core.coordinator);
  const { state, raft, timing } = core.replica.parts;
  const electionTimeoutUs = timing.tickMs * timing.electionTimeoutTicks * 1_000;
  const graceUs = electionTimeoutUs * (1 + 4 * world.plan.driftMax) + timing.tickMs * 2_000 + MARGIN_US;
  const leads = (): boolean => core.replica.isLeader;
  coordinator.renew = (renewal, deliver) => {
    // Elsewhere it is forwarded, and the promise is another's, even if this member leads when the answer comes.
    const isOwn = leads();
    renew(renewal, (outcome) => {
      if (outcome.ok && isOwn && leads()) {
        const promised = renewal.leaseIds.filter((_, at) => (outcome.remainingMs[at] ?? 0) > 0);
        world.count("lease renewals", promised.length);
        const successor = world.electedAfter(raft.term);
        if (promised.length > 0 && successor !== undefined && world.loop.nowUs - successor.atUs > graceUs) {
          world.violate(
            "I10-deposed",
            `${host}, leader of term ${String(raft.term)}, renews ${promised.join(" ")} ${((world.loop.nowUs - successor.atUs) / 1e6).toFixed(3)} s after term ${String(successor.term)} had another`,
          );
        }
        for (const leaseId of promised) {
          const lease = state.machine.lease(NAMESPACE_ID, leaseId, state.store);
          if ((lease?.checkpointMs ?? 0) > 0) {
            world.violate("I10-checkpoint", `${host} renews ${leaseId}, which has a checkpoint`);
          }
        }
      }
      deliver(outcome);
    });
  };
}
