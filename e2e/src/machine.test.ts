// What is read from the machine: /proc, tables that programs print, records that plugins keep.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { run } from "./command.ts";
import {
  formatIdentity,
  identityOf,
  isAlive,
  parseIdentity,
  parseStat,
  runningDaemon,
  startDaemon,
  stopDaemon,
} from "./daemon.ts";
import { nameInFile } from "./images.ts";
import { hasArchive, withImage } from "./imported.ts";
import { mountsBelow, parseMounts } from "./mounts.ts";
import { runningTasks } from "./node.ts";
import { missingPackages } from "./packages.ts";
import { formatDuration } from "./progress.ts";
import { isShimOf, namespacesIn } from "./residue.ts";
import { isSuccess, renderSummary } from "./summary.ts";
import { until } from "./waiting.ts";

describe("processes", () => {
  const fields = (state: string): string => `7 (a) b (c)) ${state} ${"0 ".repeat(18)}4242 0 0`;

  it("are read from /proc even with parentheses and spaces in their name", () => {
    assert.deepEqual(parseStat(7, fields("S")), { pid: 7, startTicks: "4242" });
    assert.equal(parseStat(7, fields("Z")), undefined);
  });

  it("are not taken for another one that got their number", () => {
    const self = identityOf(process.pid);
    assert.ok(self !== undefined && isAlive(self));
    assert.equal(isAlive({ ...self, startTicks: "1" }), false);
    assert.deepEqual(parseIdentity(formatIdentity(self)), self);
    for (const text of ["", "12", "x 1"]) assert.equal(parseIdentity(text), undefined);
  });

  it("that are daemons are started once, recorded and stopped", async () => {
    const folder = mkdtempSync(join(tmpdir(), "e2e-daemon-"));
    try {
      const spec = { name: "sleeper", command: "sleep", args: ["60"], logFile: join(folder, "log") };
      const identity = startDaemon(folder, spec);
      assert.deepEqual(runningDaemon(folder, "sleeper"), identity);
      assert.throws(() => startDaemon(folder, spec), /runs already/);
      await stopDaemon(folder, "sleeper");
      assert.equal(isAlive(identity), false);
      assert.equal(runningDaemon(folder, "sleeper"), undefined);
      await stopDaemon(folder, "sleeper");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("that ignore SIGTERM are killed after the grace period", async () => {
    const folder = mkdtempSync(join(tmpdir(), "e2e-daemon-"));
    try {
      const stubborn = {
        name: "s",
        command: "sh",
        args: ["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"],
      };
      const identity = startDaemon(folder, { ...stubborn, logFile: join(folder, "log") });
      await stopDaemon(folder, "s", 50);
      assert.equal(isAlive(identity), false);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("run", () => {
  it("returns what a program said, and gives it its input", async () => {
    assert.deepEqual(await run("cat", [], { input: "hello" }), { code: 0, stdout: "hello", stderr: "" });
  });

  it("throws with the last lines when a program fails, unless its code is allowed", async () => {
    const failing = ["-c", "echo why >&2; exit 3"];
    await assert.rejects(run("sh", failing), { code: "command", message: /ended with 3:\s+why/ });
    assert.equal((await run("sh", failing, { allowedCodes: [3] })).code, 3);
  });

  it("throws when there is no such program", async () => {
    await assert.rejects(run("/no/such/program", []), { code: "command" });
  });

  it("kills a program with its children when its time is over or the signal fires", async () => {
    const slow = ["-c", "sleep 60 & wait"];
    await assert.rejects(run("sh", slow, { timeoutMs: 50 }), { code: "timeout" });
    const abort = new AbortController();
    const running = run("sh", slow, { signal: abort.signal });
    abort.abort();
    await assert.rejects(running, { code: "interrupted" });
    await assert.rejects(run("true", [], { signal: abort.signal }), { code: "interrupted" });
  });
});

describe("until", () => {
  it("takes an error for a no, and says at the end what it was", async () => {
    let asked = 0;
    const answer = await until(
      "the third",
      () => {
        asked += 1;
        if (asked < 3) throw new Error("not yet");
        return asked;
      },
      { everyMs: 1 },
    );
    assert.equal(answer, 3);
    const never = until("the end", () => Promise.reject(new Error("nobody home")), {
      everyMs: 1,
      timeoutMs: 20,
    });
    await assert.rejects(never, { code: "timeout", message: /the end \(last: nobody home\)/ });
  });

  it("stops asking when the signal fires", async () => {
    await assert.rejects(
      until("x", () => false, { signal: AbortSignal.abort() }),
      { code: "interrupted" },
    );
  });
});

describe("mounts", () => {
  const mountinfo = [
    "22 1 0:20 / / rw - ext4 /dev/vda rw",
    "30 22 7:0 / /s/node1/volumes/a\\040b rw shared:1 master:2 - ext4 /dev/loop0 rw",
    "31 22 0:31 / /s/node1 rw - tmpfs tmpfs rw",
    "32 22 0:31 / /s/node10 rw - tmpfs tmpfs rw",
    "",
  ].join("\n");

  it("are read with any number of optional fields and with escapes", () => {
    assert.deepEqual(parseMounts(mountinfo)[1], { target: "/s/node1/volumes/a b", source: "/dev/loop0" });
  });

  it("below a folder come newest first, without its namesakes", () => {
    const targets = mountsBelow(parseMounts(mountinfo), "/s/node1").map(({ target }) => target);
    assert.deepEqual(targets, ["/s/node1", "/s/node1/volumes/a b"]);
  });
});

describe("a node's remains", () => {
  it("are shims that report to its containerd, and nobody else's", () => {
    const shim = (socket: string): string[] => [
      "/usr/bin/containerd-shim-runc-v2",
      "-id",
      "x",
      "-address",
      socket,
      "",
    ];
    assert.equal(isShimOf(shim("/run/a.sock"), "/run/a.sock"), true);
    assert.equal(isShimOf(shim("/run/a.sock"), "/run/b.sock"), false);
    assert.equal(isShimOf(["grep", "containerd-shim", "-address", "/run/a.sock"], "/run/a.sock"), false);
    assert.equal(isShimOf([], ""), false);
  });

  it("are the network namespaces in the records of its pods", () => {
    const record =
      '{"sandbox":"/var/run/netns/cni-1a-2b"},{"netns":"/run/netns/cni-1a-2b"},"/run/netns/mine"';
    assert.deepEqual(namespacesIn(record), ["cni-1a-2b"]);
  });

  it("are processes of its running containers", () => {
    const table =
      "TASK    PID     STATUS\nabc     12      RUNNING\ndef     13      STOPPED\nghi     14      RUNNING\n";
    assert.deepEqual(runningTasks(table, ["abc", "def"]), [12]);
  });
});

describe("a node's images", () => {
  const first = { image: "a:1", file: "/cache/one" };

  it("are known by what their names stand for now", () => {
    const again = withImage(withImage([first], { image: "a:1", file: "/cache/two" }), {
      image: "b:1",
      source: "a:1",
    });
    assert.equal(hasArchive(again, "a:1", "/cache/one"), false);
    assert.equal(hasArchive(again, "a:1", "/cache/two"), true);
    assert.deepEqual(
      again.map(({ image }) => image),
      ["a:1", "b:1"],
    );
  });

  it("are not known any more when their name was given to another", () => {
    assert.equal(hasArchive(withImage([first], { image: "a:1", source: "b:1" }), "a:1", "/cache/one"), false);
  });
});

describe("what people see", () => {
  it("is a duration that fits its size", () => {
    for (const [milliseconds, text] of [
      [440, "0.4 s"],
      [12_300, "12 s"],
      [185_000, "3 min 05 s"],
    ] as const)
      assert.equal(formatDuration(milliseconds), text);
  });

  it("is a table with a line that counts", () => {
    const outcomes = [
      { name: "ground", result: "passed", seconds: 12.34 },
      { name: "replace-a-voter", result: "failed", seconds: 1 },
      { name: "drain", result: "not run", seconds: 0 },
    ] as const;
    const text = renderSummary(outcomes);
    assert.match(text, /ground +passed +12\.3/);
    assert.match(text, /drain +not run +-/);
    assert.match(text, /1 passed, 1 failed, 1 not run$/);
    assert.equal(isSuccess(outcomes), false);
    assert.equal(isSuccess(outcomes.slice(0, 1)), true);
    assert.equal(isSuccess([]), false);
  });

  it("is a list of the packages that are missing", () => {
    const wanted = [
      { package: "containerd", probe: "containerd" },
      { package: "mount", probe: "losetup" },
    ];
    assert.deepEqual(
      missingPackages(wanted, (probe) => probe === "losetup"),
      ["containerd"],
    );
  });

  it("is a file name for an image, different for different images", () => {
    assert.match(nameInFile("e2e.lockstep.dev/cell:dev"), /^e2e-lockstep-dev-cell-dev-[0-9a-f]{6}$/);
    assert.notEqual(nameInFile("a/b:c"), nameInFile("a-b-c"));
  });
});
