import { decodeMembership, decodePlan, findMember } from "../machine/membership.ts";
import type { MemberRecord, Membership } from "../machine/membership.ts";
import { decodeConfigurationChange } from "../raft/index.ts";
import type { Entry, MemberId } from "../raft/types.ts";
import type { Transport } from "../transport/types.ts";
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

/**
 * Members that are not in the applied membership yet. A member lets in whom its own configuration names, so one that it
 * has never heard of could not send it the very entry that would introduce it, and the two may need each other for a
 * majority. It hears of them in two ways:
 *
 * - From its own log, where the change that adds them stands and is not known to be committed (after a restart that can
 *   be all that is left: the commit index on disk lags).
 * - From the members that it knows, when one knocks. Ids are given in ascending order and never again: who comes with
 *   one beyond those that this member has seen may have joined while it was away.
 *
 * That serves to let them in and to answer them, and for nothing else: who votes and who counts is decided elsewhere.
 */
export class Newcomers {
  readonly #options: NewcomersOptions;
  readonly #told = new Map<MemberId, MemberRecord>();
  #asking = false;
  #askedMs = Number.NEGATIVE_INFINITY;
  /** Whom to ask next. */
  #turn = 0;

  constructor(options: NewcomersOptions) {
    this.#options = options;
  }

  /** Those that the applied membership does not name (yet). */
  records(): readonly MemberRecord[] {
    const membership = this.#options.membership();
    for (const id of [...this.#told.keys()]) if (!isAhead(membership, id)) this.#told.delete(id);
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

  /** An unknown member of this cell wants in. */
  knocked(id: MemberId): void {
    const { environment, membership, transport, self } = this.#options;
    const nowMs = environment.clock.monotonicMs();
    if (!isAhead(membership(), id) || this.#asking || nowMs - this.#askedMs < ASK_PAUSE_MS) return;
    const known = membership().members.filter((member) => member.id !== self);
    const asked = known[this.#turn % Math.max(1, known.length)];
    if (asked === undefined) return;
    this.#turn += 1;
    this.#askedMs = nowMs;
    this.#asking = true;
    // In a turn of its own: the question whom to let in is asked from within the transport.
    environment.schedule(() => {
      transport()?.request(asked.id, encodeForwarded({ kind: "membership" }), ASK_TIMEOUT_MS, (body) => {
        this.#asking = false;
        if (body !== undefined && body !== "unsent") this.#answered(asked.id, body);
      });
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

  /** @returns whether somebody is new. */
  #hear(records: readonly MemberRecord[]): boolean {
    const membership = this.#options.membership();
    const fresh = records.filter(
      ({ id, incarnation }) => isAhead(membership, id) && this.#told.get(id)?.incarnation !== incarnation,
    );
    for (const record of fresh) this.#told.set(record.id, record);
    if (fresh.length > 0) this.#options.learnt();
    return fresh.length > 0;
  }
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
