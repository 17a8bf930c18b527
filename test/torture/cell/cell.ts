import { admin } from "@lockstep/proto";
import { join } from "node:path";
import type { LinkRule } from "../../support/proxied-link.ts";
import { until } from "../../support/until.ts";
import { Health } from "./health.ts";
import { TorturedMember } from "./member.ts";
import type { Exit } from "./member.ts";
import { Volume } from "./volume.ts";
import type { Mounting } from "./volume.ts";

/** Rule for messages from one member to another, by name; undefined: nothing to say. */
export type NetworkRule = (from: string, to: string) => LinkRule | undefined;

export interface TorturedCellOptions {
  readonly scratch: string;
  readonly mounting: Mounting;
  /** Every member's disk says that writes are durable before they are. */
  readonly lyingDisks: boolean;
  readonly onDeath: (member: TorturedMember, exit: Exit) => void;
}

const CHANGE_MS_MAX = 120_000;

/** A membership change, by names. */
export interface Change {
  readonly promote?: readonly string[];
  readonly remove?: readonly string[];
}

/** The cell under torture: members that come and go, the links between them, and what an operator would do. */
export class TorturedCell {
  readonly health: Health = new Health();
  readonly #options: TorturedCellOptions;
  readonly #rules = new Set<NetworkRule>();
  #members: TorturedMember[] = [];
  #count = 0;
  #stopped = false;

  constructor(options: TorturedCellOptions) {
    this.#options = options;
  }

  /** One voter, two learners, promotion: the way every cell grows. */
  async begin(): Promise<void> {
    const first = await this.#create();
    first.start({ kind: "bootstrap" });
    await first.untilServing();
    await this.leader();
    const others = [await this.join(), await this.join()];
    await this.change({ promote: others.map(({ name }) => name) });
  }

  /** Members in the cell or on their way into it, those with lost disks excepted. */
  get members(): readonly TorturedMember[] {
    return this.#members;
  }

  get endpoints(): string[] {
    return this.#members.filter(({ wiped }) => !wiped).map((member) => member.clientAddress);
  }

  find(name: string): TorturedMember | undefined {
    return this.#members.find((member) => member.name === name);
  }

  /** A new member on a fresh volume that asks to be let in. */
  async join(): Promise<TorturedMember> {
    const targets = this.#members.filter(({ wiped }) => !wiped).map((member) => member.adminAddress);
    const member = await this.#create();
    member.start({ kind: "join", targets });
    return member;
  }

  /** The member that leads by its own word. */
  leader(timeoutMs = 60_000): Promise<TorturedMember> {
    return until("a leader", () => this.leaderNow(), timeoutMs);
  }

  async leaderNow(): Promise<TorturedMember | undefined> {
    const found = await Promise.all(
      this.#members.map(async (member) => {
        if (!member.serving) return undefined;
        const status = await member.adminApi.status(1_000).catch(() => undefined);
        const leads = status?.role === admin.Role.LEADER && status.leaderId === status.memberId;
        return leads ? { member, term: status.term } : undefined;
      }),
    );
    // One that was cut off may not know yet that it leads no more.
    return found.filter((one) => one !== undefined).sort((a, b) => b.term - a.term)[0]?.member;
  }

  /** Names of the voters as the leader has them. */
  async voters(): Promise<string[]> {
    const list = await this.#list();
    return list.members.filter(({ kind }) => kind === admin.MemberKind.VOTER).map(({ name }) => name);
  }

  /**
   * Makes one change, however often leaders change meanwhile: plans on the current configuration, and plans anew when
   * that moved. Resolves when the configuration is as wanted.
   */
  async change(change: Change, timeoutMs: number = CHANGE_MS_MAX): Promise<void> {
    const { promote = [], remove = [] } = change;
    await until(
      `the change: promote ${promote.join(", ") || "nobody"}, remove ${remove.join(", ") || "nobody"}`,
      async () => {
        const leader = await this.leader(5_000);
        const list = await leader.adminApi.members();
        const present = new Map(list.members.map((member) => [member.name, member]));
        this.#learnVoters(list);
        const leaving = remove.flatMap((name) => present.get(name)?.id ?? []);
        const joining = promote.filter((name) => present.get(name)?.kind !== admin.MemberKind.VOTER);
        if (list.joint) return undefined;
        if (leaving.length === 0 && joining.length === 0) return true;
        const ids = joining.map((name) => present.get(name)?.id);
        if (ids.includes(undefined)) return undefined;
        await leader.adminApi.change({
          plannedOn: list.configurationIndex,
          promote: ids as number[],
          remove: leaving,
        });
        return undefined;
      },
      timeoutMs,
    );
  }

  /** Removed members stop by themselves; what is left of them goes. */
  async bury(name: string): Promise<void> {
    const member = this.find(name);
    if (member === undefined) return;
    if (!member.wiped) {
      // Nobody may have told it: then the next peer that it dials does, or this ends it.
      await Promise.race([member.exited(), new Promise((resolve) => setTimeout(resolve, 5_000))]);
      await member.kill();
      member.close();
    }
    this.#members = this.#members.filter((other) => other !== member);
  }

  /** Adds a rule for the network; the first rule that has something to say about a link counts. @returns its end */
  shape(rule: NetworkRule): () => void {
    this.#rules.add(rule);
    this.#applyRules();
    return () => {
      this.#rules.delete(rule);
      this.#applyRules();
    };
  }

  /** All running members have applied the same, and hold the same. */
  async agreedDigest(timeoutMs: number): Promise<string> {
    const digests = await until(
      "all members at one applied index",
      async () => {
        const statuses = await Promise.all(this.#members.map((member) => member.adminApi.status()));
        const indexes = new Set(statuses.map((status) => status.appliedIndex));
        return indexes.size === 1 ? new Set(statuses.map((status) => status.digest)) : undefined;
      },
      timeoutMs,
    );
    const [digest = ""] = digests;
    if (digests.size !== 1) throw new Error(`the members' digests differ: ${[...digests].join(", ")}`);
    return digest;
  }

  /** Ends all processes; with evidence, folders are copied before their volumes go. */
  async stop(options: { readonly keepEvidence: boolean }): Promise<void> {
    this.#stopped = true;
    for (const member of this.#members) member.retire();
    await Promise.all(this.#members.map((member) => member.kill()));
    for (const member of this.#members) {
      if (options.keepEvidence) member.keepEvidence();
      if (!member.wiped) member.close();
    }
  }

  async #create(): Promise<TorturedMember> {
    this.#count += 1;
    const name = `m${String(this.#count)}`;
    const { scratch, mounting, lyingDisks: lyingDisk, onDeath } = this.#options;
    if (this.#isStopped()) throw new Error("the torture is over");
    const volume = Volume.create(join(scratch, name), mounting);
    const member = await TorturedMember.create({ name, volume, scratch, lyingDisk, onDeath });
    this.#members.push(member);
    if (this.#isStopped()) {
      member.retire();
      member.close();
      throw new Error("the torture is over");
    }
    this.#applyRules();
    return member;
  }

  /** Asked anew: it may have been stopped while something was waited for. */
  #isStopped(): boolean {
    return this.#stopped;
  }

  async #list(): Promise<admin.ListMembersResponse> {
    return until("the member list", async () => {
      const list = await (await this.leader()).adminApi.members();
      this.#learnVoters(list);
      return list;
    });
  }

  #learnVoters(list: admin.ListMembersResponse): void {
    const voters = list.members.filter(({ kind }) => kind === admin.MemberKind.VOTER);
    this.health.setVoters(voters.map(({ name }) => name));
  }

  #applyRules(): void {
    for (const to of this.#members) {
      if (to.wiped) continue;
      to.proxy.shape((fromId) => {
        const from = this.#members.find((member) => member.memberId === fromId)?.name ?? "?";
        for (const rule of this.#rules) {
          const verdict = rule(from, to.name);
          if (verdict !== undefined) return verdict;
        }
        return { kind: "pass" };
      });
    }
  }
}
