import type { admin } from "@lockstep/proto";
import type { MemberAddresses, MemberRecord } from "../machine/membership.ts";
import type { MemberId } from "../raft/types.ts";
import type { Log } from "../replica/environment.ts";
import type { UnjoinedIdentity } from "./identity.ts";

export interface Joined {
  readonly cellId: string;
  readonly memberId: MemberId;
  readonly members: readonly MemberRecord[];
}

export interface JoinOptions {
  readonly identity: UnjoinedIdentity;
  readonly addresses: MemberAddresses;
  /** Admin addresses of members of the cell, tried in turn; a leader named by an answer is tried next. */
  readonly targets: readonly string[];
  readonly ask: AskToJoin;
  readonly log: Log;
  readonly after: (delayMs: number, task: () => void) => () => void;
  readonly random: () => number;
}

const BACKOFF_MS_MIN = 100;
const BACKOFF_MS_MAX = 3_000;

/** One attempt at one member's admin API, bounded by {@link JOIN_TRY_MS_MAX}. Rejects with {@link JoinFailure}. */
export type AskToJoin = (
  target: string,
  request: admin.AddLearnerRequest,
) => Promise<admin.AddLearnerResponse>;

export const JOIN_TRY_MS_MAX = 5_000;

/** The member could not be reached, or refused. */
export class JoinFailure extends Error {
  override readonly name = "JoinFailure";
  /** The admin API's code; empty: it was not the admin API that refused. */
  readonly code: string;
  /** Where the leader's admin API listens, if the refusal says so. */
  readonly leaderAdmin: string | undefined;

  constructor(code: string, message: string, leaderAdmin?: string) {
    super(message);
    this.code = code;
    this.leaderAdmin = leaderAdmin;
  }
}

/** A refusal that trying again does not cure; the message says what to do. */
export class JoinRefused extends Error {
  override readonly name = "JoinRefused";
}

/**
 * Asks the cell to take this member in as a learner; keeps asking while the cell cannot be reached or has no leader.
 * Idempotent by name and incarnation, so a lost answer or a restart does no harm.
 */
export async function joinCell(options: JoinOptions): Promise<Joined> {
  let backoffMs = BACKOFF_MS_MIN;
  let hint: string | undefined;
  for (let attempt = 0; ; attempt += 1) {
    const target = hint ?? options.targets[attempt % options.targets.length];
    if (target === undefined)
      throw new JoinRefused("No admin address of the cell was given (--join HOST:PORT).");
    const wasHinted = hint !== undefined;
    hint = undefined;
    try {
      return toJoined(await options.ask(target, toRequest(options)));
    } catch (error) {
      if (!(error instanceof JoinFailure)) throw error;
      const { code, leaderAdmin } = error;
      if (["name-in-use", "invalid-argument", "wrong-cell", "too-many-members"].includes(code)) {
        throw new JoinRefused(error.message);
      }
      if (leaderAdmin !== undefined && leaderAdmin !== target) hint = leaderAdmin;
      // Two members that name each other, as in an election, are not asked in a tight loop.
      if (hint !== undefined && !wasHinted) continue;
      options.log.info("the cell did not take this member in yet; trying again", {
        target,
        reason: error.message,
      });
      await new Promise<void>((resolve) => {
        options.after(backoffMs * (0.5 + options.random()), resolve);
      });
      backoffMs = Math.min(backoffMs * 2, BACKOFF_MS_MAX);
    }
  }
}

function toRequest({ identity, addresses }: JoinOptions): admin.AddLearnerRequest {
  return {
    name: identity.name,
    incarnation: identity.incarnation,
    addresses: { ...addresses },
    plannedOn: 0,
    cellId: "",
  };
}

function toJoined(response: admin.AddLearnerResponse): Joined {
  return {
    cellId: response.cellId,
    memberId: response.memberId as MemberId,
    members: response.members.map((member) => ({
      id: member.id as MemberId,
      name: member.name,
      incarnation: member.incarnation,
      addresses: member.addresses ?? { client: "", http: "", peer: "", admin: "", ops: "" },
    })),
  };
}
