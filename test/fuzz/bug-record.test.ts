import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { CANARIES } from "../sim/canaries/canaries.ts";
import { TARGETS } from "./targets/index.ts";

const ROOT = join(import.meta.dirname, "../..");
const RECORD = readFileSync(join(ROOT, "docs/bugs-we-do-not-have.md"), "utf8");

function all(pattern: RegExp): string[] {
  return [...RECORD.matchAll(pattern)].map(([, found = ""]) => found);
}

describe("docs/bugs-we-do-not-have.md", () => {
  it("names tests that exist", () => {
    const references = [...RECORD.matchAll(/`([\w./-]+\.test\.ts)` ((?:"[^"]+"(?:, )?)+)/g)];
    assert.ok(references.length > 60, `${references.length} references`);
    for (const [, file = "", names = ""] of references) {
      const source = readFileSync(join(ROOT, file), "utf8");
      for (const [, name = ""] of names.matchAll(/"([^"]+)"/g)) {
        assert.ok(source.includes(`"${name}"`), `${file} has no test "${name}"`);
      }
    }
  });

  it("names files, canaries and fuzz targets that exist", () => {
    for (const file of all(/`([\w./-]+\.(?:ts|txt))`/g)) assert.ok(existsSync(join(ROOT, file)), file);
    const canaries = all(/canar(?:y|ies) ((?:`[\w-]+`(?:, )?)+)/g).flatMap((list) => list.split(", "));
    assert.ok(canaries.length > 20, `${canaries.length} canaries`);
    const known = new Set(CANARIES.map(({ name }) => `\`${name}\``));
    for (const canary of canaries) if (canary !== "") assert.ok(known.has(canary), canary);
    for (const name of all(/fuzz target `([\w-]+)`/g)) {
      assert.ok(
        TARGETS.some((target) => target.name === name),
        name,
      );
    }
  });

  it("tells of every bug of the record once", () => {
    const rows = all(/^\| (B\d+) \|/gm);
    const due = RECORD.slice(RECORD.indexOf("## Bugs that we cannot have yet"));
    const later = [...due.matchAll(/\bB(\d+)\b/g)].map(([id]) => id);
    const told = [...rows, ...later].sort((a, b) => Number(a.slice(1)) - Number(b.slice(1)));
    assert.deepEqual(
      told,
      Array.from({ length: 45 }, (_, i) => `B${i + 1}`),
    );
  });
});
