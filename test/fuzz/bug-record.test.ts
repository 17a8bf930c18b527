import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { CANARIES } from "../sim/canaries/canaries.ts";
import { TARGETS } from "./targets/index.ts";

const ROOT = join(import.meta.dirname, "../..");

/** A page whose rows say what would notice a bug. */
class Page {
  readonly text: string;
  /** What is not there yet, and so cannot be wrong. */
  readonly due: string;

  constructor(file: string) {
    this.text = readFileSync(join(ROOT, file), "utf8");
    this.due = this.text.slice(this.text.indexOf("## Bugs that we cannot have yet")).split("\n## ")[0] ?? "";
  }

  all(pattern: RegExp, text: string = this.text): string[] {
    return [...text.matchAll(pattern)].map(([, found = ""]) => found);
  }

  /** Files with the names of their tests; in a paragraph a name may go over the end of a line. */
  references(): readonly (readonly [file: string, names: readonly string[]])[] {
    const text = this.text.replaceAll(/\n +/g, " ");
    return [...text.matchAll(/`([\w./-]+\.test\.ts)` ((?:"[^"]+"(?:, )?)+)/g)].map(
      ([, file = "", names = ""]) => [file, [...names.matchAll(/"([^"]+)"/g)].map(([, name = ""]) => name)],
    );
  }

  /** Ids in rows, and in what is due later, in order. */
  told(letter: string): readonly string[] {
    const rows = this.all(new RegExp(`^\\| (${letter}\\d+) \\|`, "gm"));
    const later = this.all(new RegExp(`\\b(${letter}\\d+)\\b`, "g"), this.due);
    return [...rows, ...later].sort((a, b) => Number(a.slice(1)) - Number(b.slice(1)));
  }
}

function assertTestsExist(page: Page, atLeast: number): void {
  const references = page.references();
  assert.ok(references.length > atLeast, `${String(references.length)} references`);
  for (const [file, names] of references) {
    const source = readFileSync(join(ROOT, file), "utf8");
    for (const name of names) assert.ok(source.includes(`"${name}"`), `${file} has no test "${name}"`);
  }
}

function assertFilesExist(page: Page): void {
  for (const file of page.all(/`([\w./-]+\.(?:ts|txt))`/g)) assert.ok(existsSync(join(ROOT, file)), file);
}

const numbered = (letter: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, i) => `${letter}${String(i + 1)}`);

describe("docs/bugs-we-do-not-have.md", () => {
  const page = new Page("docs/bugs-we-do-not-have.md");

  it("names tests that exist", () => {
    assertTestsExist(page, 60);
  });

  it("names files, canaries and fuzz targets that exist", () => {
    assertFilesExist(page);
    const canaries = page.all(/canar(?:y|ies) ((?:`[\w-]+`(?:, )?)+)/g).flatMap((list) => list.split(", "));
    assert.ok(canaries.length > 20, `${String(canaries.length)} canaries`);
    const known = new Set(CANARIES.map(({ name }) => `\`${name}\``));
    for (const canary of canaries) if (canary !== "") assert.ok(known.has(canary), canary);
    for (const name of page.all(/fuzz target `([\w-]+)`/g)) {
      assert.ok(
        TARGETS.some((target) => target.name === name),
        name,
      );
    }
  });

  it("tells of every bug of the record once", () => {
    assert.deepEqual(page.told("B"), numbered("B", 45));
  });
});

describe("docs/operator-bugs-we-do-not-have.md", () => {
  const page = new Page("docs/operator-bugs-we-do-not-have.md");

  it("names tests and files that exist", () => {
    assertTestsExist(page, 80);
    assertFilesExist(page);
  });

  it("names scenarios that run", () => {
    const index = readFileSync(join(ROOT, "e2e/src/scenarios/index.ts"), "utf8");
    const scenarios = page.all(/scenario `e2e\/src\/scenarios\/([\w-]+)\.ts`/g);
    assert.ok(scenarios.length > 4, `${String(scenarios.length)} scenarios`);
    for (const name of scenarios) assert.ok(index.includes(`"./${name}.ts"`), name);
  });

  it("tells of every entry once", () => {
    assert.deepEqual(page.told("O"), numbered("O", 40));
    assert.deepEqual(page.told("L"), numbered("L", 11));
  });
});
