import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { CliError, EXIT } from "../exit-codes.ts";
import type { Terminal } from "../terminal.ts";
import type { Kubectl } from "./kubectl.ts";
import { createKubectl } from "./kubectl.ts";
import { runKube } from "./program.ts";
import { withoutValues } from "./report.ts";
import { statusPicture } from "./status-picture.ts";

const NOW = Date.parse("2026-01-01T01:00:00Z");

const CELL = {
  metadata: { name: "main", namespace: "infra", generation: 3 },
  spec: { voters: 3 },
  status: {
    observedGeneration: 3,
    phase: "Changing",
    leader: "main-aaaaa",
    readyVoters: 2,
    version: "0.1.0",
    formatVersion: 1,
    endpoints: { client: "main-client.infra.svc:7400", http: "main-client.infra.svc:7401" },
    members: [
      { name: "main-ccccc", role: "Learner", zone: "zone-3", node: "node-4", ready: false, lag: 1204 },
      {
        name: "main-aaaaa",
        role: "Voter",
        leader: true,
        zone: "zone-1",
        node: "node-1",
        ready: true,
        lag: 0,
      },
      { name: "main-bbbbb", role: "Voter", zone: "zone-3", lostSince: "2026-01-01T00:48:00Z", ready: false },
    ],
    operation: {
      id: "op-7",
      kind: "Replace",
      step: "CatchUp",
      cause: "The node node-3 is gone.",
      message: "main-ccccc is 1204 entries behind.",
      startedAt: "2026-01-01T00:59:20Z",
      deadline: "2026-01-01T01:20:00Z",
    },
    conditions: [
      { type: "Ready", status: "False", reason: "Changing", message: "A voter is being replaced." },
      { type: "Reconciling", status: "True", reason: "Replace", message: "" },
      { type: "Degraded", status: "True", reason: "MemberLost", message: "main-bbbbb is lost." },
      { type: "Available", status: "True", reason: "QuorumServes", message: "" },
    ],
  },
};

interface Run {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  readonly calls: readonly string[];
  readonly inputs: readonly string[];
}

/** `answer` plays kubectl: the arguments as one line in, what it prints out. */
async function run(args: readonly string[], answer: (call: string) => string): Promise<Run> {
  const calls: string[] = [];
  const inputs: string[] = [];
  let out = "";
  let err = "";
  let clock = 0;
  const terminal: Terminal = {
    env: {},
    out: (text) => (out += String(text)),
    err: (text) => (err += text),
    readInput: () => Promise.resolve(""),
    sleep: (ms) => {
      clock += ms;
      return Promise.resolve();
    },
    now: () => clock,
    onStop: () => () => undefined,
  };
  const make = (_program: string, common: readonly string[]): Kubectl => ({
    run: (given, input) => {
      const call = [...common, ...given].join(" ");
      calls.push(call);
      if (input !== undefined) inputs.push(input);
      return Promise.resolve().then(() => answer(call));
    },
  });
  const code = await runKube(args, terminal, make);
  return { code, out, err, calls, inputs };
}

describe("kubectl lockstep status", () => {
  it("draws members by zone, the operation and what it waits for, and what wants attention", () => {
    const picture = statusPicture(CELL, NOW);
    assert.match(picture, /Cell infra\/main {3}Changing {3}2\/3 voters ready · leader main-aaaaa/);
    assert.ok(picture.indexOf("main-aaaaa") < picture.indexOf("main-bbbbb"));
    assert.match(picture, /★\s+main-aaaaa\s+leader\s+zone-1/);
    assert.match(picture, /✗\s+main-bbbbb\s+voter.*lost for 12m/);
    assert.match(picture, /◐\s+main-ccccc\s+learner.*1204/);
    assert.match(picture, /Replace \(op-7\), step CatchUp, begun 40s ago, given up in 20m/);
    assert.match(picture, /waits {4}main-ccccc is 1204 entries behind/);
    assert.match(picture, /Degraded=True\s+MemberLost/);
    assert.doesNotMatch(picture, /Available=/);
  });

  it("says when the operator has not looked yet", () => {
    assert.match(statusPicture({ metadata: { name: "x" }, spec: {} }, NOW), /has not looked at it yet/);
  });

  it("ends with 1 while the cell is not Ready, for scripts", async () => {
    const { code, calls } = await run(["status", "main", "-n", "infra", "--context", "prod"], () =>
      JSON.stringify(CELL),
    );
    assert.equal(code, EXIT.failed);
    assert.deepEqual(calls, ["--context prod get coordinationcells.lockstep.dev main -n infra -o json"]);
  });

  it("hands on kubectl's complaint", async () => {
    const { code, err } = await run(["status", "nope"], () => {
      throw new CliError(EXIT.notFound, 'coordinationcells "nope" not found');
    });
    assert.equal(code, EXIT.notFound);
    assert.match(err, /not found/);
  });
});

describe("kubectl lockstep actions", () => {
  it("are CellOperations, followed until they are done", async () => {
    const phases = ["", "Pending", "Running", "Succeeded"];
    const { code, inputs, err } = await run(["replace", "main-bbbbb"], (call) => {
      if (call.startsWith("get cellmembers")) return JSON.stringify({ spec: { cell: "main" } });
      if (call.startsWith("create")) return JSON.stringify({ metadata: { name: "replace-x1" } });
      if (call.startsWith("get celloperations")) {
        const phase = phases.shift() ?? "";
        const status = phase === "" ? undefined : { phase, message: `now ${phase}` };
        return JSON.stringify({ metadata: { name: "replace-x1" }, status });
      }
      return "";
    });
    assert.equal(code, EXIT.ok);
    assert.deepEqual((JSON.parse(inputs[0] ?? "{}") as { spec?: unknown }).spec, {
      cell: "main",
      action: "Replace",
      member: "main-bbbbb",
    });
    assert.match(err, /has not looked at it yet[^]*now Running[^]*now Succeeded/);
  });

  it("end with the operator's reason when it refuses", async () => {
    const { code, err } = await run(["transfer-leader", "main"], (call) =>
      call.startsWith("create")
        ? JSON.stringify({ metadata: { name: "t" } })
        : JSON.stringify({ metadata: { name: "t" }, status: { phase: "Failed", message: "no other voter" } }),
    );
    assert.equal(code, EXIT.failed);
    assert.match(err, /no other voter/);
  });

  it("do not wait for ever", async () => {
    const { code, err } = await run(["drain", "main", "node-3", "--timeout", "5s"], (call) =>
      call.startsWith("create")
        ? JSON.stringify({ metadata: { name: "d" } })
        : JSON.stringify({ metadata: { name: "d" }, status: { phase: "Running", message: "catching up" } }),
    );
    assert.equal(code, EXIT.unknown);
    assert.match(err, /it goes on/);
  });

  it("make nothing for a cell that is not there", async () => {
    const { code, calls } = await run(["pause", "nope"], () => {
      throw new CliError(EXIT.notFound, "not found");
    });
    assert.equal(code, EXIT.notFound);
    assert.equal(calls.length, 1);
  });

  it("resume withdraws the pauses of this cell only", async () => {
    const { code, calls } = await run(["resume", "main"], (call) =>
      call.startsWith("get celloperations")
        ? JSON.stringify({
            items: [
              { metadata: { name: "p1" }, spec: { cell: "main", action: "Pause" } },
              { metadata: { name: "p2" }, spec: { cell: "other", action: "Pause" } },
              { metadata: { name: "r1" }, spec: { cell: "main", action: "Replace" } },
            ],
          })
        : JSON.stringify(CELL),
    );
    assert.equal(code, EXIT.ok);
    assert.deepEqual(
      calls.filter((call) => call.startsWith("delete")),
      ["delete celloperations.lockstep.dev p1"],
    );
  });
});

describe("kubectl lockstep report", () => {
  it("never asks for secrets, takes values out, and says what it could not read", async () => {
    const folder = await mkdtemp(join(tmpdir(), "lockstep-report-test-"));
    try {
      const { code, calls } = await run(["report", "main", "--to", folder], (call) => {
        if (call.startsWith("get pods") && call.endsWith("-o name")) return "pod/main-aaaaa\n";
        if (call.startsWith("get nodes")) throw new CliError(EXIT.failed, "forbidden");
        if (call.startsWith("logs")) return "a line\n";
        return JSON.stringify({ items: [{ spec: { env: [{ name: "PASSWORD", value: "hunter2" }] } }] });
      });
      assert.equal(code, EXIT.ok);
      assert.ok(calls.every((call) => !/secret/.test(call)));
      const files = await readdir(folder);
      assert.ok(files.includes("main-aaaaa.log") && files.includes("events.txt"));
      const texts = await Promise.all(files.map((file) => readFile(join(folder, file), "utf8")));
      assert.ok(texts.filter((text) => text.includes("PASSWORD")).length > 2);
      assert.ok(texts.every((text, i) => files[i] === "events.txt" || !text.includes("hunter2")));
      assert.match(await readFile(join(folder, "nodes.json"), "utf8"), /could not be read: forbidden/);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it("takes out earlier manifests too", () => {
    const text = JSON.stringify({
      metadata: { annotations: { "kubectl.kubernetes.io/last-applied-configuration": "{secret}" } },
    });
    assert.doesNotMatch(withoutValues(text), /secret/);
  });
});

describe("running kubectl", () => {
  it("hands arguments over as they are, without a shell", async () => {
    const kubectl = createKubectl("/bin/echo", ["--context", "a b"]);
    assert.equal(await kubectl.run(["get", "$(id)", "; true"]), "--context a b get $(id) ; true\n");
  });

  it("says so when there is none", async () => {
    await assert.rejects(createKubectl("/nonexistent/kubectl", []).run(["x"]), /there is no .*kubectl here/);
  });

  it("repeats its complaint", async () => {
    const kubectl = createKubectl(process.execPath, [
      "-e",
      "console.error('Error from server (NotFound): gone'); process.exit(1)",
    ]);
    await assert.rejects(kubectl.run([]), (error: CliError) => {
      assert.equal(error.exitCode, EXIT.notFound);
      assert.equal(error.message, "gone");
      return true;
    });
  });
});
