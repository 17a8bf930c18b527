/**
 * A random history of a cell: messages are lost, doubled, reordered and delayed, members are partitioned and lose
 * power, disks are slow, the configuration changes, logs are compacted. One seed, one history.
 */
import assert from "node:assert/strict";
import { EMPTY_CONFIGURATION, isJoint } from "../index.ts";
import type {
  ConfigurationChange,
  ConfigurationStep,
  Entry,
  LogIndex,
  MemberId,
  Message,
  RaftOptions,
  SnapshotMetadata,
  Term,
} from "../types.ts";
import { Invariants } from "./invariants.ts";
import { TestMember } from "./member.ts";
import { Dice } from "./random.ts";

const NETWORK_MAX = 200;
const MEMBERS_MAX = 5;

interface PendingRead {
  /** What was committed when it was asked: the answer must cover it. */
  readonly atLeast: LogIndex;
}

export class Simulation {
  readonly members: Map<MemberId, TestMember> = new Map();
  readonly invariants: Invariants;
  /** What happened, to tell whether a history was worth anything. */
  readonly counts = { elections: 0, applied: 0, changes: 0, snapshots: 0, restarts: 0, reads: 0 };

  readonly #dice: Dice;
  readonly #options: Partial<RaftOptions>;
  /** How much of the planned violence happens. */
  readonly #violence: number;
  #lossRate: number;
  #doubleRate: number;
  #network: Message[] = [];
  /** Members that cannot reach each other carry different numbers. */
  #sides = new Map<MemberId, number>();
  readonly #applyQueues = new Map<MemberId, Entry[]>();
  readonly #snapshots: { leader: MemberId; peer: MemberId; term: Term }[] = [];
  readonly #wanted: { leader: MemberId; peer: MemberId }[] = [];
  readonly #reads = new Map<string, PendingRead>();
  readonly #lastTerms = new Map<MemberId, string>();
  #requests = 0;
  #proposals = 0;
  #nextId: number;

  constructor(seed: number) {
    this.#dice = new Dice(seed);
    this.#violence = this.#dice.pick([0.05, 0.3, 1])!;
    this.#lossRate = this.#dice.pick([0, 0.02, 0.1, 0.3])!;
    this.#doubleRate = this.#dice.pick([0, 0.05, 0.2])!;
    this.#options = {
      electionTimeoutTicks: 10,
      inflightMessagesMax: this.#dice.pick([1, 3, 256])!,
      appendBytesMax: this.#dice.pick([1, 100, 100_000])!,
      inflightBytesMax: 1_000_000,
      applyBytesMax: this.#dice.pick([1, 100_000])!,
      lazyCommit: seed % 2 === 0,
    };
    this.invariants = new Invariants(this.members);
    const size = this.#dice.pick([1, 3, 3, 5])!;
    const voters = Array.from({ length: size }, (_, at) => (at + 1) as MemberId);
    this.#nextId = size + 1;
    for (const id of voters) {
      this.#addMember(id, {
        index: 1 as LogIndex,
        term: 1 as Term,
        configuration: { ...EMPTY_CONFIGURATION, voters },
      });
    }
  }

  /** Faults and work, in random order. */
  run(steps: number): void {
    for (let left = steps; left > 0; left--) this.#step();
  }

  /** No more faults: the cell must come to rest with one leader and equal members (I13). */
  settle(): void {
    this.#sides.clear();
    this.#lossRate = 0;
    this.#doubleRate = 0;
    for (let round = 0; round < 400; round++) {
      this.#calmRound();
      if (round % 20 === 19 && this.#isSettled()) return;
    }
    assert.fail(`the cell does not settle: ${this.#describe()}`);
  }

  #step(): void {
    const dice = this.#dice;
    const member = dice.pick([...this.members.values()])!;
    const roll = dice.random() * 1_000;
    if (roll < 400) this.#deliverOne();
    else if (roll < 550) this.#takeReady(member);
    else if (roll < 680) this.#finishWrite(member);
    else if (roll < 760) this.#applySome(member);
    else if (roll < 860) member.node.tick();
    else if (roll < 920) this.#propose(member);
    else if (roll < 940) this.#read(this.#anyLeader() ?? member);
    else if (roll < 955) this.#change(this.#anyLeader() ?? member);
    else if (roll < 965) this.#snapshotWork();
    else if (roll < 975) this.#compact(member);
    else if (roll < 990) this.#harm(member);
    else for (const one of this.members.values()) one.node.tick();
    this.#check(member);
  }

  #harm(member: TestMember): void {
    if (!this.#dice.chance(this.#violence)) return;
    const kind = this.#dice.between(1, 4);
    if (kind === 1) this.#restart(member);
    else if (kind === 2) this.#repartition();
    else if (kind === 3) this.#isolateLeader();
    else this.#nudge(member);
  }

  #calmRound(): void {
    for (const member of this.members.values()) {
      member.node.tick();
      while (member.node.hasReady() || member.writes.length > 0 || this.#queue(member).length > 0) {
        this.#takeReady(member);
        while (member.writes.length > 0) this.#finishWrite(member);
        while (this.#queue(member).length > 0) this.#applySome(member);
      }
      this.#check(member);
      const { configuration, progress } = member.node.status();
      if (isJoint(configuration) && !configuration.autoLeave) {
        member.node.proposeConfiguration(change("auto", []));
      }
      for (const { id, state } of progress) if (state === "snapshot") this.#endSnapshot(member, id, false);
    }
    while (this.#wanted.length > 0) this.#startSnapshot();
    for (const message of this.#network.splice(0)) this.#deliver(message);
  }

  /** I13, for those the newest configuration names. */
  #isSettled(): boolean {
    const leaders = [...this.members.values()].filter(({ node }) => {
      const newest = [...this.members.values()].every((other) => other.node.term <= node.term);
      return node.role === "leader" && newest;
    });
    const leader = leaders[0];
    if (leaders.length !== 1 || leader === undefined) return false;
    const status = leader.node.status();
    if (isJoint(status.configuration) || status.applied !== status.lastIndex) return false;
    return status.progress.every(({ id, state, match }) => {
      const other = this.members.get(id)!;
      return state === "replicate" && match === status.lastIndex && other.appliedIndex === status.applied;
    });
  }

  #addMember(id: MemberId, start: SnapshotMetadata): void {
    const options = { ...this.#options, random: this.#dice.random };
    this.members.set(id, new TestMember(id, options, start));
    this.#applyQueues.set(id, []);
  }

  #queue(member: TestMember): Entry[] {
    return this.#applyQueues.get(member.id)!;
  }

  #send(message: Message): void {
    if (this.#dice.chance(this.#lossRate) || this.#isCut(message)) return;
    this.#network.push(message);
    if (this.#dice.chance(this.#doubleRate)) this.#network.push(message);
    if (this.#network.length > NETWORK_MAX) {
      this.#network.splice(this.#dice.between(0, this.#network.length - 1), 1);
    }
  }

  #isCut(message: Message): boolean {
    return (this.#sides.get(message.from) ?? 0) !== (this.#sides.get(message.to) ?? 0);
  }

  #deliverOne(): void {
    if (this.#network.length === 0) return;
    // Mostly in order.
    const at = this.#dice.chance(0.8) ? 0 : this.#dice.between(0, this.#network.length - 1);
    this.#deliver(this.#network.splice(at, 1)[0]!);
  }

  #deliver(message: Message): void {
    const member = this.members.get(message.to);
    if (member === undefined || this.#isCut(message)) return;
    member.node.step(message);
    this.#check(member);
  }

  #check(member: TestMember): void {
    this.invariants.check(member);
    this.#countElection(member);
  }

  #takeReady(member: TestMember): void {
    const { node } = member;
    if (!node.hasReady()) return;
    const ready = member.ready();
    const { append } = ready;
    if (append !== undefined) {
      const [first] = append.entries;
      if (first !== undefined) {
        this.invariants.written(append.entries, node.termAt((first.index - 1) as LogIndex) ?? (0 as Term));
      }
      if (append.snapshot !== undefined) {
        this.#applyQueues.set(member.id, []);
        this.counts.snapshots++;
      }
    }
    for (const message of ready.messages) this.#send(message);
    this.#queue(member).push(...ready.committed);
    for (const { request, index } of ready.reads) {
      const read = this.#reads.get(`${member.id}:${request}`);
      assert(read !== undefined, "a read is answered once");
      this.#reads.delete(`${member.id}:${request}`);
      assert(index >= read.atLeast, `read at ${index} misses ${read.atLeast}, committed before it (I8)`);
      this.counts.reads++;
    }
    for (const request of ready.readsDropped) {
      assert(this.#reads.delete(`${member.id}:${request}`), "a read is given up once");
    }
    for (const peer of ready.snapshotsWanted) this.#wanted.push({ leader: member.id, peer });
  }

  #finishWrite(member: TestMember): void {
    if (member.writes.length === 0) return;
    for (const message of member.finishWrite()) this.#send(message);
    this.#check(member);
  }

  #applySome(member: TestMember): void {
    const queue = this.#queue(member);
    for (const entry of queue.splice(0, this.#dice.between(1, 4))) {
      member.apply([entry]);
      this.invariants.applied(member, entry);
      this.#check(member);
      this.counts.applied++;
      if (entry.kind === "configuration") this.counts.changes++;
    }
  }

  #propose(member: TestMember): void {
    member.node.propose(new TextEncoder().encode(`p${++this.#proposals}`));
  }

  #anyLeader(): TestMember | undefined {
    return this.#dice.pick([...this.members.values()].filter(({ node }) => node.role === "leader"));
  }

  #read(member: TestMember): void {
    const request = ++this.#requests;
    this.#reads.set(`${member.id}:${request}`, { atLeast: this.invariants.highestCommit });
    member.node.readIndex(request);
  }

  #change(member: TestMember): void {
    if (member.node.role !== "leader") return;
    const { configuration } = member.node.status();
    if (isJoint(configuration)) {
      member.node.proposeConfiguration(change("auto", []));
      return;
    }
    const { voters, learners } = configuration;
    const steps: ConfigurationStep[] = [];
    for (let left = this.#dice.between(1, 3); left > 0; left--) {
      const present = this.#dice.pick([...voters, ...learners])!;
      const roll = this.#dice.random();
      if (roll < 0.4 && voters.length + learners.length + steps.length < MEMBERS_MAX) {
        const id = this.#nextId++ as MemberId;
        this.#addMember(id, { index: 0 as LogIndex, term: 0 as Term, configuration: EMPTY_CONFIGURATION });
        steps.push({ kind: this.#dice.chance(0.5) ? "add-voter" : "add-learner", id });
      } else if (roll < 0.6) steps.push({ kind: "add-voter", id: present });
      else if (roll < 0.8) steps.push({ kind: "add-learner", id: present });
      else steps.push({ kind: "remove", id: present });
    }
    const transition = this.#dice.pick(["auto", "auto", "joint-implicit", "joint-explicit"] as const)!;
    member.node.proposeConfiguration(change(transition, steps));
  }

  #snapshotWork(): void {
    if (this.#dice.chance(0.6)) {
      this.#startSnapshot();
      return;
    }
    const at = this.#dice.between(0, this.#snapshots.length - 1);
    const ended = this.#snapshots.splice(at, 1)[0];
    const leader = ended === undefined ? undefined : this.members.get(ended.leader);
    if (ended !== undefined && leader?.node.term === ended.term) {
      this.#endSnapshot(leader, ended.peer, this.#dice.chance(0.6));
    }
  }

  #startSnapshot(): void {
    const wanted = this.#wanted.shift();
    const leader = wanted === undefined ? undefined : this.members.get(wanted.leader);
    if (wanted === undefined || leader?.node.role !== "leader") return;
    if (leader.node.termAt(leader.appliedIndex) === undefined) return;
    const snapshot = leader.snapshot();
    const { term } = leader.node;
    leader.node.snapshotStarted(wanted.peer, snapshot.index);
    this.#snapshots.push({ ...wanted, term });
    this.#send({ kind: "snapshot", from: leader.id, to: wanted.peer, term, snapshot });
  }

  #endSnapshot(leader: TestMember, peer: MemberId, ok: boolean): void {
    leader.node.snapshotFinished(peer, ok);
  }

  #compact(member: TestMember): void {
    const lowest = member.node.firstIndex - 1;
    if (member.appliedIndex > lowest && member.writes.every((write) => write.snapshot === undefined)) {
      member.compact(this.#dice.between(lowest, member.appliedIndex) as LogIndex);
    }
  }

  #restart(member: TestMember): void {
    this.#applyQueues.set(member.id, []);
    for (const key of this.#reads.keys()) {
      if (key.startsWith(`${member.id}:`)) this.#reads.delete(key);
    }
    member.restart(this.#dice.between(0, member.writes.length), (low, high) => this.#dice.between(low, high));
    this.counts.restarts++;
  }

  #repartition(): void {
    const sides = this.#dice.pick([1, 1, 2, 3])!;
    this.#sides = new Map([...this.members.keys()].map((id) => [id, this.#dice.between(1, sides)]));
  }

  /** With at most one companion, and asked for reads that it must not answer once others have moved on. */
  #isolateLeader(): void {
    const leader = [...this.members.values()].find(({ node }) => node.role === "leader");
    if (leader === undefined) return;
    const companion = this.#dice.pick([...this.members.keys()])!;
    this.#sides = new Map([...this.members.keys()].map((id) => [id, 1]));
    this.#sides.set(leader.id, 2);
    if (this.#dice.chance(0.5)) this.#sides.set(companion, 2);
    for (const { node, id } of this.members.values()) {
      // The others notice early, as hosts do when a stream breaks.
      if (this.#sides.get(id) !== 1) continue;
      node.forgetLeader();
      if (this.#dice.chance(0.5)) node.campaign();
    }
  }

  #nudge(member: TestMember): void {
    const peer = this.#dice.pick([...this.members.keys()])!;
    const roll = this.#dice.between(0, 3);
    if (roll === 0) member.node.campaign();
    else if (roll === 1) member.node.forgetLeader();
    else if (roll === 2) member.node.transferLeadership(peer);
    else member.node.reportUnreachable(peer);
  }

  #countElection(member: TestMember): void {
    const { role, term } = member.node;
    const now = `${role} ${term}`;
    if (this.#lastTerms.get(member.id) === now) return;
    this.#lastTerms.set(member.id, now);
    if (role === "leader") this.counts.elections++;
  }

  #describe(): string {
    return [...this.members.values()].map((member) => JSON.stringify(member.node.status())).join("\n");
  }
}

function change(
  transition: ConfigurationChange["transition"],
  steps: readonly ConfigurationStep[],
): ConfigurationChange {
  return { transition, steps, context: new Uint8Array(0) };
}
