import { connect } from "@lockstep/client";
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";

/** A sequential put: each execution makes another key. */
async function increment(
  http: string,
  requestId: string,
): Promise<{ readonly status: number; readonly body: unknown }> {
  const response = await fetch(`${http}/v1/kv/seq/x?sequential=true`, {
    method: "PUT",
    headers: { "Request-ID": requestId },
    body: "once",
  });
  return { status: response.status, body: await response.json() };
}

describe("exactly-once retries (R=3)", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(3);
  });
  after(async () => {
    await cell.stop();
  });

  it("a retry with the same request id returns the first outcome, at another member, another leader, after a restart", async () => {
    const [first] = cell.members;
    assert.ok(first !== undefined);
    const original = await increment(first.http, "request-1");
    assert.equal(original.status, 201);
    for (const member of cell.members) {
      assert.deepEqual((await increment(member.http, "request-1")).body, original.body, "at another member");
    }
    const leader = await cell.leader();
    await leader.kill();
    const survivor = cell.running[0];
    assert.ok(survivor !== undefined);
    await cell.leader();
    assert.deepEqual((await increment(survivor.http, "request-1")).body, original.body, "at another leader");
    leader.start();
    for (const member of cell.members) await member.kill();
    for (const member of cell.members) member.start();
    await cell.leader();
    // That a leader is there does not say that this member's door is open already: try again, as a client would.
    const again = await until("the survivor answers", () => increment(survivor.http, "request-1"));
    assert.deepEqual(again.body, original.body, "after a restart");
    const client = await connect({ endpoints: cell.endpoints });
    assert.equal((await client.range({ prefix: "/seq/" })).kvs.length, 1);
    client.close();
  });
});
