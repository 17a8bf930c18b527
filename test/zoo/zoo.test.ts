import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { describe, it } from "node:test";
import { PostgresServer } from "../guards/support/postgres-server.ts";
import { LAWS } from "./judge.ts";
import { runZoo } from "./zoo.ts";
import type { ZooVerdict } from "./zoo.ts";

const IS_NIGHTLY = process.env["LOCKSTEP_TEST_DEPTH"] === "nightly";
const SEEDS = IS_NIGHTLY ? [1, 2, 3] : [1];
const MINUTES = IS_NIGHTLY ? 10 : 0.5;

const postgres = await PostgresServer.find();

describe("the process zoo", "missing" in postgres ? { skip: postgres.missing } : {}, () => {
  interface Manner {
    readonly minutes: number;
    readonly seed: number;
    readonly trusting?: boolean;
  }

  async function open(
    { minutes, seed, trusting = false }: Manner,
    interrupt: AbortSignal,
  ): Promise<ZooVerdict> {
    assert("path" in postgres);
    return runZoo({
      ...{ seed, workers: 8, ttlMs: 3_000, postgres: postgres.path, forMs: minutes * 60_000, interrupt },
      guarded: !trusting,
      careful: !trusting,
      print: () => undefined,
    });
  }

  for (const seed of SEEDS) {
    it(`${String(MINUTES)} minutes break no law, seed ${String(seed)}`, { timeout: 900_000 }, async (t) => {
      const verdict = await open({ minutes: MINUTES, seed }, t.signal);
      const replay = `npm run zoo -- --minutes ${String(MINUTES)} --seed ${String(seed)}`;
      assert.ok(verdict.passed, [replay, ...verdict.lines, `kept: ${verdict.folder ?? ""}`].join("\n"));
      for (const line of verdict.lines) t.diagnostic(line);
    });
  }

  it("the same without the guard, of workers that do not look, lets stale writes through", async (t) => {
    const verdict = await open({ minutes: IS_NIGHTLY ? 2 : 0.7, seed: 2, trusting: true }, t.signal);
    if (verdict.folder !== undefined) rmSync(verdict.folder, { recursive: true, force: true });
    assert.ok((verdict.violations.get(LAWS.stale) ?? 0) > 0, verdict.lines.join("\n"));
  });
});
