import { connect } from "@lockstep/client";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createInterface } from "node:readline";
import { freePortBlock } from "../support/ports.ts";
import { until } from "../support/until.ts";

const LOCKSTEP = new URL("../../cli/bin/lockstep.mjs", import.meta.url).pathname;

interface ReadyLine {
  readonly ready: boolean;
  readonly members: readonly {
    readonly id: number;
    readonly client: string;
    readonly http: string;
    readonly peer: string;
    readonly admin: string;
    readonly ops: string;
    readonly pid: number;
  }[];
}

class Dev {
  readonly child: ChildProcess;
  readonly ready: Promise<ReadyLine>;
  readonly exited: Promise<number | null>;
  readonly lines: string[] = [];

  constructor(directory: string, basePort: number) {
    this.child = spawn(
      process.execPath,
      [LOCKSTEP, "dev", "--members", "3", "--data", directory, "--base-port", String(basePort)],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    this.exited = new Promise((resolve) => this.child.once("exit", resolve));
    const { stdout } = this.child;
    assert.ok(stdout !== null);
    this.ready = new Promise((resolve, reject) => {
      createInterface({ input: stdout }).on("line", (line) => {
        this.lines.push(line);
        resolve(JSON.parse(line) as ReadyLine);
      });
      void this.exited.then((code) =>
        reject(new Error(`dev ended with ${String(code)} before it was ready`)),
      );
    });
    this.ready.catch(() => undefined);
  }
}

describe("lockstep dev", () => {
  const directory = mkdtempSync(join(tmpdir(), "lockstep-dev-"));
  let basePort = 0;
  let dev: Dev;
  before(async () => {
    basePort = await freePortBlock(30);
    dev = new Dev(directory, basePort);
  });
  after(async () => {
    dev.child.kill("SIGTERM");
    await dev.exited;
    rmSync(directory, { recursive: true, force: true });
  });

  it("prints one line of JSON when three voters and a leader serve, with the documented ports", async () => {
    const { ready, members } = await dev.ready;
    assert.equal(ready, true);
    members.forEach((member, index) => {
      const port = basePort + 10 * index;
      assert.equal(member.client, `127.0.0.1:${String(port)}`);
      assert.equal(member.http, `http://127.0.0.1:${String(port + 1)}`);
      assert.match(member.peer, new RegExp(`:${String(port + 2)}$`));
      assert.match(member.admin, new RegExp(`:${String(port + 3)}$`));
      assert.match(member.ops, new RegExp(`:${String(port + 4)}$`));
    });
    assert.equal(members.length, 3);
  });

  it("the example of the HTTP API answers as documented, and its repetition is refused with the version", async () => {
    const { members } = await dev.ready;
    const [first] = members;
    assert.ok(first !== undefined);
    const lease = (await (
      await fetch(`${first.http}/v1/leases`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ ttlMs: 30_000 }),
      })
    ).json()) as { readonly leaseId: string; readonly ttlMs: number };
    assert.match(lease.leaseId, /^lease_\d+$/);
    assert.equal(lease.ttlMs, 30_000);
    const put = (): Promise<Response> =>
      fetch(`${first.http}/v1/kv/locks/report-42`, {
        method: "PUT",
        headers: { "If-Version": "0", "Lease-ID": lease.leaseId },
        body: "worker-17",
      });
    const created = await put();
    assert.equal(created.status, 201);
    const answer = (await created.json()) as Readonly<Record<string, unknown>>;
    assert.equal(answer["created"], true);
    assert.equal(answer["version"], 1);
    assert.equal(answer["revision"], answer["fencingToken"]);
    const refused = await put();
    assert.equal(refused.status, 412);
    const problem = (await refused.json()) as Readonly<Record<string, unknown>>;
    assert.equal(problem["version"], 1);
    assert.equal(problem["fencingToken"], answer["fencingToken"]);
  });

  it("starts a member that died again, and the probes tell", async () => {
    const { members } = await dev.ready;
    const [, second] = members;
    assert.ok(second !== undefined);
    process.kill(second.pid, "SIGKILL");
    const ops = second.ops.startsWith("http") ? second.ops : `http://${second.ops}`;
    await until("the member is ready again", async () => {
      const response = await fetch(`${ops}/readyz`);
      return response.ok ? response : undefined;
    });
    assert.equal((await fetch(`${ops}/livez`)).status, 200);
    const metrics = await (await fetch(`${ops}/metrics`)).text();
    for (const name of [
      "lockstep_raft_term",
      "lockstep_wal_fsync_duration_seconds",
      "lockstep_apply_lag_entries",
    ]) {
      assert.ok(metrics.includes(name), `${name} is shown`);
    }
  });

  it("SIGTERM ends all members and exits 0; started again it serves the same data", async () => {
    const { members } = await dev.ready;
    const client = await connect({ endpoints: members.map((member) => member.client) });
    await client.put("kept", "over a restart");
    client.close();
    dev.child.kill("SIGTERM");
    assert.equal(await dev.exited, 0);
    assert.equal(dev.lines.length, 1, "one line and nothing else on stdout");
    for (const { pid } of members) assert.throws(() => process.kill(pid, 0), /ESRCH/);
    dev = new Dev(directory, basePort);
    const again = await dev.ready;
    const reader = await connect({ endpoints: again.members.map((member) => member.client) });
    assert.equal((await reader.get("kept"))?.text(), "over a restart");
    reader.close();
  });
});
