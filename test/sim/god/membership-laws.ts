/** I7: configurations follow each other such that two quorums never decide apart; ids and disks are used once. */
import { encodeMembership } from "../../../cell/src/machine/membership.ts";
import type { Membership } from "../../../cell/src/machine/membership.ts";
import { isJoint, membersOf } from "../../../cell/src/raft/configuration.ts";
import { jointVote } from "../../../cell/src/raft/quorum.ts";
import type { Configuration, Entry, MemberId } from "../../../cell/src/raft/types.ts";
import type { Reporter } from "../contract.ts";
import { nameOf } from "./life.ts";
import type { Life } from "./life.ts";
import type { DiskLog } from "./log-model.ts";
import type { CellTruth, TrueChange } from "./truth.ts";

/** Above it the disjoint quorums are not looked for one by one; the shape of the change is checked all the same. */
const BRUTE_FORCE_MEMBERS_MAX = 10;

export class MembershipLaws {
  readonly #reporter: Reporter;
  readonly #truth: CellTruth;
  readonly #incarnations = new Map<number, string>();
  readonly #gone = new Set<number>();

  constructor(reporter: Reporter, truth: CellTruth) {
    this.#reporter = reporter;
    this.#truth = truth;
    truth.onChange((change) => this.changed(change));
  }

  /** A member starts: nobody else may ever have had its id. */
  started(disk: Pick<DiskLog, "host" | "memberId" | "incarnation">): void {
    this.#owned(disk.memberId, disk.incarnation, `${disk.host} starts`);
  }

  /** The cell accepted a change. */
  changed({ index, before, after }: TrueChange): void {
    const at = `the change at ${String(index)}, ${show(before.configuration)} to ${show(after.configuration)},`;
    const flaw = describeStep(before.configuration, after.configuration);
    if (flaw !== undefined) this.#reporter.violation("I7-quorums", `${at} ${flaw}`);
    this.#ids(at, before, after);
    this.#reporter.count("configuration changes");
    if (isJoint(after.configuration)) this.#reporter.count("joint configurations");
    const known = membersOf(before.configuration);
    const now = membersOf(after.configuration);
    this.#reporter.count("members joined", now.filter((id) => !known.includes(id)).length);
    this.#reporter.count("members removed", known.filter((id) => !now.includes(id)).length);
  }

  /** What a member makes of its newest change is what the cell makes of it. */
  applied(life: Life): void {
    const { membership } = life.state;
    const expected = this.#truth.membershipAt(membership.configurationIndex);
    if (expected === undefined || text(expected) === text(membership)) return;
    this.#reporter.violation(
      "I7-membership",
      `${nameOf(life)} holds ${text(membership)} where the cell's membership is ${text(expected)}`,
    );
  }

  /** A leader appends a change of its own: whatever changes its log holds before are applied (R35). */
  proposed(life: Life, entry: Entry): void {
    const before = life.disk.configurations.filter((index) => index < entry.index).at(-1) ?? 0;
    if (before <= life.state.appliedIndex) return;
    this.#reporter.violation(
      "I7-one-change",
      `${nameOf(life)} proposes a change at ${String(entry.index)} while the one at ${String(before)} is not applied (applied ${String(life.state.appliedIndex)})`,
    );
  }

  #ids(at: string, before: Membership, after: Membership): void {
    for (const { id, incarnation } of after.members) {
      this.#owned(id, incarnation, at);
      if (this.#gone.has(id))
        this.#reporter.violation("I7-removed", `${at} brings back member ${String(id)}`);
    }
    for (const { id } of before.members) {
      if (!after.members.some((member) => member.id === id)) this.#gone.add(id);
    }
    for (const id of this.#gone) {
      if (after.removedIds.includes(id as MemberId)) continue;
      this.#reporter.violation("I7-removed", `${at} forgets that member ${String(id)} was removed`);
    }
    const listed = after.members.map((member) => member.id);
    if (listed.join() !== membersOf(after.configuration).join()) {
      this.#reporter.violation("I7-membership", `${at} lists members ${listed.join(" ")}`);
    }
  }

  #owned(id: number, incarnation: string, where: string): void {
    const known = this.#incarnations.get(id);
    if (known === undefined) {
      this.#incarnations.set(id, incarnation);
    } else if (known !== incarnation) {
      this.#reporter.violation(
        "I7-reused-id",
        `${where}: member id ${String(id)} belongs to the disk ${known}, now ${incarnation} has it`,
      );
    }
  }
}

/** What makes the step from one configuration to the next unsafe; undefined: nothing. */
export function describeStep(before: Configuration, after: Configuration): string | undefined {
  const changed = symmetricDifference(before.voters, after.voters);
  if (isJoint(before) && isJoint(after)) return "goes from one joint configuration to another";
  if (isJoint(before) && changed > 0)
    return "leaves a joint configuration for other voters than its new half";
  if (isJoint(after) && symmetricDifference(before.voters, after.outgoing) > 0) {
    return "enters a joint configuration whose old half is not the one before";
  }
  if (!isJoint(before) && !isJoint(after) && changed > 1) {
    return `changes ${String(changed)} voters in one simple step`;
  }
  const everybody = membersOf({ ...before, voters: [...before.voters, ...after.voters, ...after.outgoing] });
  if (everybody.length > BRUTE_FORCE_MEMBERS_MAX) return undefined;
  return disjointQuorums(everybody, before, after) ? "leaves two quorums that share no member" : undefined;
}

function disjointQuorums(everybody: readonly MemberId[], one: Configuration, other: Configuration): boolean {
  for (let set = 0; set < 2 ** everybody.length; set += 1) {
    const isIn = (id: MemberId): boolean => ((set >> everybody.indexOf(id)) & 1) === 1;
    if (jointVote(one, isIn) === "won" && jointVote(other, (id) => !isIn(id)) === "won") return true;
  }
  return false;
}

function symmetricDifference(one: readonly MemberId[], other: readonly MemberId[]): number {
  return one.filter((id) => !other.includes(id)).length + other.filter((id) => !one.includes(id)).length;
}

function text(membership: Membership): string {
  return Buffer.from(encodeMembership(membership)).toString("latin1");
}

function show({ voters, outgoing, learners }: Configuration): string {
  const old = outgoing.length === 0 ? "" : ` from ${outgoing.join(" ")}`;
  const learning = learners.length === 0 ? "" : ` learners ${learners.join(" ")}`;
  return `{${voters.join(" ")}${old}${learning}}`;
}
