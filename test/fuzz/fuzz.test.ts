import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { runCampaign, shareOut } from "./campaign.ts";
import type { FindingKind } from "./contract.ts";
import { readKept } from "./kept.ts";
import { describeFindings } from "./report.ts";
import { inputOf, judge } from "./runner.ts";
import { TARGETS } from "./targets/index.ts";
import { TARGETS as BROKEN } from "./testing/broken.ts";

const CASES = 60_000;
/** Fixed, so that a failure here is a failure everywhere; `main.ts` draws others. */
const SEED = 20_261;

describe("decoders under damaged input", () => {
  it("accept it or refuse it as they document, fast, in little memory, and what they accept survives its encoding", async () => {
    const result = await runCampaign({
      module: new URL("./targets/index.ts", import.meta.url).href,
      targets: TARGETS,
      seed: SEED,
      jobs: shareOut(TARGETS, CASES),
      // Other tests share the machine: this bound is for what never ends.
      hangMs: 30_000,
    });
    assert.equal(result.findings.length, 0, describeFindings(result));
    assert.equal(
      result.tallies.reduce((sum, { cases }) => sum + cases, 0),
      CASES,
    );
    for (const { target, cases, accepted, refused } of result.tallies) {
      const least = Math.min(accepted, refused);
      assert.ok(least > cases / 20, `${target}: ${accepted} accepted, ${refused} refused`);
    }
  });

  it("what once went wrong stays right", async () => {
    const kept = readKept();
    assert.ok(kept.length > 0);
    for (const { file, target: name, hex, why, verdict } of kept) {
      const target = TARGETS.find((each) => each.name === name);
      assert.ok(target !== undefined, `${file}: no target ${name}`);
      const { accepted, problem } = await judge(target, { bytes: Buffer.from(hex, "hex"), valid: false });
      assert.equal(problem, undefined, `${file} (${why}): ${problem?.why ?? ""}`);
      assert.equal(accepted ? "accepted" : "refused", verdict, `${file}: ${why}`);
    }
  });

  it("a case is a function of target, seed and index", () => {
    for (const target of TARGETS) {
      const cases = [5, 6, 5].map((index) => inputOf(target, 3, index).bytes.toString("hex"));
      assert.equal(cases[0], cases[2], target.name);
      const others = Array.from({ length: 8 }, (_, i) => inputOf(target, 4, i).bytes.toString("hex"));
      assert.ok(new Set([...cases, ...others]).size > 6, target.name);
    }
    assert.equal(new Set(TARGETS.map(({ name }) => name)).size, TARGETS.length);
  });
});

describe("the fuzzer itself", () => {
  it("notices a crash, a hang, a promise that never settles, too much memory and a broken law, and goes on behind each", async () => {
    const EACH = 300;
    // Slow, or the end of their thread with every finding: a few cases, of which only the last one ends it.
    const FEW = new Map([
      ["broken-slow", { first: 0, count: 20 }],
      ["broken-hang", { first: 1, count: 2 }],
      ["broken-silence", { first: 1, count: 2 }],
      ["broken-heap", { first: 10, count: 3 }],
    ]);
    const { findings, tallies } = await runCampaign({
      module: new URL("./testing/broken.ts", import.meta.url).href,
      targets: BROKEN,
      seed: 1,
      jobs: BROKEN.map(({ name }) => ({ target: name, ...(FEW.get(name) ?? { first: 0, count: EACH }) })),
      hangMs: 3_000,
      heapMb: 96,
    });
    const kindsOf = (target: string): FindingKind[] => [
      ...new Set(findings.filter((finding) => finding.target === target).map(({ kind }) => kind)),
    ];
    const expected: readonly [string, FindingKind][] = [
      ["broken-crash", "crash"],
      ["broken-rejection", "crash"],
      ["broken-slow", "hang"],
      ["broken-hang", "hang"],
      ["broken-silence", "hang"],
      ["broken-memory", "memory"],
      ["broken-heap", "memory"],
      ["broken-law", "law"],
      ["broken-refusal", "law"],
    ];
    for (const [target, kind] of expected) assert.deepEqual(kindsOf(target), [kind], target);
    assert.deepEqual(kindsOf("sound"), []);
    assert.equal(tallies.find(({ target }) => target === "sound")?.cases, EACH);
    for (const { target, seed, index, hex } of findings) {
      const broken = BROKEN.find(({ name }) => name === target);
      assert.ok(broken !== undefined);
      assert.equal(inputOf(broken, seed, index).bytes.toString("hex"), hex, "a finding replays");
    }
  });
});
