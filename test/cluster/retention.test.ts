import { LockstepError, connect } from "@lockstep/client";
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";

describe("retention", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(1, { flags: ["--retention-revisions", "100"] });
  });
  after(async () => {
    await cell.stop();
  });

  it("the leader gives up history by itself; what is kept stays readable, older is compacted, also for watches", async () => {
    const client = await connect({ endpoints: cell.endpoints });
    const first = await client.put("k", "0");
    for (let n = 1; n <= 500; n += 1) await client.put("k", String(n));
    const last = await client.put("k", "last");
    const isCompacted = (error: unknown): boolean =>
      error instanceof LockstepError && error.code === "compacted";
    await until("the first revision is given up", async () => {
      try {
        await client.get("k", { revision: first.revision });
        return undefined;
      } catch (error) {
        return isCompacted(error) ? error : undefined;
      }
    });
    assert.equal((await client.get("k", { revision: last.revision - 50 }))?.text(), "451");
    assert.equal((await client.get("k"))?.text(), "last");
    const watch = client.watch("k", { startRevision: first.revision });
    await assert.rejects(async () => {
      for await (const event of watch) assert.fail(`an event of lost history: ${event.kv.text()}`);
    }, isCompacted);
    client.close();
  });
});
