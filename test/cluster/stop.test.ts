import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";

describe("a leader that is asked to stop (R=3)", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(3);
  });
  after(async () => {
    await cell.stop();
  });

  it("has handed leadership over by the time it has ended, and stays a member: nobody removes itself", async () => {
    const leader = await cell.leader();
    const { memberId } = await leader.adminApi.status();
    const { members: before } = await leader.adminApi.members();
    assert.equal(await leader.kill("SIGTERM"), 0);
    const others = cell.members.filter((member) => member !== leader);
    const statuses = await Promise.all(others.map(({ adminApi }) => adminApi.status()));
    const leaders = statuses.map(({ leaderId }) => leaderId).filter((id) => id > 0);
    assert.ok(
      leaders.some((id) => id !== memberId),
      `somebody else leads: ${leaders.join(", ")}, and ${String(memberId)} ended`,
    );
    const { members: left } = await (await cell.leader()).adminApi.members();
    assert.deepEqual(left.map(({ id }) => id).sort(), before.map(({ id }) => id).sort());
    leader.start();
    await cell.agreedDigest();
    assert.equal((await leader.adminApi.status()).memberId, memberId);
  });
});
