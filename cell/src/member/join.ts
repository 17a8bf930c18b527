import { Metadata, credentials } from "@grpc/grpc-js";
import type { ServiceError } from "@grpc/grpc-js";
import { admin } from "@lockstep/proto";
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
  readonly log: Log;
  readonly after: (delayMs: number, task: () => void) => () => void;
  readonly random: () => number;
}

const TRY_TIMEOUT_MS = 5_000;
const BACKOFF_MS_MIN = 100;
const BACKOFF_MS_MAX = 3_000;

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
      return toJoined(await addLearner(target, options));
    } catch (error) {
      const refusal = error as ServiceError;
      const code = String(refusal.metadata.get("lockstep-error-code")[0] ?? "");
      if (["name-in-use", "invalid-argument", "wrong-cell", "too-many-members"].includes(code)) {
        throw new JoinRefused(refusal.details);
      }
      const leader = refusal.metadata.get("lockstep-leader-admin")[0];
      if (leader !== undefined && String(leader) !== target) hint = String(leader);
      // Two members that name each other, as in an election, are not asked in a tight loop.
      if (hint !== undefined && !wasHinted) continue;
      options.log.info("the cell did not take this member in yet; trying again", {
        target,
        reason: refusal.details,
      });
      await new Promise<void>((resolve) => {
        options.after(backoffMs * (0.5 + options.random()), resolve);
      });
      backoffMs = Math.min(backoffMs * 2, BACKOFF_MS_MAX);
    }
  }
}

function addLearner(target: string, options: JoinOptions): Promise<admin.AddLearnerResponse> {
  const client = new admin.AdminClient(target, credentials.createInsecure());
  const request: admin.AddLearnerRequest = {
    name: options.identity.name,
    incarnation: options.identity.incarnation,
    addresses: { ...options.addresses },
    plannedOn: 0,
    cellId: "",
  };
  return new Promise<admin.AddLearnerResponse>((resolve, reject) => {
    client.addLearner(
      request,
      new Metadata(),
      { deadline: Date.now() + TRY_TIMEOUT_MS },
      (error, response) => {
        if (error === null) resolve(response);
        else reject(error);
      },
    );
  }).finally(() => client.close());
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
