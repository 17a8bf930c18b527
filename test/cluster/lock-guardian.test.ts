// `lockstep lock`: COMMAND is gone before the lock can be anybody else's, whatever becomes of the command line.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { connect, lockKey, type Client } from "@lockstep/client";
import { lookAt } from "../../cli/src/guardian/processes.ts";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";

const LOCKSTEP = new URL("../../cli/bin/lockstep.mjs", import.meta.url).pathname;
const START_MS_MAX = 20_000;

/** Deaf to TERM, with a child in a session of its own that is deaf as well; both say who they are. */
const DEAF = `
  const { spawn } = require("node:child_process");
  const { appendFileSync } = require("node:fs");
  if (process.env.OBEYS !== "yes" || process.argv[1] === "grandchild") process.on("SIGTERM", () => {});
  appendFileSync(process.env.PIDS, process.pid + "\\n");
  if (process.argv[1] !== "grandchild") {
    spawn(process.execPath, ["-e", process.env.SCRIPT, "grandchild"], { detached: true, stdio: "ignore" });
  }
  setInterval(() => {}, 1000);
`;

describe("lockstep lock and its guardian", () => {
  let cell: TestCell;
  let client: Client;
  let number = 0;
  before(async () => {
    cell = await TestCell.start(3);
    client = await connect({ endpoints: cell.endpoints });
  });
  after(async () => {
    client.close();
    await cell.stop();
  });

  interface Job {
    readonly name: string;
    readonly lockstep: ChildProcess;
    readonly pids: readonly number[];
  }

  /** @param obeys COMMAND itself ends with TERM; its child does not. */
  async function start(obeys = false): Promise<Job> {
    number += 1;
    const name = `job-${String(number)}`;
    const file = join(cell.directory, `${name}.pids`);
    const args = [LOCKSTEP, "lock", name, "--ttl", "4s", "--grace", "500ms"];
    const lockstep = spawn(process.execPath, [...args, "--", process.execPath, "-e", DEAF], {
      // The leader of a group, as a shell's job is.
      detached: true,
      stdio: "ignore",
      env: {
        ...process.env,
        LOCKSTEP_ENDPOINTS: cell.endpoints.join(","),
        PIDS: file,
        SCRIPT: DEAF,
        OBEYS: obeys ? "yes" : "no",
      },
    });
    const pids = await until(
      "COMMAND and its child run",
      () => {
        const lines = existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : [];
        return Promise.resolve(lines.length === 2 ? lines.map(Number) : undefined);
      },
      START_MS_MAX,
    );
    return { name, lockstep, pids };
  }

  /** Watches for the moment at which the lock is free, and looks who is there then. */
  async function aliveWhenFree({ name, pids }: Job, cause: string): Promise<number[]> {
    await using watch = client.watch(lockKey(name), { omit: "put" });
    for await (const event of watch) {
      const alive = pids.filter((pid) => lookAt(pid) !== undefined);
      assert.equal(event.cause, cause);
      return alive;
    }
    throw new Error("the watch ended");
  }

  it("COMMAND and all its processes are gone before the lease ends when the command line is stopped", async () => {
    const job = await start();
    const free = aliveWhenFree(job, "lease-expired");
    job.lockstep.kill("SIGSTOP");
    assert.deepEqual(await free, []);
    job.lockstep.kill("SIGCONT");
    assert.deepEqual(await once(job.lockstep, "exit"), [123, null]);
  });

  it("when the whole job is stopped, as by Ctrl-Z", async () => {
    const job = await start();
    const free = aliveWhenFree(job, "lease-expired");
    process.kill(-(job.lockstep.pid ?? 0), "SIGSTOP");
    assert.deepEqual(await free, []);
    process.kill(-(job.lockstep.pid ?? 0), "SIGCONT");
    assert.deepEqual(await once(job.lockstep, "exit"), [123, null]);
  });

  it("when the command line is killed: at once, long before the lease ends", async () => {
    const job = await start();
    const free = aliveWhenFree(job, "lease-expired");
    job.lockstep.kill("SIGKILL");
    const isGone = (pid: number): boolean => lookAt(pid) === undefined;
    await until("all are gone", () => (job.pids.every(isGone) ? true : undefined), 2_500);
    assert.deepEqual(await free, []);
  });

  it("when the cell ends the session and COMMAND obeys, what it started is ended too before the command line goes", async () => {
    const job = await start(true);
    const { leaseId = "0" } = (await client.get(lockKey(job.name))) ?? {};
    const ended = once(job.lockstep, "exit");
    await client.leaseRevoke(leaseId);
    assert.deepEqual(await ended, [123, null]);
    assert.deepEqual(
      job.pids.filter((pid) => lookAt(pid) !== undefined),
      [],
    );
  });

  it("nothing is left of a guardian whose COMMAND ended by itself", async () => {
    const lockstep = spawn(
      process.execPath,
      [LOCKSTEP, "lock", "short", "--", "/bin/sh", "-c", "echo $LOCKSTEP_LOCK_RUN"],
      {
        env: { ...process.env, LOCKSTEP_ENDPOINTS: cell.endpoints.join(",") },
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    let out = "";
    lockstep.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
    assert.deepEqual(await once(lockstep, "exit"), [0, null]);
    const run = out.trim();
    assert.match(run, /^[0-9a-f-]{36}$/);
    await until(
      "the guardian has ended",
      () => Promise.resolve(guardianOf(run) === undefined ? true : undefined),
      5_000,
    );
  });
});

/** The process whose arguments name the run. */
function guardianOf(run: string): string | undefined {
  return commandLines().find((line) => line.includes(run));
}

function commandLines(): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "latin1");
      } catch {
        return "";
      }
    });
}
