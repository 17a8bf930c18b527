import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { encodeMembership, encodePlan } from "../machine/membership.ts";
import type { MemberRecord, Membership } from "../machine/membership.ts";
import { encodeConfigurationChange } from "../raft/index.ts";
import type { Entry, LogIndex, MemberId, Term } from "../raft/types.ts";
import type { PeerAddress, Transport } from "../transport/types.ts";
import { decodeForwarded } from "./forwarding.ts";
import { Newcomers } from "./newcomers.ts";
import { Cluster } from "./testing/cluster.ts";

const id = (value: number): MemberId => value as MemberId;

function record(value: number): MemberRecord {
  const addresses = { client: "c", http: "h", peer: `p${String(value)}`, admin: "a", ops: "o" };
  return { id: id(value), name: `m${String(value)}`, incarnation: `i${String(value)}`, addresses };
}

function membership(ids: readonly number[], index: number): Membership {
  return {
    cellId: "cell",
    configurationIndex: index as LogIndex,
    configuration: { voters: ids.map(id), outgoing: [], learners: [], learnersNext: [], autoLeave: false },
    members: ids.map(record),
    removedIds: [],
    nextMemberId: id(Math.max(...ids) + 1),
  };
}

function stranger(value: number): PeerAddress {
  return { memberId: id(value), incarnation: `i${String(value)}`, address: `p${String(value)}` };
}

/** Member 3, which knows members 1 to 3. */
class World {
  readonly cluster = new Cluster();
  own: Membership = membership([1, 2, 3], 5);
  readonly asked: {
    readonly to: MemberId;
    readonly answer: (body: Uint8Array | undefined | "unsent") => void;
  }[] = [];
  learnt = 0;
  readonly newcomers: Newcomers;

  constructor() {
    const transport: Pick<Transport, "request"> = {
      request: (to, body, _timeoutMs, answer) => {
        assert.equal(decodeForwarded(body).kind, "membership");
        this.asked.push({ to, answer });
      },
    };
    this.newcomers = new Newcomers({
      self: id(3),
      environment: this.cluster.environment((error) => assert.fail(error)),
      membership: () => this.own,
      transport: () => transport as Transport,
      learnt: () => (this.learnt += 1),
    });
  }

  knock(member: number): void {
    this.cluster.nowMs += 1_000;
    this.newcomers.knocked(stranger(member));
    this.cluster.settle();
  }

  answer(told: Membership): void {
    this.asked.at(-1)?.answer(encodeMembership(told));
  }
}

describe("a member that joined while this one was away", () => {
  it("B14: is asked about at the members that are known, and let in from then on", () => {
    const world = new World();
    world.knock(4);
    assert.equal(world.newcomers.find(id(4)), undefined, "not on its own word");
    world.answer(membership([1, 2, 3, 4], 9));
    assert.deepEqual(world.newcomers.find(id(4)), record(4));
    assert.equal(world.learnt, 1);
  });

  it("is asked about one question at a time, and not more often than now and then", () => {
    const world = new World();
    world.knock(4);
    world.knock(4);
    assert.equal(world.asked.length, 1, "one question at a time");
    world.asked[0]?.answer(undefined);
    world.newcomers.knocked(stranger(4));
    world.cluster.settle();
    assert.equal(world.asked.length, 2, "the pause is over, the first did not answer");
    world.asked[1]?.answer("unsent");
    world.newcomers.knocked(stranger(4));
    world.cluster.settle();
    assert.equal(world.asked.length, 2);
    assert.deepEqual(
      world.asked.map(({ to }) => to),
      [1, 4],
      "the others, and every other time the one that knocks",
    );
  });

  it("answers for itself when all that this member knew are gone; until then it is dialled and not let in", () => {
    const world = new World();
    world.knock(4);
    world.asked.at(-1)?.answer(undefined);
    assert.deepEqual(world.newcomers.peers(), []);
    world.knock(4);
    assert.deepEqual(world.newcomers.peers(), [stranger(4)]);
    assert.equal(world.newcomers.find(id(4)), undefined);
    world.answer(membership([3, 4, 5], 20));
    assert.deepEqual(world.newcomers.find(id(4)), record(4));
    assert.deepEqual(world.newcomers.peers(), [stranger(4), stranger(5)]);
  });

  it("is dialled with few others at a time", () => {
    const world = new World();
    for (let member = 4; member < 40; member += 1) {
      world.knock(member);
      world.asked.at(-1)?.answer("unsent");
    }
    assert.ok(world.newcomers.peers().length <= 4);
  });

  it("a removed member, or one that was never handed out beyond those seen, is a stranger: nobody is asked", () => {
    const world = new World();
    world.own = { ...membership([1, 3], 7), removedIds: [id(2)], nextMemberId: id(4) };
    world.knock(2);
    assert.equal(world.asked.length, 0);
  });

  it("is forgotten once the change that adds or passes it is applied here", () => {
    const world = new World();
    world.knock(4);
    world.answer(membership([1, 2, 3, 4], 9));
    world.own = { ...membership([1, 2, 3], 11), removedIds: [id(4)], nextMemberId: id(5) };
    assert.deepEqual(world.newcomers.records(), []);
  });

  it("is known by the entry of this member's own log that adds it, applied or not", () => {
    const world = new World();
    const add = (value: number): Entry => ({
      ...{ index: 6 as LogIndex, term: 2 as Term, kind: "configuration" },
      data: encodeConfigurationChange({
        ...{ transition: "auto", steps: [{ kind: "add-learner", id: id(value) }] },
        context: encodePlan({ plannedOn: 5 as LogIndex, add: record(value) }),
      }),
    });
    const other: Entry = { ...add(5), data: Buffer.from("?") };
    world.newcomers.logged([add(2), other, { ...add(6), kind: "normal" }, add(4)]);
    assert.deepEqual(world.newcomers.records(), [record(4)]);
    assert.equal(world.learnt, 1);
    world.newcomers.logged([add(4)]);
    assert.equal(world.learnt, 1, "nothing new");
  });

  it("another cell's word, an older one, or none that can be read changes nothing", () => {
    const world = new World();
    world.knock(4);
    world.answer({ ...membership([1, 2, 3, 4], 9), cellId: "another" });
    world.knock(4);
    world.answer(membership([1, 2, 3, 4], 5));
    world.knock(4);
    world.asked.at(-1)?.answer(Buffer.from("{"));
    assert.deepEqual(world.newcomers.records(), []);
    assert.equal(world.asked.length, 3);
  });
});
