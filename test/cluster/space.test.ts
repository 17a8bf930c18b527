import { LockstepError, connect } from "@lockstep/client";
import assert from "node:assert/strict";
import { rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";

const MIB = 1024 * 1024;
const BALLAST_BYTES = 512 * MIB;

describe("a voter's disk below its reserve", () => {
  let cell: TestCell;
  before(async () => {
    // The reserve lies between what is free now and what is free beside the ballast.
    const { bavail, bsize } = statfsSync(tmpdir());
    const reserve = bavail * bsize - BALLAST_BYTES / 2;
    cell = await TestCell.start(1, { flags: ["--reserve-bytes", String(reserve)] });
  });
  after(async () => {
    await cell.stop();
  });

  it("refuses growth clearly, serves reads and deletes, and recovers when space returns", async () => {
    const client = await connect({ endpoints: cell.endpoints });
    const [member] = cell.members;
    assert.ok(member !== undefined);
    await client.put("before", "1");
    const ballast = join(cell.directory, "ballast");
    writeFileSync(ballast, Buffer.alloc(BALLAST_BYTES, 1));
    await until("the alarm is raised", async () => {
      const { alarms } = await member.adminApi.status();
      return alarms.includes("no-space") ? alarms : undefined;
    });
    await assert.rejects(client.put("during", "1"), (error) => {
      assert.ok(error instanceof LockstepError);
      assert.equal(error.code, "no-space");
      assert.equal(error.outcome, "not-applied");
      return true;
    });
    assert.equal((await client.get("before"))?.text(), "1");
    assert.equal((await client.delete("before")).deleted, 1);
    rmSync(ballast);
    await until("growth is admitted again", async () => client.put("after", "1"));
    client.close();
  });
});
