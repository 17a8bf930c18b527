import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Membership } from "../../../cell/src/machine/membership.ts";
import type { MachineEvent } from "../../../cell/src/machine/types.ts";
import { EMPTY_CONFIGURATION } from "../../../cell/src/raft/index.ts";
import type {
  Configuration,
  Entry,
  HardState,
  LogIndex,
  MemberId,
  Message,
  RaftInitialState,
  RaftNode,
  Role,
  Term,
} from "../../../cell/src/raft/types.ts";
import type { CellState } from "../../../cell/src/replica/state.ts";
import type { WalWrite } from "../../../cell/src/wal/types.ts";
import { Ledger } from "./ledger.ts";
import { LeadershipLaws } from "./leadership-laws.ts";
import type { Life } from "./life.ts";
import { DiskLog } from "./log-model.ts";
import { describeStep, MembershipLaws } from "./membership-laws.ts";
import { Promises } from "./promises.ts";
import { RememberingReporter } from "./testing/watched-cluster.ts";
import { Timeline } from "./timeline.ts";
import { CellTruth } from "./truth.ts";

const entry = (index: number, term: number, text = ""): Entry =>
  ({ index, term, kind: "normal", data: Buffer.from(text) }) as unknown as Entry;
const hard = (term: number, vote: number, commit: number): HardState => ({ term, vote, commit }) as HardState;
const ids = (...all: number[]): MemberId[] => all as MemberId[];
const configuration = (voters: number[], more: Partial<Configuration> = {}): Configuration => ({
  ...EMPTY_CONFIGURATION,
  voters: ids(...voters),
  ...more,
});

/** One disk, and the laws about it. */
class DiskWorld {
  readonly reporter = new RememberingReporter();
  readonly ledger = new Ledger(this.reporter);
  readonly promises = new Promises(this.reporter, this.ledger);
  readonly disk = new DiskLog({ host: "m1", memberId: 1, incarnation: "i1" });

  constructor() {
    this.disk.recovered(this.found([], hard(4, 0, 1)));
  }

  /** @returns what makes it durable. */
  write(write: Partial<WalWrite>): () => void {
    const whole = { entries: [], ...write };
    this.promises.writing(this.disk, whole);
    return this.disk.begin(whole);
  }

  send(message: object): void {
    this.promises.sending(this.disk, [{ from: 1, to: 2, ...message } as unknown as Message]);
  }

  found(entries: Entry[], hardState: HardState, more: Partial<RaftInitialState> = {}): RaftInitialState {
    return {
      ...{ entries, hardState, applied: 1 as LogIndex, configuration: configuration([1, 2, 3]) },
      logStart: { index: 1 as LogIndex, term: 1 as Term },
      ...more,
    };
  }

  recover(initial: RaftInitialState): void {
    this.promises.recovered(this.disk, initial);
  }
}

describe("I5: promises at the disk", () => {
  it("a vote leaves before it is saved", () => {
    const world = new DiskWorld();
    const done = world.write({ hardState: hard(5, 2, 1) });
    const vote = { kind: "vote-response", term: 5, granted: true };
    assert.throws(() => world.send(vote), /I5-unsaved/);
    done();
    world.send(vote);
    assert.throws(() => world.send({ ...vote, to: 3 }), /I5-one-vote/);
  });

  it("an acknowledgement leaves before it is saved", () => {
    const world = new DiskWorld();
    const done = world.write({ hardState: hard(5, 0, 1), entries: [entry(2, 5)] });
    const acknowledgement = { kind: "append-response", term: 5, index: 2, rejected: false };
    assert.throws(() => world.send(acknowledgement), /I5-unsaved/);
    done();
    world.send(acknowledgement);
    assert.throws(() => world.send({ ...acknowledgement, index: 3 }), /I6-acknowledged/);
  });

  it("the hard state goes back", () => {
    const world = new DiskWorld();
    world.write({ hardState: hard(5, 2, 1), entries: [entry(2, 4)] });
    assert.throws(() => world.write({ hardState: hard(4, 2, 1) }), /I5-hard-state: .* term 4 after 5/);
    assert.throws(() => world.write({ hardState: hard(5, 3, 1) }), /I5-hard-state: .* vote for 3 after 2/);
    assert.throws(() => world.write({ hardState: hard(5, 2, 3) }), /commit 3 beyond its log's end 2/);
    world.write({ hardState: hard(5, 2, 2) });
    assert.throws(() => world.write({ hardState: hard(5, 2, 1) }), /commit 1 after 2/);
  });

  it("a restart forgets that it led, whatever was written", () => {
    const world = new DiskWorld();
    world.write({ hardState: hard(5, 1, 1) });
    world.send({ kind: "append", term: 5 });
    assert.throws(() => world.recover(world.found([], hard(4, 0, 1))), /acted as leader of term 5/);
    assert.throws(() => world.recover(world.found([], hard(5, 3, 1))), /acted as leader of term 5/);
    world.recover(world.found([], hard(5, 1, 1)));
  });

  it("a restart loses what was durable; what was still on its way it may have either way", () => {
    const world = new DiskWorld();
    world.write({ hardState: hard(5, 0, 1), entries: [entry(2, 5, "a"), entry(3, 5, "b")] })();
    world.write({ hardState: hard(6, 0, 1), entries: [entry(3, 6, "c"), entry(4, 6, "d")] });
    const kept = [entry(2, 5, "a"), entry(3, 5, "b")];
    world.recover(world.found(kept, hard(5, 0, 1)));
    world.recover(world.found([entry(2, 5, "a"), entry(3, 6, "c")], hard(6, 0, 1)));
    assert.throws(() => world.recover(world.found([], hard(5, 0, 1))), /I5-promise: .* held 2 of term 5/);
  });

  it("a state that takes the place of a contradicting log breaks no promise", () => {
    const world = new DiskWorld();
    world.write({ hardState: hard(5, 0, 1), entries: [entry(2, 5), entry(3, 5), entry(4, 5)] })();
    const logStart = { index: 3 as LogIndex, term: 6 as Term };
    world.recover(world.found([], hard(6, 0, 3), { logStart, applied: 3 as LogIndex }));
    const same = { index: 3 as LogIndex, term: 5 as Term };
    const lost = world.found([], hard(6, 0, 3), { logStart: same, applied: 3 as LogIndex });
    assert.throws(() => world.recover(lost), /held 4 of term 5/);
  });

  it("a store falls behind its barrier, or its log is released beyond it (W9)", () => {
    const world = new DiskWorld();
    world.write({ hardState: hard(4, 0, 1), entries: [entry(2, 4), entry(3, 4)] })();
    world.disk.barrierIndex = 2;
    const entries = [entry(2, 4), entry(3, 4)];
    assert.throws(() => world.recover(world.found(entries, hard(4, 0, 1))), /stood at 2 after a barrier/);
    world.recover(world.found(entries, hard(4, 0, 1), { applied: 2 as LogIndex }));
    world.promises.releasing(world.disk, 2);
    assert.throws(() => world.promises.releasing(world.disk, 3), /W9: m1 releases its log up to 3/);
  });

  it("I3: a committed entry is cut, one that is not committed may be", () => {
    const world = new DiskWorld();
    world.write({ hardState: hard(5, 0, 1), entries: [entry(2, 5), entry(3, 5)] });
    world.ledger.committed("m2", 2, 5);
    world.write({ hardState: hard(6, 0, 2), entries: [entry(3, 6)] });
    assert.throws(() => world.write({ entries: [entry(2, 6)] }), /I3-cut: .* committed entry 2 of term 5/);
    assert.throws(() => world.write({ entries: [entry(5, 6)] }), /I2-gap/);
  });
});

describe("I2: one log", () => {
  it("an index and term have one content and one entry before them", () => {
    const reporter = new RememberingReporter();
    const ledger = new Ledger(reporter);
    ledger.written("m1", [entry(2, 5, "a"), entry(3, 5, "b")], 1);
    ledger.written("m2", [entry(3, 5, "b")], 5);
    ledger.written("m2", [entry(2, 6, "x")], 1);
    assert.throws(() => ledger.written("m3", [entry(2, 5, "c")], 1), /I2-bytes/);
    assert.throws(() => ledger.written("m3", [entry(3, 5, "b")], 6), /I2-prefix/);
    const change = { ...entry(2, 5, "a"), kind: "configuration" } as const;
    assert.throws(() => ledger.written("m3", [change], 1), /I2-bytes/);
    ledger.committed("m1", 2, 5);
    assert.throws(() => ledger.committed("m2", 2, 6), /I2-committed/);
  });
});

/** Lives whose consensus core is what the test says. */
class LeaderWorld {
  readonly reporter = new RememberingReporter();
  readonly ledger = new Ledger(this.reporter);
  readonly lives = new Map<number, Life>();
  readonly laws = new LeadershipLaws(this.reporter, this.ledger, (id) => this.lives.get(id)?.disk);
  membership = configuration([1, 2, 3]);

  /** A member whose durable log holds entries of these terms from index 2 on. */
  member(id: number, terms: number[]): Life {
    const entries = terms.map((term, at) => entry(at + 2, term));
    const disk = new DiskLog({ host: `m${String(id)}`, memberId: id, incarnation: `i${String(id)}` });
    disk.recovered({
      ...{ entries, applied: 1 as LogIndex, configuration: this.membership, hardState: hard(99, 0, 1) },
      logStart: { index: 1 as LogIndex, term: 1 as Term },
    });
    const life: Life = {
      ...{ host: disk.host, memberId: id, number: 1, disk, alive: true, recovered: [], raft: undefined },
      ...{ seenCommit: 1, ledTerm: 0, configuration: undefined },
      state: { membership: { configuration: this.membership } } as unknown as CellState,
    };
    this.lives.set(id, life);
    return life;
  }

  look(life: Life, role: Role, term: number, commit: number): void {
    const { disk } = life;
    life.raft = {
      ...{ role, term, commit, firstIndex: 2, lastIndex: disk.written.last },
      termAt: (index: LogIndex) => disk.written.termAt(index),
    } as unknown as RaftNode;
    this.laws.look(life);
  }
}

describe("leaders", () => {
  it("I1: two in one term, be it the same member in another life", () => {
    const world = new LeaderWorld();
    world.look(world.member(1, []), "leader", 5, 1);
    world.look(world.member(2, []), "leader", 6, 1);
    assert.throws(() => world.look(world.member(3, []), "leader", 5, 1), /I1: two leaderships in term 5/);
    assert.throws(() => world.look(world.member(2, []), "leader", 6, 1), /I1: two leaderships in term 6/);
  });

  it("I5: one whose own vote is not on its disk", () => {
    const world = new LeaderWorld();
    const leader = world.member(1, []);
    leader.disk.durableHardState = hard(4, 0, 1);
    assert.throws(() => world.look(leader, "leader", 5, 1), /I5-elected: m1 .* its disk holds term 4/);
  });

  it("I3: one that lacks a committed entry, or has another in its place", () => {
    const world = new LeaderWorld();
    world.look(world.member(1, [2, 2]), "follower", 2, 3);
    world.look(world.member(1, [2, 2, 3]), "leader", 3, 3);
    assert.throws(() => world.look(world.member(2, [2]), "leader", 4, 1), /I3: .* holds nothing at 3/);
    assert.throws(() => world.look(world.member(3, [2, 1]), "leader", 5, 1), /I3: .* of term 1 at 3/);
  });

  it("I3: one that lacks what an older leader learns to be committed only now", () => {
    const world = new LeaderWorld();
    const old = world.member(1, [2]);
    world.member(2, [2]);
    world.look(old, "leader", 2, 1);
    world.look(world.member(3, [1]), "leader", 3, 1);
    assert.throws(() => world.look(old, "leader", 2, 2), /I3: the leader of term 3/);
  });

  it("I6: one that calls committed what a minority holds, in either half of a joint configuration", () => {
    const world = new LeaderWorld();
    const leader = world.member(1, [2]);
    world.member(2, []);
    world.member(3, []);
    world.look(leader, "leader", 2, 1);
    assert.throws(() => world.look(leader, "leader", 2, 2), /I6: m1 .* calls 2 of term 2 committed/);
    const joint = new LeaderWorld();
    joint.membership = configuration([1, 4, 5], { outgoing: ids(1, 2, 3) });
    const other = joint.member(1, [2]);
    joint.member(2, [2]);
    joint.member(4, []);
    joint.look(other, "leader", 2, 1);
    assert.throws(() => joint.look(other, "leader", 2, 2), /I6: .* of voters \[1 4 5\]&\[1 2 3\]/);
  });

  it("I6: one that counts itself though it is no voter any more", () => {
    const world = new LeaderWorld();
    world.membership = configuration([2, 3]);
    const leader = world.member(1, [2]);
    world.member(2, [2]);
    world.member(3, []);
    world.look(leader, "leader", 2, 1);
    assert.throws(() => world.look(leader, "leader", 2, 2), /I6/);
  });

  it("I6: one that commits an entry of an earlier term by counting", () => {
    const world = new LeaderWorld();
    const leader = world.member(1, [2, 3]);
    for (const id of [2, 3]) world.member(id, [2, 3]);
    world.look(leader, "leader", 3, 1);
    assert.throws(() => world.look(leader, "leader", 3, 2), /I6-own-term/);
  });

  it("a majority's disks are enough", () => {
    const world = new LeaderWorld();
    const leader = world.member(1, [2]);
    world.member(2, [2]);
    world.member(3, []);
    world.look(leader, "leader", 2, 1);
    world.look(leader, "leader", 2, 2);
    assert.deepEqual(world.reporter.texts, []);
    assert.equal(world.ledger.highestCommit, 2);
  });
});

describe("I7: configurations", () => {
  it("one step changes one voter, or goes through a joint configuration", () => {
    const joint = configuration([1, 4, 5], { outgoing: ids(1, 2, 3) });
    assert.equal(describeStep(configuration([1, 2, 3]), configuration([1, 2])), undefined);
    assert.equal(
      describeStep(configuration([1, 2, 3]), configuration([1, 2, 3], { learners: ids(4) })),
      undefined,
    );
    assert.equal(describeStep(configuration([1, 2, 3]), joint), undefined);
    assert.equal(describeStep(joint, configuration([1, 4, 5])), undefined);
    assert.match(describeStep(configuration([1, 2, 3]), configuration([1, 4, 5])) ?? "", /changes 4 voters/);
    assert.match(describeStep(configuration([1, 2]), joint) ?? "", /old half is not the one before/);
    assert.match(describeStep(joint, configuration([1, 2, 3])) ?? "", /other voters than its new half/);
    assert.match(describeStep(joint, joint) ?? "", /from one joint configuration to another/);
  });

  const member = (id: number, incarnation = `i${String(id)}`): Membership["members"][number] => ({
    ...{ id: id as MemberId, name: `m${String(id)}-${incarnation}`, incarnation },
    addresses: { client: "c", http: "h", peer: "p", admin: "a", ops: "o" },
  });
  const membership = (at: number, members: Membership["members"], removed: number[] = []): Membership => ({
    cellId: "cell",
    configurationIndex: at as LogIndex,
    configuration: configuration(members.map(({ id }) => id)),
    ...{ members, removedIds: ids(...removed), nextMemberId: 9 as MemberId },
  });

  function laws(): {
    reporter: RememberingReporter;
    change: (before: Membership, after: Membership) => void;
  } {
    const reporter = new RememberingReporter();
    const checked = new MembershipLaws(reporter, new CellTruth(reporter, { nowUs: 0 }));
    const change = (before: Membership, after: Membership): void =>
      checked.changed({ index: after.configurationIndex, before, after });
    return { reporter, change };
  }

  it("a member id is used again, by another disk or by the same", () => {
    const three = membership(1, [member(1), member(2), member(3)]);
    const two = membership(2, [member(1), member(2)], [3]);
    const other = laws();
    other.change(membership(0, [member(1), member(2)]), three);
    other.change(three, two);
    const another = membership(3, [member(1), member(2), member(3, "other")], [3]);
    assert.throws(() => other.change(two, another), /I7-reused-id/);
    const same = laws();
    same.change(three, two);
    assert.throws(
      () => same.change(two, membership(3, [member(1), member(2), member(3)], [3])),
      /I7-removed: .* brings back member 3/,
    );
  });

  it("a removed member is forgotten, or members are not those of the configuration", () => {
    const three = membership(1, [member(1), member(2), member(3)]);
    assert.throws(() => laws().change(three, membership(2, [member(1), member(2)])), /forgets that member 3/);
    const lacking = {
      ...membership(2, [member(1), member(2)], [3]),
      configuration: configuration([1, 2, 3]),
    };
    assert.throws(() => laws().change(three, lacking), /lists members 1 2/);
  });
});

describe("the timeline", () => {
  const put = (key: string, over: object, previousRevision: number): MachineEvent =>
    ({
      ...{ kind: "put", cause: "client", previousRevision },
      kv: { key: Buffer.from(key), value: Buffer.from("v"), leaseId: "0", ...over },
    }) as unknown as MachineEvent;

  it("computes anew what the machine says of a change", () => {
    const timeline = new Timeline(1);
    const add = (revision: number, event: MachineEvent): string | undefined => {
      timeline.add({ namespaceId: 1, revision: revision as never, events: [event] }, 0);
      return timeline.takeComplaint();
    };
    assert.equal(add(2, put("k", { createRevision: 2, modRevision: 2, version: 1 }, 0)), undefined);
    assert.equal(add(3, put("k", { createRevision: 2, modRevision: 3, version: 2 }, 2)), undefined);
    assert.match(
      add(4, put("k", { createRevision: 4, modRevision: 4, version: 1 }, 3)) ?? "",
      /expected created 2/,
    );
    assert.match(add(5, put("k", { createRevision: 4, modRevision: 5, version: 2 }, 3)) ?? "", /it is of 4/);
    assert.match(add(5, put("l", { createRevision: 5, modRevision: 5, version: 1 }, 0)) ?? "", /5 follows 5/);
    const gone = { kind: "delete", cause: "client", previousRevision: 0, kv: { key: Buffer.from("x") } };
    assert.match(add(6, gone as unknown as MachineEvent) ?? "", /deleted at 6 and was not there/);
  });
});
