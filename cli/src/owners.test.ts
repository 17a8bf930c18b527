// `lockstep semaphore`, `elect`, `register`, `lock --fair` and `inspect`.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { connect, type Client, type Session } from "@lockstep/client";
import { FakeMember } from "../../client/src/testing/fake-cell.ts";
import { EXIT } from "./exit-codes.ts";
import { record, type Recorded } from "./testing/recorder.ts";

let member: FakeMember;
let client: Client;
let session: Session;
let folder: string;
before(async () => {
  member = await FakeMember.start();
  client = await connect({ endpoints: [member.address] });
  session = await client.session({ ttlMs: 60_000, owner: "the test" });
  folder = mkdtempSync(join(tmpdir(), "lockstep-owners-"));
});
after(async () => {
  await session.close();
  client.close();
  member.stop();
  rmSync(folder, { recursive: true });
});

function lockstep(...args: string[]): Promise<Recorded> {
  return record(args, { env: { LOCKSTEP_ENDPOINTS: member.address } });
}

/** A COMMAND that writes what the script makes of its environment, and the file. */
function writes(
  name: string,
  expression: string,
): { readonly command: string[]; readonly read: () => string } {
  const file = join(folder, name);
  const script = `require("fs").writeFileSync(${JSON.stringify(file)}, String(${expression}))`;
  return { command: ["--", process.execPath, "-e", script], read: () => readFileSync(file, "utf8") };
}

test("semaphore: COMMAND knows its slot, waits when all are taken, and must be told how many there are", async () => {
  const missing = await lockstep("semaphore", "pool", "--", "true");
  assert.equal(missing.code, EXIT.usage);
  assert.match(missing.err, /--permits/);
  const permit = await client.semaphore("pool", { permits: 2 }).acquire({ session });
  const free = writes("slot", "process.env.LOCKSTEP_PERMIT_SLOT");
  assert.equal((await lockstep("semaphore", "pool", "--permits", "2", ...free.command)).code, EXIT.ok);
  assert.equal(free.read(), String(1 - permit.slot));
  const other = await client.semaphore("pool", { permits: 2 }).acquire({ session });
  const full = await lockstep("semaphore", "pool", "--permits", "2", "--wait", "50ms", "--", "true");
  assert.equal(full.code, EXIT.lockTimeout);
  const wrong = await lockstep("semaphore", "pool", "--permits", "3", "--", "true");
  assert.equal(wrong.code, EXIT.lockFailed);
  await other.release();
  await permit.release();
});

test("elect: COMMAND runs while it leads, and observers see its value", async () => {
  const seen = writes("token", "process.env.LOCKSTEP_FENCING_TOKEN");
  const leaders: string[] = [];
  const stop = new AbortController();
  const watching = client.election("boss").subscribe(
    (leader) => {
      if (leader !== undefined) leaders.push(leader.value);
    },
    { onError: (error) => assert.fail(String(error)), signal: stop.signal },
  );
  const result = await lockstep("elect", "boss", "--value", "10.0.0.7:80", ...seen.command);
  assert.equal(result.code, EXIT.ok);
  assert.match(seen.read(), /^\d{16}$/);
  while (leaders.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(leaders, ["10.0.0.7:80"]);
  stop.abort();
  await watching;
});

test("register: the endpoint is there while COMMAND runs, and gone afterwards", async () => {
  const ready = join(folder, "registered");
  const script = `require("fs").writeFileSync(${JSON.stringify(ready)}, ""); setTimeout(() => {}, 300)`;
  const running = lockstep(
    ...["register", "api", "--id", "a", "--value", '{"port":80}', "--", process.execPath, "-e", script],
  );
  const endpoints = await client.service<unknown>("api").endpoints({
    parse: (json) => json,
    onError: (error) => assert.fail(String(error)),
  });
  while (endpoints.current.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(endpoints.current[0]?.value, { port: 80 });
  assert.equal((await running).code, EXIT.ok);
  while (endpoints.current.length > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await endpoints[Symbol.asyncDispose]();
});

test("inspect: holder, token, owner and waiters; exit code 3 when there is nobody", async () => {
  assert.equal((await lockstep("inspect", "nobody")).code, EXIT.notFound);
  const lock = await client.lock("shown", { session });
  const fair = await client.fairLock("shown").acquire({ session });
  const giveUp = new AbortController();
  const waiting = client.fairLock("shown").acquire({ session, signal: giveUp.signal });
  while ((await client.fairLock("shown").inspect()).waiters.length === 0);
  const text = await lockstep("inspect", "shown");
  assert.equal(text.code, EXIT.ok);
  assert.match(text.out, new RegExp(`^lock +holds +${String(lock.token)} +the test`, "m"));
  assert.match(text.out, new RegExp(`^fair lock +holds +${String(fair.token)} +the test`, "m"));
  assert.match(text.out, /^fair lock +waits/m);
  const json = JSON.parse((await lockstep("inspect", "shown", "-o", "json")).out) as {
    readonly waiting: number;
    readonly rows: readonly { readonly role: string; readonly token: number }[];
  };
  assert.equal(json.waiting, 1);
  assert.deepEqual(
    json.rows.map(({ role }) => role),
    ["holds", "holds", "waits"],
  );
  giveUp.abort();
  await assert.rejects(waiting, { code: "cancelled" });
  await lock.release();
  await fair.release();
});

test("lock --fair is a lock of its own, in the order of asking", async () => {
  const exclusive = await client.lock("both", { session });
  assert.equal((await lockstep("lock", "both", "--fair", "--", "true")).code, EXIT.ok);
  const fair = await client.fairLock("both").acquire({ session });
  const busy = await lockstep("lock", "both", "--fair", "--wait", "50ms", "--", "true");
  assert.equal(busy.code, EXIT.lockTimeout);
  await fair.release();
  await exclusive.release();
});
