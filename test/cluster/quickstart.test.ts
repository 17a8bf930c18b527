import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { it } from "node:test";
import { freePortBlock } from "../support/ports.ts";

const SCRIPT = new URL("../../scripts/quickstart/main.ts", import.meta.url).pathname;

it("the quickstart observes every step: token, leader killed, pause, larger token, late write refused", async () => {
  const base = await freePortBlock(30);
  const child = spawn(process.execPath, [SCRIPT, "--exit", "--base-port", String(base)], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
  assert.equal(code, 0, output);
  const tokens = [...output.matchAll(/fencing token (\d+)/g)].map((match) => Number(match[1]));
  assert.ok(tokens.length >= 2 && (tokens[1] ?? 0) > (tokens[0] ?? 0), output);
  assert.match(output, /refused, "stale token/);
});
