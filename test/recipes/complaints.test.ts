// The pages for users of the client name tests that exist.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";

const ROOT = join(import.meta.dirname, "../..");
const PAGES = ["docs/complaints.md", "docs/what-happens-when.md"];
/** Its names begin with the recipe's. */
const SUITE = "client/src/recipes/testing/claim-suite.ts";
const COMPLAINTS = 49;

function read(file: string): string {
  return readFileSync(join(ROOT, file), "utf8");
}

function hasTest(file: string | undefined, name: string): boolean {
  return file === undefined ? read(SUITE).includes(`\${name}: ${name}\``) : read(file).includes(`"${name}"`);
}

for (const page of PAGES) {
  describe(page, () => {
    const text = read(page).replaceAll(/\n +/g, " ");

    it("names tests that exist", () => {
      const references = [...text.matchAll(/(?:`([\w./-]+\.test\.ts)`|the suite) ((?:"[^"]+"(?:, )?)+)/g)];
      assert.ok(references.length > 20, `${String(references.length)} references`);
      for (const [, file, names = ""] of references) {
        for (const [, name = ""] of names.matchAll(/"([^"]+)"/g)) {
          assert.ok(hasTest(file, name), `${file ?? SUITE} has no test "${name}"`);
        }
      }
    });

    it("names files and pages that exist", () => {
      for (const [, file = ""] of text.matchAll(/`([\w./-]+\.ts)`/g))
        assert.ok(existsSync(join(ROOT, file)), file);
      for (const [, link = ""] of text.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)) {
        assert.ok(existsSync(join(ROOT, "docs", link)), link);
      }
    });
  });
}

describe("docs/complaints.md", () => {
  it("tells of every complaint once, in order", () => {
    const rows = [...read("docs/complaints.md").matchAll(/^\| [A-H](\d+) \|/gm)].map(([, n]) => Number(n));
    assert.deepEqual(
      rows,
      Array.from({ length: COMPLAINTS }, (_, i) => i + 1),
    );
  });
});
