import { connect } from "@lockstep/client";
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";

describe("a member whose log is gone at the leader", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(3, { flags: ["--log-keep-bytes", "65536"] });
  });
  after(async () => {
    await cell.stop();
  });

  it("gets the state as a stream, watches on it resume without a gap, and its digest agrees", async () => {
    const leader = await cell.leader();
    const laggard = cell.members.find((member) => member !== leader);
    assert.ok(laggard !== undefined);
    const client = await connect({ endpoints: cell.endpoints });
    const first = await client.put("k", "0");
    await laggard.kill();
    const before = (await leader.adminApi.status()).appliedIndex;
    const value = Buffer.alloc(8 * 1024, 1);
    await until("the leader's log no longer reaches back", async () => {
      await Promise.all(Array.from({ length: 50 }, (_, n) => client.put(`k${String(n)}`, value)));
      const status = await leader.adminApi.status();
      return status.logFirstIndex > before + 1 ? status : undefined;
    });
    laggard.start();
    await cell.agreedDigest();
    assert.match(laggard.log(), /state installed from the leader/);

    // The history came along: a watch on the laggard from the first revision on misses nothing.
    const atLaggard = await connect({ endpoints: [laggard.address(0)] });
    const watch = atLaggard.watch("k", { startRevision: first.revision });
    await client.put("k", "last");
    const seen: string[] = [];
    for await (const event of watch) {
      seen.push(event.kv.text());
      if (event.kv.text() === "last") break;
    }
    assert.deepEqual(seen, ["0", "last"]);
    client.close();
    atLaggard.close();
  });

  it("is not ready before all that the others had committed when it came back is applied on it", async () => {
    const leader = await cell.leader();
    const laggard = cell.members.find((member) => member !== leader);
    assert.ok(laggard !== undefined);
    await laggard.kill();
    const before = (await leader.adminApi.status()).appliedIndex;
    const client = await connect({ endpoints: cell.endpoints });
    const value = Buffer.alloc(8 * 1024, 2);
    // Some tens of megabytes: while they are streamed there is time to ask.
    for (let round = 0; round < 60; round += 1) {
      await Promise.all(Array.from({ length: 50 }, (_, n) => client.put(`k${String(n)}`, value)));
    }
    client.close();
    // Log is released at barriers, of which there may have been none meanwhile.
    const { appliedIndex } = await until("its log is gone at the leader", async () => {
      const status = await leader.adminApi.status();
      return status.logFirstIndex > before + 1 ? status : undefined;
    });
    laggard.start();
    const reasons = new Set<string>();
    const ready = await until("it is ready", async () => {
      const response = await fetch(`http://${laggard.address(4)}/readyz`);
      const answer = await response.text();
      if (response.status === 200) return laggard.adminApi.status();
      reasons.add(answer.trim());
      return undefined;
    });
    assert.ok(ready.appliedIndex >= appliedIndex, `${String(ready.appliedIndex)} of ${String(appliedIndex)}`);
    assert.equal(ready.notReady, "", "the admin API says the same");
    assert.ok(reasons.has("not ready: taking in the state of another member"), [...reasons].join(", "));
  });

  it("was away for a short time only: it goes on from the log, though more was written than is always kept", async () => {
    const leader = await cell.leader();
    const follower = cell.members.find((member) => member !== leader);
    assert.ok(follower !== undefined);
    await cell.agreedDigest();
    await follower.kill();
    const client = await connect({ endpoints: cell.endpoints });
    const value = Buffer.alloc(8 * 1024, 3);
    for (let round = 0; round < 3; round += 1) {
      // 80 KiB each, and a barrier, at which log is released.
      for (let n = 0; n < 10; n += 1) await client.put(`k${String(n)}`, value);
      const { appliedIndex } = await leader.adminApi.status();
      await until("a barrier", async () => {
        const { barrierIndex } = await leader.adminApi.status();
        return barrierIndex >= appliedIndex ? true : undefined;
      });
    }
    client.close();
    const installations = (): number => follower.log().split("state installed from the leader").length;
    const before = installations();
    follower.start();
    await cell.agreedDigest();
    assert.equal(installations(), before);
  });

  it("restarts after the installation from its own disk", async () => {
    for (const member of cell.members) await member.kill();
    for (const member of cell.members) member.start();
    await cell.leader();
    await cell.agreedDigest();
  });
});
