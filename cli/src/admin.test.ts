import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";
import { admin } from "@lockstep/proto";
import { EXIT } from "./exit-codes.ts";
import { FakeAdmin, fakeMember } from "./testing/fake-admin.ts";
import { record, type Recorded } from "./testing/recorder.ts";

const { VOTER, LEARNER } = admin.MemberKind;
const started: FakeAdmin[] = [];
let leader: FakeAdmin;

async function startAdmin(): Promise<FakeAdmin> {
  const fake = await FakeAdmin.start();
  started.push(fake);
  return fake;
}

beforeEach(async () => {
  leader = await startAdmin();
  leader.members = [
    fakeMember(1, VOTER, leader.address),
    fakeMember(2, VOTER),
    fakeMember(3, VOTER),
    fakeMember(4, LEARNER),
    fakeMember(5, LEARNER),
  ];
});
after(() => {
  for (const fake of started) fake.stop();
});

function lockstep(args: readonly string[], endpoint: FakeAdmin = leader): Promise<Recorded> {
  return record(args, { env: { LOCKSTEP_ADMIN_ENDPOINTS: endpoint.address } });
}

function caughtUp(...ids: number[]): admin.Progress[] {
  return ids.map((memberId) => ({
    memberId,
    state: "replicate",
    match: 4_990,
    recentlyActive: true,
    silentMs: 5,
  }));
}

test("status asks every listed member, and names those that do not answer", async () => {
  const gone = await startAdmin();
  gone.stop();
  leader.members = [fakeMember(1, VOTER, leader.address), fakeMember(2, VOTER, gone.address)];
  const result = await lockstep(["status"]);
  assert.equal(result.code, EXIT.failed);
  assert.match(result.out, /1 +m1 +leader +yes +3 +5000 +5000 +42 +7 /);
  assert.match(result.out, new RegExp(`unreachable +no.*${gone.address}`));
  assert.match(result.err, new RegExp(`${gone.address} does not answer`));
  const json = JSON.parse((await lockstep(["status", "-o", "json"])).out) as { members: { role?: string }[] };
  assert.equal(json.members[0]?.role, "leader");
});

test("status with everybody gone: exit code 4", async () => {
  const gone = await startAdmin();
  gone.stop();
  assert.equal((await lockstep(["status", "--call-timeout", "500ms"], gone)).code, EXIT.unavailable);
});

test("changes asked of a follower go to the leader that it names", async () => {
  const follower = await startAdmin();
  follower.leaderElsewhere = leader.address;
  const result = await lockstep(["member", "list"], follower);
  assert.equal(result.code, EXIT.ok);
  assert.match(result.out, /4 +m4 +learner/);
});

test("promote makes several learners voters in one change, planned on the listed configuration, once caught up", async () => {
  let asked = 0;
  leader.onStatus = () => {
    asked += 1;
    leader.status.progress = asked < 3 ? caughtUp(4) : caughtUp(4, 5);
  };
  const result = await lockstep(["member", "promote", "m4", "5"]);
  assert.equal(result.code, EXIT.ok, result.err);
  assert.ok(asked >= 3);
  assert.deepEqual(leader.changes, [{ plannedOn: 9, promote: [4, 5], demote: [], remove: [], force: false }]);
});

test("promote gives up on a learner that stays behind, and says how far", async () => {
  leader.status.progress = [{ memberId: 4, state: "probe", match: 10, recentlyActive: true, silentMs: 5 }];
  const result = await lockstep(["member", "promote", "m4", "--timeout", "50ms"]);
  assert.equal(result.code, EXIT.unavailable);
  assert.match(result.err, /m4 is 4990 entries behind/);
  assert.deepEqual(leader.changes, []);
});

test("replace is one joint change, with leadership moved off the old member first", async () => {
  leader.status.progress = caughtUp(4);
  assert.equal((await lockstep(["member", "replace", "m2", "m4"])).code, EXIT.ok);
  assert.deepEqual(leader.transfers, []);
  assert.deepEqual(leader.changes, [{ plannedOn: 9, promote: [4], demote: [], remove: [2], force: false }]);
  const led = await lockstep(["member", "replace", "m1", "m4"]);
  assert.equal(led.code, EXIT.ok);
  assert.deepEqual(leader.transfers, [0]);
  assert.match(led.err, /moving leadership away/);
});

test("replace refuses what would not be a replacement", async () => {
  assert.equal((await lockstep(["member", "replace", "m4", "m5"])).code, EXIT.usage);
  assert.equal((await lockstep(["member", "replace", "m1", "m2"])).code, EXIT.usage);
  assert.equal((await lockstep(["member", "replace", "m1", "m9"])).code, EXIT.notFound);
  leader.joint = true;
  assert.equal((await lockstep(["member", "replace", "m2", "m4"])).code, EXIT.failed);
  assert.deepEqual(leader.changes, []);
});

test("remove never takes the last voter, and knows who was removed before", async () => {
  assert.equal((await lockstep(["member", "remove", "m1", "m2", "m3"])).code, EXIT.usage);
  const before = await lockstep(["member", "remove", "66"]);
  assert.equal(before.code, EXIT.notFound);
  assert.match(before.err, /was removed/);
  assert.equal((await lockstep(["member", "remove", "m3"])).code, EXIT.ok);
  assert.deepEqual(leader.changes[0]?.remove, [3]);
});

test("leader transfer goes to a voter only", async () => {
  assert.match((await lockstep(["leader", "transfer", "m3"])).out, /m3 \(3\) leads now/);
  assert.equal((await lockstep(["leader", "transfer", "m4"])).code, EXIT.usage);
  assert.match((await lockstep(["leader", "transfer"])).out, /m2 \(2\) leads now/);
  assert.deepEqual(leader.transfers, [3, 0]);
});

test("namespaces are listed, created with a uid of their own and deleted with the one that is listed", async () => {
  const created = await lockstep(["namespace", "create", "team", "-o", "json"]);
  const { uid } = JSON.parse(created.out) as { uid: string };
  assert.match(uid, /^[0-9a-f-]{36}$/);
  assert.match((await lockstep(["namespace", "list"])).out, new RegExp(`team +${uid} +1 +0 `));
  assert.equal((await lockstep(["namespace", "delete", "nobody"])).code, EXIT.notFound);
  assert.match((await lockstep(["namespace", "delete", "team"])).out, /team is deleted/);
  assert.match((await lockstep(["namespace", "delete", "team", "--uid", uid])).out, /gone already/);
  assert.deepEqual(leader.deletions, [
    { name: "team", uid },
    { name: "team", uid },
  ]);
});

test("the format version is raised to what every member applies, and not while one does not answer", async () => {
  leader.members = [fakeMember(1, VOTER, leader.address)];
  leader.status.formatVersionMax = 3;
  assert.match((await lockstep(["format", "raise"])).out, /format version is 3/);
  assert.equal((await lockstep(["format", "raise", "4"])).code, EXIT.failed);
  assert.deepEqual(leader.raises, [{ version: 3, plannedOn: 9 }]);
  const gone = await startAdmin();
  gone.stop();
  leader.members.push(fakeMember(2, VOTER, gone.address));
  const refused = await lockstep(["format", "raise", "--call-timeout", "500ms"]);
  assert.equal(refused.code, EXIT.unavailable);
  assert.match(refused.err, /m2 does not answer/);
  assert.equal(leader.raises.length, 1);
});

test("a snapshot is whole or not there", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lockstep-cli-"));
  try {
    leader.snapshotChunks = [Buffer.alloc(1_000, 1), Buffer.alloc(24, 2)];
    const file = join(folder, "snap");
    const result = await lockstep(["snapshot", file]);
    assert.equal(result.code, EXIT.ok, result.err);
    assert.equal(readFileSync(file).length, 1_024);
    assert.match(result.out, /1\.0 KiB/);
    const nowhere = join(folder, "missing", "snap");
    const failed = await lockstep(["snapshot", nowhere]);
    assert.equal(failed.code, EXIT.failed);
    assert.match(failed.err, /cannot write/);
    assert.ok(!existsSync(nowhere));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
