import { connect, Session } from "@lockstep/client";
import { admin } from "@lockstep/proto";
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { adminCode } from "../support/admin.ts";
import { MemberProcess, TestCell } from "../support/cell.ts";
import { run } from "../support/run.ts";
import type { Ran } from "../support/run.ts";
import { until } from "../support/until.ts";
import { Writers, assertAllThere } from "../support/writers.ts";

const LOCKSTEP = new URL("../../cli/bin/lockstep.mjs", import.meta.url).pathname;
const FLOOR = 2 ** 40;
/** What a resource remembers of those who were let in: it takes only larger tokens. */
const LOCK = "register";

describe("a cell whose majority is lost for good", { timeout: 300_000 }, () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(1);
    await grow("m2", "m3");
  });
  after(() => cell.stop());

  /** Learners that are promoted once they have the state, however long a busy machine takes to start them. */
  async function grow(...names: string[]): Promise<void> {
    for (const name of names) (await cell.addProcess(name)).start(cell.joinFlags());
    const leader = await cell.leader();
    await until(
      `${names.join(" and ")} have the state`,
      async () => {
        const { progress } = await leader.adminApi.status();
        const caughtUp = progress.filter(({ state }) => state === "replicate").length;
        return caughtUp > names.length ? true : undefined;
      },
      90_000,
    );
    await cell.promote(names);
  }

  const recover = (folder: string, ...flags: string[]): Promise<Ran> =>
    run(process.execPath, [LOCKSTEP, "recover", folder, ...flags]);

  async function tokenOf(endpoints: readonly string[]): Promise<number> {
    const client = await connect({ endpoints });
    const session = await Session.open(client, { ttlMs: 5_000 });
    const { token } = await client.lock(LOCK, { session });
    await session.close();
    client.close();
    return token;
  }

  it("goes on from one survivor under a new identity, with larger tokens, everything it held, and new members", async (t) => {
    const survivor = cell.member("m1");
    const [, second, third] = cell.members;
    assert.ok(second !== undefined && third !== undefined);
    const writers = await Writers.start(cell.endpoints);
    t.after(() => writers.abandon());
    await writers.progress(200);
    const acknowledged = await writers.stop();

    const client = await connect({ endpoints: cell.endpoints });
    t.after(() => client.close());
    const holder = await Session.open(client, { ttlMs: 60_000, owner: "holder" });
    const held = await client.put("held", "by a lease", { leaseId: holder.leaseId });
    const tokens = [await tokenOf(cell.endpoints), await tokenOf(cell.endpoints)];
    const status = await until("the survivor has it all", async () => {
      const own = await survivor.adminApi.status();
      return own.revision >= held.revision && own.appliedIndex === own.commitIndex ? own : undefined;
    });
    client.close();
    await Promise.all([second.kill(), third.kill()]);

    const flags = [
      ...["--name", "m1-r1", "--expect-cell-id", status.cellId],
      ...["--expect-applied-index", String(status.appliedIndex)],
    ];
    const running = await recover(survivor.directory, ...flags);
    assert.equal(running.code, 1, running.out);
    assert.match(running.err, /process still run/);
    await survivor.kill();
    const first = await recover(survivor.directory, ...flags);
    assert.equal(first.code, 0, first.err);
    const again = await recover(survivor.directory, ...flags);
    assert.equal(again.code, 0, again.err);
    assert.match(again.out, /nothing to do/);

    const recovered = new MemberProcess("m1-r1", survivor.directory, survivor.base, []);
    cell.members.splice(0, cell.members.length, recovered);
    t.after(async () => {
      survivor.adminApi.close();
      await Promise.all([second.kill(), third.kill()]);
    });
    recovered.start();
    await cell.leader();
    const fresh = await recovered.adminApi.status();
    assert.notEqual(fresh.cellId, status.cellId);
    assert.ok(fresh.memberId > 3);
    assert.ok(fresh.revision >= status.revision + FLOOR);

    await assertAllThere(cell.endpoints, acknowledged);
    const now = await connect({ endpoints: cell.endpoints });
    t.after(() => now.close());
    const kept = await now.get("held");
    assert.equal(kept?.leaseId, holder.leaseId);
    const left = await now.leaseTimeToLive(holder.leaseId);
    assert.ok(left.remainingMs > 55_000, `${String(left.remainingMs)} ms are left of the lease`);
    // A resume point of the old cell is told to begin anew: what came after it may be lost.
    const watch = now.watch("held", { startRevision: held.revision + 1 });
    await assert.rejects(
      (async () => {
        for await (const { kv } of watch) assert.fail(`nothing can be told of, but ${kv.text()} was`);
      })(),
      { code: "compacted" },
    );
    const resumed = now.watch("held", { startRevision: fresh.revision + 1 });
    await resumed.created;
    await now.put("held", "again");
    for await (const { kv } of resumed) {
      assert.ok(kv.modRevision > FLOOR);
      break;
    }
    now.close();
    tokens.push(await tokenOf(cell.endpoints));
    assert.deepEqual(
      tokens,
      [...tokens].sort((a, b) => a - b),
    );
    assert.equal(new Set(tokens).size, tokens.length);

    await grow("n2", "n3");
    await cell.agreedDigest();
    tokens.push(await tokenOf(cell.endpoints));
    assert.ok((tokens.at(-1) ?? 0) > (tokens.at(-2) ?? 0));

    // Who comes back from the old cell finds no way in, and takes nobody of the new one for its own.
    second.start();
    await until("the old member is refused", () => (second.log().includes("wrong-cell") ? true : undefined));
    const stray = {
      ...{ name: "stray", incarnation: "00000000-0000-4000-8000-000000000001", plannedOn: 0 },
      cellId: fresh.cellId,
      addresses: {
        ...{ client: "127.0.0.1:1", http: "127.0.0.1:2", peer: "127.0.0.1:3" },
        ...{ admin: "127.0.0.1:4", ops: "127.0.0.1:5" },
      },
    };
    await assert.rejects(second.adminApi.addLearner(stray), (error) => adminCode(error) === "wrong-cell");
    const old = await second.adminApi.status();
    assert.equal(old.cellId, status.cellId);
    assert.notEqual(old.role, admin.Role.LEADER);
    const members = await recovered.adminApi.members();
    assert.deepEqual(members.members.map(({ name }) => name).sort(), ["m1-r1", "n2", "n3"]);
  });
});
