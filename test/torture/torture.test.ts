import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { tryMounting } from "./cell/volume.ts";
import { FAULTS } from "./nemesis/nemesis.ts";
import { torture } from "./run.ts";

const SEED = Number(process.env["LOCKSTEP_SEED"] ?? 4);
const SECONDS = process.env["LOCKSTEP_TEST_DEPTH"] === "nightly" ? 120 : 20;

it(`a cell tortured for ${String(SECONDS)} s keeps its promises`, { timeout: 500_000 }, async (t) => {
  const probe = mkdtempSync(join(tmpdir(), "lockstep-torture-probe-"));
  const mounting = tryMounting(probe);
  rmSync(probe, { recursive: true, force: true });
  if (mounting.kind === "folder") {
    t.diagnostic(
      `skipped: a volume that is full to the last byte (${mounting.reason}); the disk only says that it is full`,
    );
  }
  const told: string[] = [];
  const verdict = await torture({
    seed: SEED,
    forMs: SECONDS * 1_000,
    kinds: new Set(FAULTS.map(({ kind }) => kind)),
    mounting,
    print: (line) => told.push(line),
    interrupt: t.signal,
  });
  const replay = `npm run torture -- --minutes ${(SECONDS / 60).toFixed(2)} --seed ${String(SEED)}`;
  const story = [replay, ...told, ...verdict.lines, `kept: ${verdict.folder ?? "nothing"}`].join("\n");
  assert.ok(verdict.passed, story);
  const faults = [...verdict.counts.keys()].filter((what) => what.startsWith("fault: "));
  assert.ok(faults.length > 0, `a torture without faults proves nothing\n${story}`);
  assert.ok((verdict.counts.get("register operations") ?? 0) > 0, `nobody wrote\n${story}`);
  for (const line of verdict.lines) t.diagnostic(line);
});
