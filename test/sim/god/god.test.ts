import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { encodePlan } from "../../../cell/src/machine/membership.ts";
import type { Cluster } from "../../../cell/src/replica/testing/cluster.ts";
import type { Entry, LogIndex, MemberId, Message, RaftInitialState } from "../../../cell/src/raft/types.ts";
import { folderOf, freshStart, hostOf, watchCluster } from "./testing/watched-cluster.ts";

/** What an honest disk holds after everything that was written. */
function recovered(cluster: Cluster, id: number): RaftInitialState {
  const member = cluster.member(id);
  const fresh = freshStart(member);
  const entries: Entry[] = [];
  let hardState = fresh.hardState;
  for (const write of member.wal.writes) {
    const first = write.entries[0];
    if (first !== undefined) entries.length = first.index - 2;
    entries.push(...write.entries);
    hardState = write.hardState ?? hardState;
  }
  return {
    ...fresh,
    entries,
    applied: member.state.appliedIndex,
    ...(hardState === undefined ? {} : { hardState }),
  };
}

describe("god over an honest cluster", () => {
  it("sees no law broken, and knows the history: elections, writes, a removal, a restart", () => {
    const { cluster, god, reporter, members, hosts } = watchCluster();
    const leader = cluster.elect(1);
    for (let i = 0; i < 20; i += 1) leader.put(`k${String(i % 3)}`, String(i));
    cluster.settle();
    cluster.pass(300);
    assert.equal(cluster.elect(2).raft.role, "leader");
    cluster.member(2).put("k1", "last");
    cluster.settle();
    cluster.pass(5);
    assert.deepEqual(reporter.texts, []);
    for (const { fatal } of cluster.members) assert.deepEqual(fatal, []);
    assert.equal(god.truth.revision, 22);
    assert.equal(god.truth.stateAt("k1", 22)?.value, "last");
    assert.equal(god.truth.stateAt("k1", 21)?.value, "19");
    assert.equal(god.truth.stateAt("k1", 2), undefined);
    assert.deepEqual(
      god.truth.rangeAt("k", 3).map(({ key, version }) => `${key} ${String(version)}`),
      ["k0 1", "k1 1"],
    );
    assert.equal(god.truth.at(22)?.events[0]?.previous?.value, "19");
    assert.equal(god.settled(members, hosts), undefined);

    const proposed = cluster.member(2).raft.proposeConfiguration({
      transition: "auto",
      steps: [{ kind: "remove", id: 3 as MemberId }],
      context: encodePlan({ plannedOn: 1 as LogIndex }),
    });
    assert.ok(proposed.ok);
    cluster.member(2).replica.pump();
    cluster.settle();
    cluster.pass(5);
    assert.deepEqual(reporter.texts, []);
    assert.equal(god.settled(members.slice(0, 2), hosts.slice(0, 2)), undefined);
    assert.match(god.settled(members, hosts) ?? "", /the configuration has members 1 2, expected 1 2 3/);

    god.ended("m1");
    god.opened("m1", folderOf(cluster.member(1), recovered(cluster, 1)));
    assert.deepEqual(reporter.texts, []);
    assert.equal(reporter.counts.get("elections"), 2);
    assert.equal(reporter.counts.get("members removed"), 1);
    for (const member of members) god.checkBounds(member);
  });

  it("calls revisions and entries in order, in the turn in which they are handed out first", () => {
    const { cluster, god } = watchCluster();
    const heard: string[] = [];
    god.truth.onRevision(({ revision, events }) => heard.push(`${String(revision)} ${events[0]?.key ?? ""}`));
    const leader = cluster.elect(1);
    const answers = leader.put("a");
    leader.put("b");
    cluster.settle();
    assert.deepEqual(answers, ["ok"]);
    assert.deepEqual(heard, ["2 a", "3 b"]);
    assert.equal(god.truth.entry(3)?.outcomes.length, 2);
  });
});

describe("god over a broken cluster", () => {
  it("I4: another state after the same entries", () => {
    const { cluster, reporter } = watchCluster((broken) => {
      const { machine } = broken.member(3).state;
      const apply = machine.apply.bind(machine);
      machine.apply = (entries, reader, wantEvents) =>
        apply(
          entries.map((entry) => (entry.index === 3 ? { ...entry, data: new Uint8Array(0) } : entry)),
          reader,
          wantEvents,
        );
    });
    cluster.elect(1).put("k");
    cluster.settle();
    cluster.pass(2);
    assert.deepEqual(reporter.laws, ["I4"]);
    assert.match(reporter.texts[0] ?? "", /m3 .* applied 3/);
  });

  it("W10: a batch that one member does not write", () => {
    const { cluster, reporter } = watchCluster((broken) => {
      const { state } = broken.member(2);
      const write = state.writeRows.bind(state);
      state.writeRows = (rows) => (state.appliedIndex === 3 ? undefined : write(rows));
    });
    cluster.elect(1).put("k");
    cluster.settle();
    cluster.pass(2);
    assert.deepEqual(reporter.laws, ["W10"]);
  });

  it("I2: other bytes under the same index and term", () => {
    const { cluster, reporter } = watchCluster();
    const leader = cluster.elect(1);
    leader.put("k");
    const splice = cluster.wire.splice.bind(cluster.wire);
    cluster.wire.splice = (start: number): Message[] => splice(start).map(forgedForThird);
    cluster.settle();
    assert.ok(reporter.laws.includes("I2-bytes"), reporter.texts.join("\n"));
  });

  it("I6: an acknowledgement that the disk does not hold yet", () => {
    const { cluster, reporter } = watchCluster();
    const leader = cluster.elect(1);
    const hasty = cluster.member(2);
    hasty.wal.prompt = false;
    cluster.lost = ({ to }) => to === 3;
    const ready = hasty.raft.ready.bind(hasty.raft);
    hasty.raft.ready = () => {
      const handed = ready();
      const { append } = handed;
      return append === undefined ? handed : { ...handed, messages: [...handed.messages, ...append.held] };
    };
    leader.put("k");
    cluster.settle();
    assert.equal(reporter.laws[0], "I6-acknowledged");
  });

  it("I6: an entry that the leader calls committed on a minority", () => {
    const { cluster, reporter } = watchCluster();
    const leader = cluster.elect(1);
    cluster.pass(1);
    cluster.lost = () => true;
    const { raft } = leader;
    leader.put("k");
    cluster.settle();
    raft.step({
      kind: "append-response",
      from: 2 as MemberId,
      to: 1 as MemberId,
      term: raft.term,
      index: raft.lastIndex,
      rejected: false,
      hintIndex: 0 as LogIndex,
      hintTerm: 0 as typeof raft.term,
    });
    leader.replica.pump();
    assert.deepEqual(reporter.laws, ["I6"]);
    assert.match(leader.fatal[0]?.message ?? "", /^I6: m1 \(member 1, life 1\) calls 3 of term 2 committed/);
  });

  it("I8: a deposed leader that serves a read without asking its quorum", () => {
    const { cluster, reporter } = watchCluster();
    const old = cluster.elect(1);
    old.put("k", "old");
    cluster.settle();
    cluster.pass(2);
    cluster.lost = ({ from, to }) => from === 1 || to === 1;
    cluster.member(2).raft.forgetLeader();
    cluster.member(3).raft.forgetLeader();
    cluster.member(2).raft.campaign();
    cluster.member(2).replica.pump();
    cluster.settle();
    cluster.member(2).put("k", "new");
    cluster.settle();
    const { raft, replica } = old;
    assert.equal(raft.role, "leader");
    raft.readIndex = (request) => replica.reads.confirmed(request, raft.commit);
    const serve = (): void => undefined;
    replica.read({ serve, fail: serve, deadlineMs: Infinity });
    assert.throws(() => cluster.settle(), /I8-read-index/);
    assert.deepEqual(reporter.laws, ["I8-read-index"]);
  });

  it("I5: a restart that finds less than what was promised", () => {
    const { cluster, god, reporter } = watchCluster();
    cluster.elect(1).put("k");
    cluster.settle();
    cluster.pass(3);
    const honest = recovered(cluster, 2);
    const { hardState } = honest;
    assert.ok(hardState !== undefined);
    const restart = (initial: RaftInitialState): string[] => {
      reporter.laws.length = 0;
      try {
        god.opened("m2", folderOf(cluster.member(2), initial));
      } catch {
        return [...reporter.laws];
      }
      return [];
    };
    const lost = ["I5-promise"];
    assert.deepEqual(restart({ ...honest, entries: honest.entries.slice(0, -1) }), lost);
    assert.deepEqual(restart({ ...honest, hardState: { ...hardState, vote: 0 as MemberId } }), lost);
    assert.deepEqual(restart({ ...honest, hardState: { ...hardState, vote: 3 as MemberId } }), lost);
    assert.deepEqual(
      restart({ ...honest, hardState: { ...hardState, term: 1 as typeof hardState.term } }),
      lost,
    );
    assert.deepEqual(restart({ ...honest, applied: 0 as LogIndex }), lost);
    assert.deepEqual(restart(honest), []);
    god.diskDamaged("m2");
    assert.deepEqual(restart({ ...honest, entries: [], applied: 1 as LogIndex }), []);
  });

  it("I13: a row that one member holds and the others do not", () => {
    const { cluster, god, members, hosts } = watchCluster();
    cluster.elect(1).put("k");
    cluster.settle();
    cluster.pass(5);
    assert.equal(god.settled(members, hosts), undefined);
    cluster
      .member(3)
      .state.writeRows([{ keyspace: "requests", key: Buffer.from("stray"), value: Buffer.from("row") }]);
    assert.match(god.settled(members, hosts) ?? "", /^m3 has another row in requests/);
  });

  it("I13: not at rest while somebody lacks something", () => {
    const { cluster, god, members, hosts } = watchCluster();
    assert.match(god.settled(members, hosts) ?? "", /0 leaders/);
    assert.match(god.settled(members.slice(0, 2), hosts) ?? "", /m3 does not run/);
    const leader = cluster.elect(1);
    cluster.lost = ({ to }) => to === 3;
    leader.put("k");
    cluster.settle();
    assert.match(god.settled(members, hosts) ?? "", /m[23] (does not hold|has applied)/);
  });

  it("bounds: more is pending than was ever allowed", () => {
    const { cluster, god, members } = watchCluster();
    const [first] = members;
    assert.ok(first !== undefined);
    god.checkBounds(first);
    Object.defineProperty(cluster.member(1).replica, "applyLag", { value: 1e9 });
    assert.throws(() => god.checkBounds(first), /bounds: m1: 1000000000 entries to apply/);
  });

  it("a member's folder is looked at before it runs", () => {
    const { god, members } = watchCluster();
    god.ended(hostOf(1));
    assert.throws(() => god.started(members[0] as (typeof members)[number]), /was not opened/);
  });
});

/** The put that member 3 receives has another value. */
function forgedForThird(message: Message): Message {
  if (message.kind !== "append" || message.to !== 3 || message.entries.length === 0) return message;
  return {
    ...message,
    entries: message.entries.map((entry) => {
      const data = Uint8Array.from(entry.data);
      if (data.length > 0) data[data.length - 1] = (data.at(-1) ?? 0) ^ 1;
      return { ...entry, data };
    }),
  };
}
