import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { makeRunDirectory, syncMedianMs } from "./disk.ts";
import { descendantsOf, ManagedProcess, runToEnd, usageOf } from "./processes.ts";

const folder = mkdtempSync(join(tmpdir(), "lockstep-bench-"));
const logFile = join(folder, "log");
after(() => rmSync(folder, { recursive: true }));

const linux = existsSync("/proc/self/stat") ? false : "needs Linux's /proc";

/** A process that starts one of its own, which says so, and both stay until they are ended. */
const parent = `
  const { spawn } = require("node:child_process");
  spawn(process.execPath, ["-e", "console.log('up'); setInterval(() => {}, 1000)"], { stdio: "inherit" });
  process.on("SIGTERM", () => process.exit(0));
`;

function alive(pid: number): boolean {
  // A process that has ended but was not yet collected by its parent holds no memory.
  return usageOf(pid) !== undefined;
}

describe("a managed process", () => {
  it("takes along what it started when it stops", { skip: linux }, async () => {
    const { promise: up, resolve } = Promise.withResolvers<string>();
    const started = new ManagedProcess({
      command: process.execPath,
      args: ["-e", parent],
      logFile,
      onLine: resolve,
    });
    assert.equal(await up, "up");
    const family = descendantsOf(started.pid);
    assert.equal(family.length, 1);
    assert.ok(family.every(alive));
    await started.stop();
    assert.ok(started.over);
    // SIGKILL is on its way to the grandchild; its end is not ours to wait for but in this loop.
    while (family.some(alive)) await new Promise((turn) => setImmediate(turn));
  });

  it("hands out what it printed, and how it failed with the end of its log", async () => {
    const run = (script: string) => runToEnd({ command: process.execPath, args: ["-e", script], logFile });
    assert.equal(await run("console.log('one'); console.log('two')"), "one\ntwo");
    await assert.rejects(run("console.error('it broke'); process.exit(3)"), /ended with 3\n[^]*it broke/);
  });

  it("says so when the program does not exist", async () => {
    await assert.rejects(runToEnd({ command: join(folder, "nothing"), args: [], logFile }), /ended with 127/);
  });
});

describe("a process's usage", () => {
  it("is read from /proc", { skip: linux }, () => {
    const usage = usageOf(process.pid);
    assert.ok(usage !== undefined && usage.residentBytes > 10e6 && usage.cpuSeconds > 0);
    assert.equal(usageOf(2 ** 22 + 1), undefined);
  });
});

describe("the folder of a run", () => {
  const memory = existsSync("/dev/shm") && statfsSync("/dev/shm").type === 0x01021994;

  it("is refused in memory, where fsync costs nothing", { skip: !memory && "no tmpfs here" }, () => {
    assert.throws(() => makeRunDirectory("/dev/shm"), /in memory/);
  });

  it(
    "tells what a sync costs",
    { skip: statfsSync(folder).type === 0x01021994 && "tmpdir is in memory" },
    () => {
      const directory = makeRunDirectory(folder);
      assert.ok(syncMedianMs(directory) > 0);
    },
  );
});
