import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";
import { describe, it } from "node:test";
import { CANARIES, findCanary, isExpectedLaw } from "./canaries.ts";
import type { Canary } from "./canaries.ts";
import { applyPatches, filesOf, launchOf, patchesFor, pathOf, ROOT } from "./patching.ts";
import { importOf, runWith } from "./testing.ts";

/** Imports everything a canary changes, and has the process make sure that the canary is in place. */
function importAll(canary: Canary): string {
  const imports = filesOf(canary).map((file) => `await import(${JSON.stringify(new URL(file, ROOT).href)});`);
  return `
    ${importOf("assertCanaryInPlace", "test/sim/canaries/patching.ts")}
    ${imports.join("\n")}
    assertCanaryInPlace(process.env);
    process.stdout.write("in place");
  `;
}

/** Whether \`read-without-quorum\` is in the source that this process (thread) runs. */
const SHOW_READS = `
  ${importOf("readsMayStart", "cell/src/raft/reads.ts")}
  process.stdout.write(readsMayStart.toString().includes('core.role === "leader"') ? "patched " : "whole ");
`;

describe("canaries", { concurrency: 2 }, () => {
  it("have names of their own and say what they are", () => {
    assert.equal(new Set(CANARIES.map(({ name }) => name)).size, CANARIES.length);
    for (const { name, bug, source, laws, needs, patches } of CANARIES) {
      assert.match(name, /^[a-z]+(-[a-z]+)+$/);
      assert.match(bug, /\.$/, `${name} says its bug in a sentence`);
      assert(source !== "" && needs !== "" && laws.length > 0 && patches.length > 0, name);
    }
  });

  it("a law with a suffix is the law, and one that begins alike is another", () => {
    const canary = { ...findCanary("read-without-quorum"), laws: ["I1"] };
    assert(isExpectedLaw(canary, "I1"));
    assert(isExpectedLaw(canary, "I1-one-leader"));
    assert(!isExpectedLaw(canary, "I12"));
  });

  for (const canary of CANARIES) {
    it(`${canary.name} fits today's sources, changes them, and what it makes of them is TypeScript`, async () => {
      for (const file of filesOf(canary)) {
        const source = await readFile(pathOf(file), "utf8");
        const patched = applyPatches(canary.name, source, patchesFor(canary, file));
        assert.notEqual(stripTypeScriptTypes(patched), stripTypeScriptTypes(source));
      }
      const { code, stdout, stderr } = await runWith(canary.name, importAll(canary));
      assert.equal(code, 0, stderr);
      assert.equal(stdout, "in place");
    });
  }
});

describe("a patch", () => {
  const patch = { file: "x.ts", find: "one", replace: "$& two" };

  it("is put in literally", () => {
    assert.equal(applyPatches("c", "a one b", [patch]), "a $& two b");
  });

  it("whose place is gone fails, naming canary and file", () => {
    assert.throws(() => applyPatches("c", "a b", [patch]), /canary c does not fit.*x\.ts.*nowhere/);
  });

  it("whose place is not the only one fails", () => {
    assert.throws(() => applyPatches("c", "one one", [patch]), /2 times/);
  });
});

describe("the hook", () => {
  it("brings the bug into a process", async () => {
    assert.equal((await runWith("read-without-quorum", SHOW_READS)).stdout, "patched ");
  });

  it("leaves production alone when no canary is named", async () => {
    assert.equal((await runWith("", SHOW_READS)).stdout, "whole ");
  });

  it("reaches worker threads and forked processes", async () => {
    const inner = `data:text/javascript,${encodeURIComponent(`await import(${JSON.stringify(new URL("cell/src/raft/reads.ts", ROOT).href)}).then((reads) =>
      process.stdout.write(reads.readsMayStart.toString().includes('core.role === "leader"') ? "patched " : "whole "))`)}`;
    const outer = `
      import { execFileSync } from "node:child_process";
      import { Worker } from "node:worker_threads";
      const worker = new Worker(new URL(${JSON.stringify(inner)}));
      await new Promise((resolve) => worker.once("exit", resolve));
      const args = [...${JSON.stringify(launchOf("").execArgv)}, "--input-type=module", "--eval", 'await import(' + JSON.stringify(${JSON.stringify(inner)}) + ')'];
      process.stdout.write(execFileSync(process.execPath, args));
    `;
    const { stdout, stderr } = await runWith("read-without-quorum", outer);
    assert.equal(stdout, "patched patched ", stderr);
  });

  it("refuses a name that it does not know", async () => {
    const { code, stderr } = await runWith("no-such-bug", SHOW_READS);
    assert.notEqual(code, 0);
    assert.match(stderr, /there is no canary "no-such-bug"/);
  });

  it("tells a runner that has not loaded what the canary changes", async () => {
    const idle = `
      ${importOf("assertCanaryInPlace", "test/sim/canaries/patching.ts")}
      assertCanaryInPlace(process.env);
    `;
    const { code, stderr } = await runWith("read-without-quorum", idle);
    assert.notEqual(code, 0);
    assert.match(stderr, /not in place: cell\/src\/raft\/reads\.ts/);
  });
});
