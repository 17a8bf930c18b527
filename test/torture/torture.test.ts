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

const folders = mkdtempSync(join(tmpdir(), "lockstep-torture-probe-"));
const mounting = tryMounting(folders);
rmSync(folders, { recursive: true, force: true });

it(`a cell tortured for ${String(SECONDS)} s keeps its promises`, { timeout: 500_000 }, async (t) => {
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

it(
  "disks that lie about what is durable are found out by power cuts: the torture bites",
  { timeout: 500_000 },
  async (t) => {
    const told: string[] = [];
    const verdict = await torture({
      seed: SEED,
      forMs: 30_000,
      endAtFirstViolation: true,
      kinds: new Set(["power-cut-all"]),
      mounting,
      lyingDisks: true,
      print: (line) => told.push(line),
      interrupt: t.signal,
    });
    if (verdict.folder !== undefined) rmSync(verdict.folder, { recursive: true, force: true });
    assert.ok(!verdict.passed, `a lie was not noticed\n${[...told, ...verdict.lines].join("\n")}`);
    // A member may also be the first to notice, and stop: it is told of what it never sent, or finds less than it had.
    assert.match(
      told.join("\n"),
      /members come back|acknowledged writes are there|linearizability|revision-order|no member dies by itself/,
    );
  },
);
