import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Configuration, ConfigurationChange, LogIndex, MemberId } from "../raft/types.ts";
import { InvariantError } from "../invariant.ts";
import {
  advanceMembership,
  decideChange,
  decodeMembership,
  decodePlan,
  encodeMembership,
  encodePlan,
} from "./membership.ts";
import type { MemberRecord, Membership } from "./membership.ts";

const id = (n: number): MemberId => n as MemberId;
const at = (n: number): LogIndex => n as LogIndex;
const record = (n: number, name = `m${String(n)}`): MemberRecord => ({
  id: id(n),
  name,
  incarnation: `incarnation-${String(n)}`,
  addresses: { client: "c:1", http: "h:1", peer: "p:1", admin: "a:1", ops: "o:1" },
});
const configuration = (
  voters: number[],
  learners: number[] = [],
  outgoing: number[] = [],
): Configuration => ({
  voters: voters.map(id),
  learners: learners.map(id),
  outgoing: outgoing.map(id),
  learnersNext: [],
  autoLeave: outgoing.length > 0,
});
const cell = (members: number[]): Membership => ({
  cellId: "cell",
  configurationIndex: at(10),
  configuration: configuration(members),
  members: members.map((n) => record(n)),
  removedIds: [],
  nextMemberId: id(Math.max(...members) + 1),
});
const addLearner = (member: MemberRecord, plannedOn = 0): ConfigurationChange => ({
  transition: "auto",
  steps: [{ kind: "add-learner", id: member.id }],
  context: encodePlan({ plannedOn: at(plannedOn), add: member }),
});

describe("membership", () => {
  it("R42: an id is handed out once, and a removed one never comes back", () => {
    const before = cell([1, 2, 3]);
    const change: ConfigurationChange = {
      transition: "auto",
      steps: [{ kind: "remove", id: id(3) }],
      context: encodePlan({ plannedOn: at(10) }),
    };
    const verdict = decideChange(before, change);
    assert.ok(verdict.accepted);
    const after = advanceMembership(before, at(11), verdict.plan, configuration([1, 2]));
    assert.deepEqual(after.removedIds, [3]);
    assert.deepEqual(
      after.members.map((member) => member.id),
      [1, 2],
    );
    assert.deepEqual(decideChange(after, addLearner(record(3, "again"))), {
      accepted: false,
      reason: "id-not-next",
    });
    assert.ok(decideChange(after, addLearner(record(4))).accepted);
  });

  it("a leaving voter keeps its record until the joint configuration is left", () => {
    const before = cell([1, 2, 3]);
    const joint = advanceMembership(
      before,
      at(11),
      { plannedOn: at(10) },
      configuration([1, 2], [], [1, 2, 3]),
    );
    assert.equal(joint.members.length, 3);
    const left = advanceMembership(joint, at(12), undefined, configuration([1, 2]));
    assert.deepEqual(left.removedIds, [3]);
  });

  it("refuses a change that was planned on an older configuration", () => {
    assert.deepEqual(decideChange(cell([1, 2, 3]), addLearner(record(4), 9)), {
      accepted: false,
      reason: "stale-plan",
    });
  });

  it("refuses a name that is in use: a wiped disk does not come back under its old name", () => {
    assert.deepEqual(decideChange(cell([1, 2, 3]), addLearner(record(4, "m2"))), {
      accepted: false,
      reason: "name-in-use",
    });
  });

  it("refuses steps about members nobody knows, and steps without a plan", () => {
    const promote: ConfigurationChange = {
      transition: "auto",
      steps: [{ kind: "add-voter", id: id(9) }],
      context: encodePlan({ plannedOn: at(10) }),
    };
    assert.deepEqual(decideChange(cell([1]), promote), { accepted: false, reason: "unknown-member" });
    const bare = { ...promote, context: new Uint8Array() };
    assert.deepEqual(decideChange(cell([1]), bare), { accepted: false, reason: "malformed-plan" });
  });

  it("accepts the automatic leave, which has neither steps nor plan", () => {
    const leave: ConfigurationChange = { transition: "auto", steps: [], context: new Uint8Array() };
    assert.ok(decideChange(cell([1]), leave).accepted);
  });

  it("round-trips, names outside ASCII included, and takes garbage for no plan", () => {
    const membership = { ...cell([1, 2]), members: [record(1, "größe-☃"), record(2)] };
    assert.deepEqual(decodeMembership(encodeMembership(membership)), membership);
    for (const broken of [
      { configuration: {} },
      { configuration: { ...membership.configuration, voters: ["1"] } },
      { configuration: { ...membership.configuration, autoLeave: 1 } },
      { removedIds: [null] },
    ]) {
      const row = Buffer.from(JSON.stringify({ ...cell([1]), ...broken }));
      assert.throws(() => decodeMembership(row), InvariantError, JSON.stringify(broken));
    }
    assert.equal(decodePlan(Uint8Array.of(1, 2, 3)), undefined);
    assert.equal(decodePlan(encodePlan({ plannedOn: at(1) }).subarray(1)), undefined);
  });
});
