import { Seldom } from "@lockstep/gateway";
import { findMember } from "../machine/membership.ts";
import type { MemberRecord } from "../machine/membership.ts";
import type { Replica } from "../replica/replica.ts";
import type { TransportHandlers } from "../transport/types.ts";
import type { MemberIdentity } from "./identity.ts";
import { readPeer } from "./tls-access.ts";

export interface DoorkeeperParts {
  readonly identity: Pick<MemberIdentity, "cellId" | "memberId">;
  readonly replica: Pick<Replica, "newcomers" | "parts">;
  /** With TLS: the cell that peers' certificates must name. undefined: there are no certificates. */
  readonly cellUid: string | undefined;
}

/**
 * Who is let in as a peer, and whom this member takes for the one it dialled. With TLS it takes both: a certificate
 * that names a member of this cell, and a configuration in which the member of that name has the id and the incarnation
 * that are claimed. So neither a certificate that was issued for a member that has left, nor a stolen name, is enough.
 */
export function createDoorkeeper(parts: DoorkeeperParts): Pick<TransportHandlers, "admit" | "recognise"> {
  const { identity, replica, cellUid } = parts;
  const { state, environment } = replica.parts;
  const seldom = new Seldom(undefined, () => environment.clock.monotonicMs());
  const warn = (reason: string, claimed: number): void =>
    seldom.say((unsaid) =>
      environment.log.warn("a peer's certificate is not taken", { reason, claimed, unsaid }),
    );

  const admit: TransportHandlers["admit"] = (peer) => {
    if (peer.cellId !== identity.cellId) return { ok: false, reason: "wrong-cell" };
    if (peer.toMemberId !== identity.memberId) return { ok: false, reason: "wrong-member" };
    const proved = cellUid === undefined ? undefined : readPeer(peer.certificate, cellUid);
    if (proved?.ok === false) {
      warn(proved.reason, peer.memberId);
      return { ok: false, reason: "wrong-certificate" };
    }
    const { membership } = state;
    if (membership.removedIds.includes(peer.memberId)) return { ok: false, reason: "removed" };
    const record = findMember(membership, peer.memberId) ?? replica.newcomers.find(peer.memberId);
    if (record === undefined) {
      replica.newcomers.knocked(peer);
      return { ok: false, reason: "unknown-member" };
    }
    if (proved !== undefined && proved.name !== record.name) {
      warn(`it is for member/${proved.name}, and member ${record.name} is claimed`, peer.memberId);
      return { ok: false, reason: "wrong-certificate" };
    }
    if (record.incarnation !== peer.incarnation) return { ok: false, reason: "wrong-incarnation" };
    return { ok: true };
  };
  if (cellUid === undefined) return { admit };

  const recognise: NonNullable<TransportHandlers["recognise"]> = (address, certificate) => {
    const proved = readPeer(certificate, cellUid);
    if (!proved.ok) return proved.reason;
    const there = [...state.membership.members, ...replica.newcomers.records()].filter(
      (record: MemberRecord) => record.addresses.peer === address,
    );
    // Nobody is known at the address of one that knocked: it is asked who it is, and believed no further (ADR 0009).
    if (there.length === 0 || there.some(({ name }) => name === proved.name)) return undefined;
    return `it is for member/${proved.name}, and ${there.map(({ name }) => name).join(" or ")} was dialled`;
  };
  return { admit, recognise };
}
