import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { Terminal } from "../terminal.ts";
import { processTerminal } from "../terminal.ts";
import { growthSteps, layOut, memberArguments } from "./layout.ts";
import { requireFreePorts } from "./ports.ts";
import { restartDelayMs, Supervisor } from "./supervisor.ts";

const folder = mkdtempSync(join(tmpdir(), "lockstep-dev-"));
after(() => rmSync(folder, { recursive: true }));

test("ports are laid out ten apart, and the others join member 0", () => {
  const layout = layOut("/d", 3, 7400);
  const [first, , third] = layout.members;
  assert.equal(first?.client, "127.0.0.1:7400");
  assert.equal(third?.http, "127.0.0.1:7421");
  assert.equal(third.ops, "127.0.0.1:7424");
  assert.ok(memberArguments(layout, 0).includes("--bootstrap"));
  const joining = memberArguments(layout, 2);
  assert.equal(joining[joining.indexOf("--join") + 1], "127.0.0.1:7403");
  assert.ok(!joining.includes("--bootstrap"));
});

test("only 1, 3 or 5 members, and all ports below 65536", () => {
  for (const count of [0, 2, 4, 6]) assert.throws(() => layOut("/d", count, 7400));
  assert.throws(() => layOut("/d", 5, 65_500));
});

test("a cell grows by two at a time and never rests on an even number", () => {
  assert.deepEqual(growthSteps(1, 1), []);
  assert.deepEqual(growthSteps(1, 3), [2]);
  assert.deepEqual(growthSteps(1, 5), [2, 2]);
  assert.deepEqual(growthSteps(3, 5), [2]);
  assert.deepEqual(growthSteps(2, 3), [1]);
});

test("a port in use is named", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await assert.rejects(requireFreePorts(layOut("/d", 1, port)), new RegExp(`port ${String(port)} `));
  await new Promise((resolve) => server.close(resolve));
});

test("restarts wait longer and longer, within a bound", () => {
  assert.equal(restartDelayMs(1), 200);
  assert.equal(restartDelayMs(3), 800);
  assert.equal(restartDelayMs(50), 10_000);
});

interface Watched {
  readonly terminal: Terminal;
  readonly until: (pattern: RegExp) => Promise<string>;
}

function watched(): Watched {
  let text = "";
  let check: () => void = () => undefined;
  const terminal: Terminal = {
    ...processTerminal(),
    err: (line) => {
      text += line;
      check();
    },
  };
  return {
    terminal,
    until: (pattern) =>
      new Promise((resolve) => {
        check = () => {
          if (pattern.test(text)) resolve(text);
        };
        check();
      }),
  };
}

function supervise(terminal: Terminal, name: string, script: string, restart: boolean): Supervisor {
  const [member] = layOut(folder, 1, 7400).members;
  const own = { ...member!, name, folder: join(folder, name), logFile: join(folder, name, "member.log") };
  return new Supervisor(
    terminal,
    { member: own, command: process.execPath, args: ["-e", script] },
    { restart },
  );
}

test("a member that dies is started again, its output kept in its log", async () => {
  const { terminal, until } = watched();
  const supervisor = supervise(terminal, "dies", "console.log('was here'); process.exit(3)", true);
  supervisor.start();
  await until(/again in 200 ms[^]*again in 400 ms/);
  await supervisor.stop();
  assert.match(readFileSync(join(folder, "dies", "member.log"), "utf8"), /(was here\n){2}/);
});

test("without restarts a dead member is only reported, and stopping it is no error", async () => {
  const { terminal, until } = watched();
  const supervisor = supervise(terminal, "stays-dead", "process.kill(process.pid, 'SIGKILL')", false);
  supervisor.start();
  assert.match(await until(/died/), /stays-dead died \(signal SIGKILL\)/);
  assert.ok(supervisor.hopeless);
  await supervisor.stop();
});

test("a running member is stopped by TERM", async () => {
  const { terminal } = watched();
  const supervisor = supervise(terminal, "runs", "setInterval(() => {}, 1000)", true);
  supervisor.start();
  const pid = supervisor.pid;
  assert.ok(pid !== undefined);
  await supervisor.stop();
  assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
});
