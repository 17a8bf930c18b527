import { connect } from "@lockstep/client";
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";
import { Writers, assertAllThere } from "../support/writers.ts";

describe("faults of one member (R=3)", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(3, { proxied: true });
  });
  after(async () => {
    await cell.stop();
  });

  it("a stopped (SIGSTOP) leader: the cell goes on, the sleeper does not act as leader again, nothing is lost", async (t) => {
    const writers = await Writers.start(cell.endpoints);
    t.after(() => writers.abandon());
    await writers.progress(50);
    const stopped = await cell.leader();
    stopped.signal("SIGSTOP");
    await writers.progress(50);
    const termBefore = (await (await otherThan(cell, stopped.name)).adminApi.status()).term;
    stopped.signal("SIGCONT");
    await writers.progress(50);
    const acknowledged = await writers.stop();
    await until("the sleeper follows", async () => {
      const status = await stopped.adminApi.status();
      return status.term >= termBefore && status.leaderId !== status.memberId ? status : undefined;
    });
    await assertAllThere(cell.endpoints, acknowledged);
    await cell.agreedDigest();
  });

  it("a stopped leader's sessions live on at its successor; a read at the sleeper is not stale", async () => {
    const stopped = await cell.leader();
    const others = cell.members.filter((member) => member !== stopped).map((member) => member.address(0));
    const client = await connect({ endpoints: others });
    const session = await client.session({ ttlMs: 4_000, owner: "test" });
    const lock = await client.lock("survivor", { session });
    const atSleeper = await connect({ endpoints: [stopped.address(0)] });
    stopped.signal("SIGSTOP");
    await client.put("fresh", "written by the successor's quorum", { deadlineMs: 15_000 });
    stopped.signal("SIGCONT");
    const read = await atSleeper.get("fresh", { deadlineMs: 15_000 });
    assert.equal(read?.text(), "written by the successor's quorum");
    lock.assertHeld();
    assert.equal((await client.get(lock.key))?.createRevision, lock.token);
    await lock.release();
    await session.close();
    client.close();
    atSleeper.close();
  });

  it("a partitioned leader: the majority elects another, the minority serves no linearizable read", async (t) => {
    const writers = await Writers.start(cell.endpoints);
    t.after(() => writers.abandon());
    await writers.progress(50);
    const cut = await cell.leader();
    await cell.isolate(cut.name);
    await writers.progress(50);
    const url = `${cut.http}/v1/kv/writer/0`;
    const linearizable = await fetch(`${url}?timeoutMs=1000`);
    assert.ok([503, 504].includes(linearizable.status), `refused, not ${String(linearizable.status)}`);
    const stale = await fetch(`${url}?consistency=serializable`);
    assert.equal(stale.status, 200, "what may be stale is served without a quorum");
    cell.heal();
    await writers.progress(50);
    const acknowledged = await writers.stop();
    await assertAllThere(cell.endpoints, acknowledged);
    await cell.agreedDigest();
  });

  it("a partitioned follower comes back without deposing the leader", async () => {
    const leader = await cell.leader();
    const follower = cell.members.find((member) => member !== leader);
    assert.ok(follower !== undefined);
    const { term } = await leader.adminApi.status();
    await cell.isolate(follower.name);
    // Several election timeouts: the follower asks for pre-votes in vain.
    await until("the follower lost its leader", async () => {
      const status = await follower.adminApi.status();
      return status.leaderId === 0 ? status : undefined;
    });
    cell.heal();
    await until("the follower follows again", async () => {
      const status = await follower.adminApi.status();
      return status.leaderId !== 0 ? status : undefined;
    });
    assert.equal((await leader.adminApi.status()).term, term);
  });

  it("W17: a wiped disk does not come back under its old name", async () => {
    const leader = await cell.leader();
    const victim = cell.members.find((member) => member !== leader);
    assert.ok(victim !== undefined);
    await victim.kill();
    rmSync(victim.directory, { recursive: true });
    victim.start(cell.joinFlags());
    assert.equal(await victim.exited(), 1);
    assert.match(victim.log(), /cannot come back under its old identity/);
    assert.match(victim.log(), /join under a new name/);
  });

  it("a folder that lost its log is refused and told how to join anew", async () => {
    const leader = await cell.leader();
    await leader.kill();
    rmSync(join(leader.directory, "wal"), { recursive: true });
    leader.start();
    assert.equal(await leader.exited(), 1);
    assert.match(leader.log(), /must not vote again under its old identity/);
  });
});

async function otherThan(cell: TestCell, name: string): Promise<TestCell["members"][number]> {
  const found = cell.members.find((member) => member.name !== name);
  assert.ok(found !== undefined);
  return Promise.resolve(found);
}
