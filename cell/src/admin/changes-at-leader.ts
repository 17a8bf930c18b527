import type { MemberId } from "../raft/types.ts";
import { decodeChangeAnswer, encodeForwarded } from "../replica/forwarding.ts";
import type { ChangeRefused, ForwardedChange } from "../replica/forwarding-heads.ts";
import type { Replica } from "../replica/replica.ts";
import type { Transport } from "../transport/types.ts";
import { AdminError, isAdminErrorCode } from "./admin-error.ts";
import type { AdminErrorCode } from "./admin-error.ts";
import type { MembershipChanges } from "./membership-changes.ts";

/** Longer than the leader takes for its own decision and for leaving a joint configuration. */
const CHANGE_TIMEOUT_MS = 80_000;

export interface ChangesAtLeaderOptions {
  readonly replica: Replica;
  readonly changes: MembershipChanges;
  readonly transport: Pick<Transport, "request">;
}

/**
 * Membership changes of clients that do not look for the leader, as etcd's do not: made here when this member leads,
 * else passed on to who does, once.
 */
export class ChangesAtLeader {
  readonly #options: ChangesAtLeaderOptions;

  constructor(options: ChangesAtLeaderOptions) {
    this.#options = options;
  }

  /** @throws AdminError; `timeout`: it may still take effect */
  async change(change: ForwardedChange): Promise<void> {
    const { replica } = this.#options;
    if (replica.isLeader) return this.#here(change);
    const leader = replica.leaderId;
    if (leader === 0) throw noLeader();
    const refused = await this.#ask(leader, change);
    // The leader that is to go may be gone before it could answer.
    if (refused === "unknown" && !(await this.#isMade(change))) {
      throw new AdminError(
        "timeout",
        "The leader did not answer: the change may still be made. List the members.",
      );
    }
    if (refused !== undefined && refused !== "unknown")
      throw new AdminError(codeOf(refused), refused.message);
  }

  /** A peer passed it on. Never rejects. */
  async forwarded(change: ForwardedChange): Promise<ChangeRefused | undefined> {
    try {
      await this.#here(change);
      return undefined;
    } catch (error) {
      if (error instanceof AdminError) return { code: error.code, message: error.message };
      return { code: "no-leader", message: String(error) };
    }
  }

  async #here({ promote, remove }: ForwardedChange): Promise<void> {
    const { changes } = this.#options;
    const { configurationIndex: plannedOn } = await changes.current();
    await changes.change({ plannedOn, promote, demote: [], remove, force: false });
  }

  #ask(leader: MemberId, change: ForwardedChange): Promise<ChangeRefused | "unknown" | undefined> {
    const body = encodeForwarded({ kind: "change-membership", change });
    return new Promise((resolve, reject) => {
      this.#options.transport.request(leader, body, CHANGE_TIMEOUT_MS, (answer) => {
        if (answer === "unsent") reject(noLeader());
        else resolve(answer === undefined ? "unknown" : decodeChangeAnswer(answer));
      });
    });
  }

  async #isMade({ promote, remove }: ForwardedChange): Promise<boolean> {
    const { members, configuration } = await this.#options.changes.current();
    return (
      promote.every((id) => configuration.voters.includes(id)) &&
      remove.every((id) => !members.some((member) => member.id === id))
    );
  }
}

function noLeader(): AdminError {
  return new AdminError(
    "no-leader",
    "This member knows no leader that it can reach. Try again, or another member.",
  );
}

/** A newer leader may have codes that this member does not know. */
function codeOf({ code }: ChangeRefused): AdminErrorCode {
  return isAdminErrorCode(code) ? code : "invalid-change";
}
