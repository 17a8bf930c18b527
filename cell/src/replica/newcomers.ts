import { decodeMembership, decodePlan, findMember } from "../machine/membership.ts";
import type { MemberRecord, Membership } from "../machine/membership.ts";
import { decodeConfigurationChange } from "../raft/index.ts";
import type { Entry, MemberId } from "../raft/types.ts";
import type { PeerAddress, Transport } from "../transport/types.ts";
import type { Environment } from "./environment.ts";
import { encodeForwarded } from "./forwarding.ts";

export interface NewcomersOptions {
  readonly self: MemberId;
  readonly environment: Environment;
  /** As this member has applied it. */
  readonly membership: () => Membership;
  readonly transport: () => Transport | undefined;
  /** Somebody new is known, who may be let in and answered. */
  readonly learnt: () => void;
}

const ASK_TIMEOUT_MS = 2_000;
/** A member that is refused knocks again and again; the others are asked at most this often. */
const ASK_PAUSE_MS = 1_000;
const STRANGERS_MAX = 4;

/**
 * Members that are not in the applied membership yet. A member lets in whom its own configuration names, so one that it
 * has never heard of could not send it the very entry that would introduce it, and the two may need each other for a
 * majority. It hears of them:
 *
 * - from its own log, where the change that adds them stands and is not known to be committed (after a restart that can
 *   be all that is left: the commit index on disk lags);
 * - from the members that it knows, or from the one that knocks, when one does. Ids are given in ascending order and
 *   never again: who comes with one beyond those that this member has seen may have joined while it was away.
 *
 * That serves to let them in and to answer them, and for nothing else: who votes and who counts is decided elsewhere.
 */
export class Newcomers {
  readonly #options: NewcomersOptions;
  readonly #told = new Map<MemberId, MemberRecord>();
  /** Who knocks and is known by nobody here: dialled to be asked, and let in by nothing of it. */
  readonly #strangers = new Map<MemberId, PeerAddress>();
  #asking = false;
  #askedMs = Number.NEGATIVE_INFINITY;
  /** Whom to ask next. */
  #turn = 0;

  constructor(options: NewcomersOptions) {
    this.#options = options;
  }

  /** Those that the applied membership does not name (yet). */
  records(): readonly MemberRecord[] {
    this.#forgetThePassed(this.#told);
    return [...this.#told.values()];
  }

  find(id: MemberId): MemberRecord | undefined {
    return this.records().find((record) => record.id === id);
  }

  /** Entries that this member's log holds: they may add somebody. */
  logged(entries: readonly Entry[]): void {
    for (const { kind, data } of entries) {
      const added = kind === "configuration" ? addedBy(data) : undefined;
      if (added !== undefined) this.#hear([added]);
    }
  }

  /** Peers to dial beside the members: those that are told of, and strangers that are to be asked. */
  peers(): readonly PeerAddress[] {
    this.#forgetThePassed(this.#strangers);
    return [...this.records().map(peerAddressOf), ...this.#strangers.values()];
  }

  /** An unknown member of this cell wants in. */
  knocked(peer: PeerAddress): void {
    const { environment, membership } = this.#options;
    const nowMs = environment.clock.monotonicMs();
    if (!isAhead(membership(), peer.memberId) || this.#asking || nowMs - this.#askedMs < ASK_PAUSE_MS) return;
    this.#askedMs = nowMs;
    this.#asking = true;
    // In a turn of its own: whom to let in is asked from within the transport.
    environment.schedule(() => this.#ask(peer));
  }

  /** One of the members that are known, or, every other time, the one that knocks: all others may be gone. */
  #ask(peer: PeerAddress): void {
    const { membership, transport, self, learnt } = this.#options;
    this.#turn += 1;
    const known = membership().members.filter((member) => member.id !== self);
    const asked =
      this.#turn % 2 === 1 ? known[(this.#turn >>> 1) % Math.max(1, known.length)]?.id : undefined;
    if (asked === undefined && peer.address !== "" && !this.#strangers.has(peer.memberId)) {
      if (this.#strangers.size >= STRANGERS_MAX) this.#strangers.clear();
      this.#strangers.set(peer.memberId, peer);
      learnt();
    }
    const to = asked ?? peer.memberId;
    const peers = transport();
    if (peers === undefined) this.#asking = false;
    peers?.request(to, encodeForwarded({ kind: "membership" }), ASK_TIMEOUT_MS, (body) => {
      this.#asking = false;
      if (body !== undefined && body !== "unsent") this.#answered(to, body);
    });
  }

  #answered(from: MemberId, body: Uint8Array): void {
    const { environment, membership } = this.#options;
    let told: Membership;
    try {
      told = decodeMembership(body);
    } catch (error) {
      environment.log.warn("a peer's membership cannot be read", { from, reason: String(error) });
      return;
    }
    const own = membership();
    if (told.cellId !== own.cellId || told.configurationIndex <= own.configurationIndex) return;
    if (this.#hear(told.members)) environment.log.info("told of members that joined meanwhile", { from });
  }

  /** Those whose addition was applied here, or passed by. */
  #forgetThePassed(members: Map<MemberId, unknown>): void {
    const membership = this.#options.membership();
    for (const id of [...members.keys()]) if (!isAhead(membership, id)) members.delete(id);
  }

  /** @returns whether somebody is new. */
  #hear(records: readonly MemberRecord[]): boolean {
    const membership = this.#options.membership();
    const fresh = records.filter(
      ({ id, incarnation }) => isAhead(membership, id) && this.#told.get(id)?.incarnation !== incarnation,
    );
    for (const record of fresh) {
      this.#told.set(record.id, record);
      this.#strangers.delete(record.id);
    }
    if (fresh.length > 0) this.#options.learnt();
    return fresh.length > 0;
  }
}

/** How the transport is told of a member. */
export function peerAddressOf({ id, incarnation, addresses }: MemberRecord): PeerAddress {
  return { memberId: id, incarnation, address: addresses.peer };
}

/** Whom a configuration entry adds, if anybody; what cannot be read is refused when it is applied. */
function addedBy(data: Uint8Array): MemberRecord | undefined {
  try {
    return decodePlan(decodeConfigurationChange(data).context)?.add;
  } catch {
    return undefined;
  }
}

function isAhead(membership: Membership, id: MemberId): boolean {
  return id >= membership.nextMemberId && findMember(membership, id) === undefined;
}
