import { CellAdminError } from "../cell/types.ts";
import type { CellConfiguration, MemberProgress, MembershipChange } from "../cell/types.ts";

export interface RaftMember {
  readonly id: number;
  readonly name: string;
  readonly incarnation: string;
}

interface Configuration {
  readonly voters: readonly number[];
  /** Voters of the old half; undefined: not joint. */
  readonly old: readonly number[] | undefined;
  readonly learners: readonly number[];
}

const ELECTION_MS = 1_500;
const ACTIVE_MS = 1_000;
const LEAVE_JOINT_MS = 1_000;
const CAUGHT_UP_ENTRIES_MAX = 1_000;
const ENTRIES_PER_S = 200;
const COPY_PER_S = 4_000;

/** What the cell asks of the world, and tells it. */
export interface RaftWorld {
  /** Ids of members that run and can reach each other. */
  readonly reachable: () => ReadonlySet<number>;
  readonly violate: (law: string) => void;
  /** A voters' configuration comes into force. */
  readonly decided: (before: readonly number[], after: readonly number[]) => void;
}

/**
 * One Raft cell, as far as membership needs it: who leads, who has how much of the log, which configuration is in force
 * and who knows of it. Members that run are told by the world; nothing here waits.
 */
export class RaftCell {
  readonly id: string;
  readonly members: RaftMember[] = [];
  configuration: Configuration = { voters: [], old: undefined, learners: [] };
  leaderId = 0;
  term = 1;
  lastIndex = 100;
  commitIndex = 0;
  formatVersion = 1;
  copyPerS: number = COPY_PER_S;
  readonly removedIds: number[] = [];
  readonly everVoted: Set<number> = new Set();
  readonly #world: RaftWorld;
  readonly #match = new Map<number, number>();
  readonly #heardMs = new Map<number, number>();
  /** Indexes of configuration entries, oldest first. */
  readonly #changes: { readonly index: number; readonly joint: boolean }[] = [];
  #nowMs: number;
  #leaderlessMs = 0;
  #jointMs = 0;
  #nextId = 1;

  constructor(
    id: string,
    nowMs: number,
    world: RaftWorld,
    founder: Omit<RaftMember, "id">,
    index: number = 100,
  ) {
    this.id = id;
    this.#nowMs = nowMs;
    this.#world = world;
    this.lastIndex = index;
    this.members.push({ ...founder, id: 1 });
    this.#nextId = 2;
    this.#enter({ voters: [1], old: undefined, learners: [] });
    this.#match.set(1, this.lastIndex);
    this.commitIndex = this.lastIndex;
  }

  get joint(): boolean {
    return this.configuration.old !== undefined;
  }

  get configurationIndex(): number {
    return this.#changes.at(-1)?.index ?? 0;
  }

  get nextId(): number {
    return this.#nextId;
  }

  hasMajority(among: ReadonlySet<number>): boolean {
    const { voters, old } = this.configuration;
    return isMajority(voters, among) && (old === undefined || isMajority(old, among));
  }

  matchOf(id: number): number {
    return this.#match.get(id) ?? 0;
  }

  /** The last configuration that a member has on its disk. */
  knownBy(id: number): { readonly index: number; readonly joint: boolean } {
    return this.#changes.findLast(({ index }) => index <= this.matchOf(id)) ?? { index: 0, joint: false };
  }

  tick(nowMs: number): void {
    const elapsedS = (nowMs - this.#nowMs) / 1_000;
    this.#nowMs = nowMs;
    const reachable = this.#world.reachable();
    const canServe = this.hasMajority(reachable);
    if (this.leaderId !== 0 && (!reachable.has(this.leaderId) || !canServe)) this.#loseLeader();
    const isDue = canServe && nowMs - this.#leaderlessMs >= ELECTION_MS;
    if (this.leaderId === 0 && isDue) this.#elect(reachable);
    if (!reachable.has(this.leaderId)) return;
    this.#replicate(reachable, elapsedS);
    if (this.joint && nowMs - this.#jointMs >= LEAVE_JOINT_MS && this.hasMajority(reachable))
      this.#leaveJoint();
  }

  addLearner(name: string, incarnation: string): RaftMember {
    const present = this.members.find((member) => member.name === name);
    if (present !== undefined) {
      if (present.incarnation === incarnation) return present;
      throw new CellAdminError("name-in-use", `${name} is another disk`, "not-applied");
    }
    this.#requireLeader();
    if (this.joint) throw new CellAdminError("change-pending", "joint", "not-applied");
    const member = { id: this.#nextId, name, incarnation };
    this.#nextId += 1;
    this.members.push(member);
    this.#match.set(member.id, 0);
    const { learners } = this.configuration;
    this.#enter({ ...this.configuration, learners: [...learners, member.id] });
    return member;
  }

  change(change: MembershipChange): void {
    this.#requireLeader();
    const refuse = (code: string): never => {
      throw new CellAdminError(code, `refused: ${code}`, "not-applied");
    };
    if (change.plannedOn !== this.configurationIndex) refuse("stale-plan");
    if (this.joint) refuse("change-pending");
    const named = [...change.promote, ...change.demote, ...change.remove];
    if (named.length === 0 || new Set(named).size !== named.length) refuse("invalid-argument");
    if (named.some((id) => !this.members.some((member) => member.id === id))) refuse("unknown-member");
    const { voters, learners } = this.configuration;
    if (change.promote.some((id) => !learners.includes(id))) refuse("not-a-learner");
    const reachable = this.#world.reachable();
    const isBehind = (id: number): boolean =>
      !reachable.has(id) || this.lastIndex - this.matchOf(id) > CAUGHT_UP_ENTRIES_MAX;
    if (change.promote.some(isBehind)) refuse("learner-not-ready");
    const leaving = new Set([...change.demote, ...change.remove]);
    const after = [...voters.filter((id) => !leaving.has(id)), ...change.promote];
    const ready = after.filter((id) => reachable.has(id) && this.matchOf(id) >= this.configurationIndex);
    if (ready.length < Math.floor(after.length / 2) + 1) refuse("unhealthy-cell");
    const left = learners.filter((id) => !named.includes(id));
    const changesVoters = change.promote.length > 0 || change.remove.some((id) => voters.includes(id));
    if (changesVoters) this.#world.decided(voters, after);
    this.#jointMs = this.#nowMs;
    this.#enter({
      voters: after,
      old: changesVoters ? voters : undefined,
      learners: [...left, ...change.demote],
    });
    this.#forgetRemoved();
  }

  transfer(id: number): number {
    this.#requireLeader();
    const reachable = this.#world.reachable();
    const target =
      id === 0
        ? this.configuration.voters.find((other) => other !== this.leaderId && reachable.has(other))
        : id;
    if (target === undefined || !this.configuration.voters.includes(target)) {
      throw new CellAdminError("unknown-member", "no such voter", "not-applied");
    }
    if (!reachable.has(target) || this.matchOf(target) < this.commitIndex) {
      throw new CellAdminError("timeout", "did not take over", "unknown");
    }
    this.#lead(target);
    return target;
  }

  describe(): CellConfiguration {
    this.#requireLeader();
    const { voters, old, learners } = this.configuration;
    return {
      cellId: this.id,
      configurationIndex: this.configurationIndex,
      joint: this.joint,
      leaderId: this.leaderId,
      members: this.members
        .filter(({ id }) => voters.includes(id) || learners.includes(id) || old?.includes(id) === true)
        .map((member) => ({
          ...member,
          kind: voters.includes(member.id) ? "voter" : learners.includes(member.id) ? "learner" : "leaving",
        })),
      removedIds: [...this.removedIds],
    };
  }

  progress(): readonly MemberProgress[] {
    const reachable = this.#world.reachable();
    return this.members
      .filter(({ id }) => id !== this.leaderId)
      .map(({ id }) => {
        const silentMs = this.#nowMs - (this.#heardMs.get(id) ?? this.#nowMs);
        const behind = this.lastIndex - this.matchOf(id);
        return {
          memberId: id,
          state: !reachable.has(id) ? "probe" : behind > 5 * CAUGHT_UP_ENTRIES_MAX ? "snapshot" : "replicate",
          match: this.matchOf(id),
          recentlyActive: silentMs < ACTIVE_MS,
          silentMs,
        };
      });
  }

  #requireLeader(): void {
    if (this.leaderId === 0) throw new CellAdminError("no-leader", "no leader", "not-applied");
  }

  #loseLeader(): void {
    this.leaderId = 0;
    this.#leaderlessMs = this.#nowMs;
  }

  #elect(reachable: ReadonlySet<number>): void {
    const { voters, old = [] } = this.configuration;
    const candidates = [...new Set([...voters, ...old])].filter((id) => reachable.has(id));
    candidates.sort((a, b) => this.matchOf(b) - this.matchOf(a) || a - b);
    const best = candidates[0];
    if (best === undefined) return;
    if (this.matchOf(best) < this.commitIndex) {
      this.#world.violate(`acknowledged entries are lost: leader ${String(best)} of ${this.id} lacks some`);
    }
    this.#lead(best);
  }

  #lead(id: number): void {
    this.leaderId = id;
    this.term += 1;
    for (const member of this.members) this.#heardMs.set(member.id, this.#nowMs);
    this.lastIndex = Math.max(this.commitIndex, this.matchOf(id)) + 1;
    for (const [other, match] of this.#match) this.#match.set(other, Math.min(match, this.lastIndex));
    this.#match.set(id, this.lastIndex);
  }

  #replicate(reachable: ReadonlySet<number>, elapsedS: number): void {
    this.lastIndex += Math.ceil(ENTRIES_PER_S * elapsedS);
    this.#match.set(this.leaderId, this.lastIndex);
    for (const { id } of this.members) {
      if (id === this.leaderId || !reachable.has(id)) continue;
      this.#heardMs.set(id, this.#nowMs);
      this.#match.set(id, Math.min(this.lastIndex, this.matchOf(id) + Math.ceil(this.copyPerS * elapsedS)));
    }
    const { voters, old } = this.configuration;
    const agreed = Math.min(this.#agreed(voters), old === undefined ? Infinity : this.#agreed(old));
    this.commitIndex = Math.max(this.commitIndex, agreed);
  }

  #agreed(voters: readonly number[]): number {
    const matches = voters.map((id) => this.matchOf(id)).sort((a, b) => b - a);
    return matches[Math.floor(voters.length / 2)] ?? 0;
  }

  #leaveJoint(): void {
    const { voters, learners } = this.configuration;
    this.#enter({ voters, old: undefined, learners });
    this.#forgetRemoved();
    if (!voters.includes(this.leaderId)) this.#loseLeader();
  }

  #forgetRemoved(): void {
    const { voters, old = [], learners } = this.configuration;
    const stay = new Set([...voters, ...old, ...learners]);
    for (const { id } of this.members.filter((member) => !stay.has(member.id))) {
      this.removedIds.push(id);
      this.members.splice(
        this.members.findIndex((member) => member.id === id),
        1,
      );
    }
  }

  #enter(configuration: Configuration): void {
    this.lastIndex += 1;
    this.configuration = configuration;
    this.#changes.push({ index: this.lastIndex, joint: configuration.old !== undefined });
    // Whoever is up with the log and heard of has the entry at once: what enters here is committed.
    for (const id of [...this.#world.reachable(), this.leaderId]) {
      if (this.lastIndex - this.matchOf(id) <= CAUGHT_UP_ENTRIES_MAX) this.#match.set(id, this.lastIndex);
    }
    const { voters, old } = configuration;
    for (const id of voters) this.everVoted.add(id);
    if (old === undefined && ![1, 3, 5].includes(voters.length)) {
      this.#world.violate(`the cell rests with ${String(voters.length)} voters`);
    }
  }
}

function isMajority(voters: readonly number[], among: ReadonlySet<number>): boolean {
  return voters.filter((id) => among.has(id)).length >= Math.floor(voters.length / 2) + 1;
}
