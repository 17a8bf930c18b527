import { assertNever } from "../invariant.ts";
import { encodePlan, findMember } from "../machine/membership.ts";
import { isJoint } from "../raft/index.ts";
import type { ChangePlan, MemberAddresses, MemberRecord, Membership } from "../machine/membership.ts";
import type { ConfigurationStep, LogIndex, MemberId, ProposalRefusal } from "../raft/types.ts";
import type { Replica } from "../replica/replica.ts";
import { mostCaughtUp } from "../replica/stall-watch.ts";
import type { ChangeOutcome } from "../replica/state.ts";
import { AdminError } from "./admin-error.ts";
import { DECISION_TIMEOUT_MS, readPoint, requireLeader } from "./leader.ts";

export interface AddLearnerRequest {
  readonly name: string;
  readonly incarnation: string;
  readonly addresses: MemberAddresses;
  /** 0: whatever is current. */
  readonly plannedOn: LogIndex;
}

export interface ChangeRequest {
  readonly plannedOn: LogIndex;
  readonly promote: readonly MemberId[];
  readonly demote: readonly MemberId[];
  readonly remove: readonly MemberId[];
  /** Skip the health checks. */
  readonly force: boolean;
}

/** A learner this close to the leader's log is caught up (R43). */
const CAUGHT_UP_ENTRIES_MAX = 1000;
const MEMBERS_MAX = 16;
const LEAVE_JOINT_TIMEOUT_MS = 60_000;
/** Others may add learners at the same moment; each try takes the next id. */
const ADD_TRIES_MAX = 5;

/**
 * Membership changes, on the leader. Each is planned on a configuration index and void if that moved; what could
 * cost the cell its majority is refused before it is proposed (R43), and again decided at apply from replicated
 * state alone.
 */
export class MembershipChanges {
  readonly #replica: Replica;

  constructor(replica: Replica) {
    this.#replica = replica;
  }

  /** The membership, proved current by a read-index round. */
  async current(): Promise<Membership> {
    await readPoint(this.#replica);
    return this.#replica.parts.state.membership;
  }

  /** Idempotent by name and incarnation. */
  async addLearner(request: AddLearnerRequest): Promise<MemberRecord> {
    for (let attempt = 1; ; attempt += 1) {
      requireLeader(this.#replica);
      const membership = await this.current();
      const present = membership.members.find((member) => member.name === request.name);
      if (present !== undefined) return sameMember(present, request);
      if (membership.members.length >= MEMBERS_MAX) {
        throw new AdminError(
          "too-many-members",
          `A cell holds at most ${String(MEMBERS_MAX)} members. Remove one first.`,
        );
      }
      const add: MemberRecord = {
        id: membership.nextMemberId,
        name: request.name,
        incarnation: request.incarnation,
        addresses: request.addresses,
      };
      const outcome = await this.#propose([{ kind: "add-learner", id: add.id }], {
        plannedOn: request.plannedOn,
        add,
      });
      if (outcome.accepted) return add;
      const raced = outcome.reason === "id-not-next" || outcome.reason === "name-in-use";
      if (!raced || attempt >= ADD_TRIES_MAX) throw refusedAtApply(outcome);
    }
  }

  /** Resolves when the final configuration (joint left) is applied here. */
  async change(request: ChangeRequest): Promise<Membership> {
    requireLeader(this.#replica);
    const membership = await this.current();
    this.#check(membership, request);
    if (!request.force) await this.#untilHealthy(membership, request);
    const steps: ConfigurationStep[] = [
      ...request.promote.map((id) => ({ kind: "add-voter", id }) as const),
      ...request.demote.map((id) => ({ kind: "add-learner", id }) as const),
      ...request.remove.map((id) => ({ kind: "remove", id }) as const),
    ];
    const outcome = await this.#propose(steps, { plannedOn: request.plannedOn });
    if (!outcome.accepted) throw refusedAtApply(outcome);
    await this.#untilJointIsLeft();
    return this.#replica.parts.state.membership;
  }

  /** 0: the most caught-up other voter. @returns the new leader. */
  async transferLeadership(target: MemberId, timeoutMs: number = DECISION_TIMEOUT_MS): Promise<MemberId> {
    requireLeader(this.#replica);
    const { raft, self, state } = this.#replica.parts;
    const best = (): MemberId | undefined => mostCaughtUp(raft.status().progress, self);
    if (target === 0) await this.#signsOfLife(() => best() !== undefined);
    const { voters } = state.membership.configuration;
    const chosen = target === 0 ? best() : target;
    if (chosen === self) return self;
    if (chosen === undefined || !voters.includes(chosen)) {
      throw new AdminError(
        "unknown-member",
        "Leadership can only go to another voter of the present configuration.",
      );
    }
    raft.transferLeadership(chosen);
    this.#replica.pump();
    const moved = await this.#until(
      () => this.#replica.leaderId !== 0 && this.#replica.leaderId !== self,
      timeoutMs,
    );
    if (!moved) {
      throw new AdminError(
        "timeout",
        `Member ${String(chosen)} did not take over. It may be lagging or unreachable; look at the leader's progress with \`lockstep status\`.`,
      );
    }
    return this.#replica.leaderId;
  }

  #check(membership: Membership, request: ChangeRequest): void {
    if (request.plannedOn !== membership.configurationIndex) {
      throw new AdminError(
        "stale-plan",
        `The change was planned on configuration ${String(request.plannedOn)}, the current one is ${String(membership.configurationIndex)}. List the members again and plan anew.`,
      );
    }
    if (isJoint(membership.configuration)) {
      throw new AdminError(
        "change-pending",
        "A joint configuration is being left. Wait for it, then plan anew.",
      );
    }
    const named = [...request.promote, ...request.demote, ...request.remove];
    if (named.length === 0)
      throw new AdminError("invalid-argument", "Name a member to promote, demote or remove.");
    if (new Set(named).size !== named.length) {
      throw new AdminError("invalid-argument", "A member may be named once in a change.");
    }
    for (const id of named) {
      if (findMember(membership, id) === undefined) {
        throw new AdminError("unknown-member", `There is no member ${String(id)} in the cell.`);
      }
    }
    const { voters, learners } = membership.configuration;
    for (const id of request.promote) {
      if (!learners.includes(id))
        throw new AdminError("not-a-learner", `Member ${String(id)} is no learner.`);
    }
    for (const id of request.demote) {
      if (!voters.includes(id)) throw new AdminError("not-a-voter", `Member ${String(id)} is no voter.`);
    }
  }

  async #untilHealthy(membership: Membership, request: ChangeRequest): Promise<void> {
    await this.#signsOfLife(() => this.#illness(membership, request) === undefined);
    const illness = this.#illness(membership, request);
    if (illness !== undefined) throw illness;
  }

  /**
   * The core counts signs of life anew every election timeout (R13): right after, everybody seems silent. Gives them
   * some heartbeats' time to answer.
   */
  async #signsOfLife(seen: () => boolean): Promise<void> {
    const { tickMs, electionTimeoutTicks } = this.#replica.parts.timing;
    await this.#until(seen, (tickMs * electionTimeoutTicks) / 2);
  }

  #illness(membership: Membership, request: ChangeRequest): AdminError | undefined {
    const { raft, self } = this.#replica.parts;
    const status = raft.status();
    const progress = new Map(status.progress.map((view) => [view.id, view]));
    for (const id of request.promote) {
      const view = progress.get(id);
      const lag = view === undefined ? Number.POSITIVE_INFINITY : status.lastIndex - view.match;
      if (view?.state !== "replicate" || !view.recentActive || lag > CAUGHT_UP_ENTRIES_MAX) {
        return new AdminError(
          "learner-not-ready",
          `Member ${String(id)} is not caught up yet (${view === undefined ? "never heard of" : `${view.state}, ${String(lag)} entries behind`}). Wait until it is, then promote.`,
        );
      }
    }
    const leaving = new Set([...request.demote, ...request.remove]);
    const voters = [...membership.configuration.voters.filter((id) => !leaving.has(id)), ...request.promote];
    // Who has not got the configuration in force may not know all of those that it will need, and they could not reach
    // it once the others are gone: it counts only from then on.
    const isReady = (id: MemberId): boolean => {
      const view = progress.get(id);
      return id === self || (view?.recentActive === true && view.match >= membership.configurationIndex);
    };
    const healthy = voters.filter(isReady).length;
    const majority = Math.floor(voters.length / 2) + 1;
    if (healthy >= majority) return undefined;
    return new AdminError(
      "unhealthy-cell",
      `Only ${String(healthy)} of the ${String(voters.length)} voters after this change are alive and hold the present configuration, fewer than a majority. Bring members back first, or wait until they have caught up; or force it knowing what it costs.`,
    );
  }

  async #propose(steps: readonly ConfigurationStep[], plan: ChangePlan): Promise<ChangeOutcome> {
    const { raft, environment } = this.#replica.parts;
    const proposed = raft.proposeConfiguration({ transition: "auto", steps, context: encodePlan(plan) });
    if (!proposed.ok) throw refusedProposal(proposed.reason);
    return new Promise((resolve, reject) => {
      const unknown = (): void =>
        reject(
          new AdminError(
            "timeout",
            "No majority confirmed the change in time: it may still take effect. List the members.",
          ),
        );
      const forget = this.#replica.onConfigurationDecided(proposed.index, (term, outcome) => {
        cancel();
        if (term === undefined) unknown();
        else if (term === proposed.term && outcome !== undefined) resolve(outcome);
        else reject(new AdminError("not-leader", "Another leader took over; the change was not made."));
      });
      const cancel = environment.after(DECISION_TIMEOUT_MS, () => {
        forget();
        unknown();
      });
      this.#replica.pump();
    });
  }

  async #untilJointIsLeft(): Promise<void> {
    const { state } = this.#replica.parts;
    if (await this.#until(() => !isJoint(state.membership.configuration), LEAVE_JOINT_TIMEOUT_MS)) return;
    throw new AdminError(
      "timeout",
      "The joint configuration was entered but not left yet: a majority of the new voters does not answer.",
    );
  }

  /** @returns whether it held before the time was up. */
  #until(holds: () => boolean, timeoutMs: number): Promise<boolean> {
    if (holds()) return Promise.resolve(true);
    return new Promise((resolve) => {
      const finish = (held: boolean): void => {
        stop();
        cancel();
        resolve(held);
      };
      const look = (): void => {
        if (holds()) finish(true);
      };
      const stop = this.#replica.listen({ configurationChanged: look, leaderChanged: look, deadlines: look });
      const cancel = this.#replica.parts.environment.after(timeoutMs, () => finish(false));
    });
  }
}

function sameMember(present: MemberRecord, request: AddLearnerRequest): MemberRecord {
  if (present.incarnation === request.incarnation) return present;
  throw new AdminError(
    "name-in-use",
    `The cell has a member ${request.name} on another disk (incarnation ${present.incarnation}). A member that lost its disk cannot come back under its old identity: remove member ${String(present.id)}, then join under a new name.`,
  );
}

function refusedAtApply(outcome: ChangeOutcome & { readonly accepted: false }): AdminError {
  switch (outcome.reason) {
    case "stale-plan":
      return new AdminError(
        "stale-plan",
        "The configuration changed meanwhile. List the members and plan anew.",
      );
    case "name-in-use":
      return new AdminError("name-in-use", "A member of that name joined meanwhile.");
    case "id-not-next":
    case "unknown-member":
    case "malformed-plan":
    case "invalid-change":
      return new AdminError(
        "invalid-change",
        `The cell refused the change: ${outcome.reason} (${outcome.detail}).`,
      );
    default:
      return assertNever(outcome.reason);
  }
}

function refusedProposal(reason: ProposalRefusal): AdminError {
  switch (reason) {
    case "not-leader":
      return new AdminError("not-leader", "This member does not lead any more. Ask the leader.");
    case "transferring":
      return new AdminError("change-pending", "Leadership is being moved. Try again in a moment.");
    case "change-pending":
    case "too-much-uncommitted":
      return new AdminError(
        "change-pending",
        "Another membership change is under way. Wait for it, then plan anew.",
      );
    case "invalid-change":
      return new AdminError("invalid-change", "The change does not fit the present configuration.");
    default:
      return assertNever(reason);
  }
}
