import { decodeMembership, findMember } from "../machine/membership.ts";
import type { MemberRecord, Membership } from "../machine/membership.ts";
import type { MemberId } from "../raft/types.ts";
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
 * Members that joined while this one was away. It lets in whom its own configuration names, so a leader that it has
 * never heard of could not send it the very entry that would introduce it. Ids are given in ascending order and never
 * again: who knocks with one beyond those that this member has seen is not a stranger for sure, and the members that it
 * does know are asked. What they say serves to let that member in and to answer it, and for nothing else: who votes
 * and who counts is decided by what is applied here.
 */
export class Newcomers {
  readonly #options: NewcomersOptions;
  #told: readonly MemberRecord[] = [];
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
    return this.#told.filter(({ id }) => isAhead(membership, id));
  }

  find(id: MemberId): MemberRecord | undefined {
    return this.records().find((record) => record.id === id);
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
    const { environment, membership, learnt } = this.#options;
    let told: Membership;
    try {
      told = decodeMembership(body);
    } catch (error) {
      environment.log.warn("a peer's membership cannot be read", { from, reason: String(error) });
      return;
    }
    const own = membership();
    if (told.cellId !== own.cellId || told.configurationIndex <= own.configurationIndex) return;
    const ahead = told.members.filter(({ id }) => isAhead(own, id));
    if (ahead.length === 0) return;
    this.#told = ahead;
    environment.log.info("told of members that joined meanwhile", {
      from,
      members: ahead.map(({ name }) => name).join(" "),
    });
    learnt();
  }
}

function isAhead(membership: Membership, id: MemberId): boolean {
  return id >= membership.nextMemberId && findMember(membership, id) === undefined;
}
