import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { connect, lockKey } from "@lockstep/client";
import { FakeMember } from "../../client/src/testing/fake-cell.ts";
import { EXIT } from "./exit-codes.ts";
import { record, type Recorded, type RunOptions } from "./testing/recorder.ts";

let member: FakeMember;
let folder: string;
before(async () => {
  member = await FakeMember.start();
  folder = mkdtempSync(join(tmpdir(), "lockstep-cli-"));
});
after(() => {
  member.stop();
  rmSync(folder, { recursive: true });
});

function lock(args: readonly string[], options: RunOptions = {}): Promise<Recorded> {
  return record(["lock", ...args], { ...options, env: { LOCKSTEP_ENDPOINTS: member.address } });
}

function node(script: string): string[] {
  return ["--", process.execPath, "-e", script];
}

function tokenOf(name: string): number | undefined {
  return member.store.kvs.get(lockKey(name))?.createRevision;
}

async function untilHeld(name: string): Promise<void> {
  while (tokenOf(name) === undefined) await new Promise((resolve) => setTimeout(resolve, 5));
}

test("COMMAND runs with its fencing token, its exit code is passed on, and the lock is free afterwards", async () => {
  const file = join(folder, "token");
  const script = `require("fs").writeFileSync(${JSON.stringify(file)}, process.env.LOCKSTEP_FENCING_TOKEN); process.exit(7)`;
  assert.equal((await lock(["job", ...node(script)])).code, 7);
  assert.match(readFileSync(file, "utf8"), /^\d{16}$/);
  assert.equal(tokenOf("job"), undefined);
  assert.equal(member.store.leases.size, 0);
});

test("COMMAND's arguments are not read by a shell, nor by lockstep", async () => {
  const file = join(folder, "arguments");
  const script = `require("fs").writeFileSync(${JSON.stringify(file)}, JSON.stringify(process.argv.slice(1)))`;
  const args = ["--", process.execPath, "-e", script, "--", "$HOME", "--ttl", "*"];
  assert.equal((await lock(["job", ...args])).code, EXIT.ok);
  assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), ["$HOME", "--ttl", "*"]);
});

test("failures of lock itself do not look like COMMAND's", async () => {
  assert.equal((await lock(["job", "--", "/nowhere/command"])).code, EXIT.commandNotFound);
  assert.equal((await lock(["job", "--", folder])).code, EXIT.cannotExecute);
  assert.equal(tokenOf("job"), undefined);
  assert.equal((await lock(["job"])).code, EXIT.usage);
  assert.equal((await lock(["job", "--ttl", "2s", "--grace", "1s", "--", "true"])).code, EXIT.usage);
  const gone = await FakeMember.start();
  gone.stop();
  const unreachable = await lock([
    "job",
    "--endpoints",
    gone.address,
    "--call-timeout",
    "200ms",
    "--",
    "true",
  ]);
  assert.equal(unreachable.code, EXIT.lockFailed);
});

test("a lock that is not free within --wait: exit code 124, and COMMAND is not run", async () => {
  const client = await connect({ endpoints: [member.address] });
  const session = await client.session({ ttlMs: 10_000 });
  const held = await client.lock("busy", { session });
  const file = join(folder, "never");
  const result = await lock([
    "busy",
    "--wait",
    "50ms",
    ...node(`require("fs").writeFileSync("${file}", "")`),
  ]);
  assert.equal(result.code, EXIT.lockTimeout);
  assert.throws(() => readFileSync(file), { code: "ENOENT" });
  await held.release();
  await session.close();
  client.close();
});

test("COMMAND ended by a signal: 128 + its number", async () => {
  assert.equal((await lock(["job", ...node('process.kill(process.pid, "SIGKILL")')])).code, 128 + 9);
});

test("when the session ends COMMAND gets TERM, and the exit code says that the lock was lost", async () => {
  const running = lock(["lost", ...node("setInterval(() => {}, 1000)")]);
  await untilHeld("lost");
  member.store.expire(member.store.kvs.get(lockKey("lost"))!.leaseId);
  const result = await running;
  assert.equal(result.code, EXIT.lockLost);
  assert.match(result.err, /lost/);
});

test("a COMMAND that ignores TERM gets KILL after the grace period", async () => {
  const file = join(folder, "deaf");
  const script = `process.on("SIGTERM", () => {}); require("fs").writeFileSync(${JSON.stringify(file)}, ""); setInterval(() => {}, 1000)`;
  const running = lock(["deaf", "--grace", "100ms", ...node(script)]);
  await untilHeld("deaf");
  for (;;) {
    try {
      readFileSync(file);
      break;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
  member.store.expire(member.store.kvs.get(lockKey("deaf"))!.leaseId);
  assert.equal((await running).code, EXIT.lockLost);
});

test("a signal is handed on to COMMAND, and ends the waiting when there is no COMMAND yet", async () => {
  let stop: (signal: NodeJS.Signals) => void = () => undefined;
  const options: RunOptions = { onStart: (stopper) => (stop = stopper) };
  const ready = join(folder, "ready");
  const running = lock(
    [
      "sig",
      ...node(`require("fs").writeFileSync(${JSON.stringify(ready)}, ""); setInterval(() => {}, 1000)`),
    ],
    options,
  );
  await untilHeld("sig");
  // The child takes the default action from its first moment on.
  stop("SIGTERM");
  const ended = await running;
  assert.ok(ended.code === 128 + 15, String(ended.code));
  const client = await connect({ endpoints: [member.address] });
  const session = await client.session({ ttlMs: 10_000 });
  const held = await client.lock("sig", { session });
  const waiting = lock(["sig", ...node("")], options);
  while (member.watchCount() === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  stop("SIGINT");
  assert.equal((await waiting).code, 128 + 2);
  await held.release();
  client.close();
});
