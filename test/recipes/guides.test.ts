// The programs in docs/*.md for users of the client, as they stand there, against a cell in memory.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { FakeMember } from "../../client/src/testing/fake-cell.ts";
import { run } from "../support/run.ts";

const ROOT = join(import.meta.dirname, "../..");
const PAGES = ["client", "when-a-lock-is-not-enough", "choosing-a-ttl", "migrating"];
const RUN_MS_MAX = 30_000;
const ADDRESS = "127.0.0.1:7400";

describe("a program in the guides runs", () => {
  let member: FakeMember;
  before(async () => {
    member = await FakeMember.start();
  });
  after(() => member.stop());

  for (const page of PAGES) {
    const text = readFileSync(join(ROOT, `docs/${page}.md`), "utf8");
    // Those with other addresses or no address show options, or somebody else's library.
    const programs = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].filter(([, code = ""]) =>
      code.includes(ADDRESS),
    );
    assert.ok(programs.length > 0, page);
    for (const [index, [, code = ""]] of programs.entries()) {
      it(`docs/${page}.md, number ${String(index + 1)}`, async () => {
        const program = code.replace(ADDRESS, member.address).replace("timeout(60_000)", "timeout(500)");
        const args = ["--input-type=module-typescript", "--eval", program];
        const ran = await run(process.execPath, args, { cwd: ROOT, env: process.env, timeoutMs: RUN_MS_MAX });
        assert.equal(ran.code, 0, ran.err);
        assert.doesNotMatch(ran.err, /unknown \(|not the owner/);
      });
    }
  }
});
