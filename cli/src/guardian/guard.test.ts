import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { Guard } from "./guard.ts";
import { lookAt, processesOf, signalProcess } from "./processes.ts";

const at = (monotonicMs: number, wallMs = monotonicMs): { monotonicMs: number; wallMs: number } => ({
  monotonicMs,
  wallMs,
});

test("TERM at the deadline, KILL a grace period later, and a later deadline comes too late after that", () => {
  const guard = new Guard(100);
  assert.equal(guard.look(at(0)), "wait", "no deadline was told yet");
  guard.lastsUntil(at(1_000));
  guard.lastsUntil(at(2_000));
  assert.equal(guard.look(at(1_999)), "wait");
  assert.equal(guard.look(at(2_000)), "term");
  guard.lastsUntil(at(9_000));
  assert.equal(guard.look(at(2_099)), "term");
  assert.equal(guard.look(at(2_100)), "kill");
});

test("a machine that slept: the wall clock alone went on, and what is long over is KILL at once", () => {
  const guard = new Guard(100);
  guard.lastsUntil(at(1_000));
  assert.equal(guard.look({ monotonicMs: 10, wallMs: 1_050 }), "term");
  const slept = new Guard(100);
  slept.lastsUntil(at(1_000));
  assert.equal(slept.look({ monotonicMs: 10, wallMs: 60_000 }), "kill");
});

test("told to stop: TERM now, before any deadline, and telling it again changes nothing", () => {
  const guard = new Guard(100);
  guard.lastsUntil(at(10_000));
  guard.stop(at(50));
  guard.stop(at(140));
  assert.equal(guard.look(at(149)), "term");
  assert.equal(guard.look(at(150)), "kill");
});

const isLinux = process.platform === "linux";

test(
  "a run's processes: the command, its children, and who carries its mark; nobody else",
  { skip: !isLinux },
  async () => {
    const mark = `GUARD_TEST=${String(process.pid)}-${String(performance.now())}`;
    const [name = "", value = ""] = mark.split("=");
    const script = `require("node:child_process").spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { env: {}, stdio: "ignore" });
    process.stdout.write("up"); setInterval(() => {}, 1000);`;
    const command = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "ignore"] });
    const stranger = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
    const marked = spawn("/bin/sleep", ["1000"], { stdio: "ignore", env: { [name]: value } });
    try {
      await once(command.stdout, "data");
      const ref = lookAt(command.pid ?? 0);
      assert.ok(ref !== undefined);
      const found = processesOf(ref, mark, new Set([process.pid]));
      const pids = found.map(({ pid }) => pid);
      assert.equal(found.length, 3, "the command, its child without the mark, and the marked one");
      assert.ok(pids.includes(command.pid ?? 0) && pids.includes(marked.pid ?? 0));
      assert.ok(!pids.includes(stranger.pid ?? 0));
      // Another process under the same number is not touched.
      signalProcess({ pid: stranger.pid ?? 0, startedAt: "1" }, "SIGKILL");
      for (const one of found) signalProcess(one, "SIGKILL");
      await Promise.all([once(command, "exit"), once(marked, "exit")]);
      assert.ok(lookAt(stranger.pid ?? 0) !== undefined);
    } finally {
      for (const child of [command, stranger, marked]) child.kill("SIGKILL");
    }
  },
);
