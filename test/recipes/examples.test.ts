import { connect } from "@lockstep/client";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { TestCell } from "../support/cell.ts";

const EXAMPLES = join(import.meta.dirname, "examples");
const PAGES = join(import.meta.dirname, "../../docs/recipes");
const OTHER_PAGES = ["README.md"];
/** Writes what the examples are and print into the pages, instead of comparing. */
const UPDATE = process.env["LOCKSTEP_UPDATE"] === "1";
const RUN_MS_MAX = 60_000;

const run = promisify(execFile);

/** The first block of a language in a page, with where it is. */
function block(page: string, language: "ts" | "text"): { readonly text: string; readonly at: number } {
  const found = new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, "m").exec(page);
  assert.ok(found?.[1] !== undefined, `the page has no block of ${language}`);
  return { text: found[1], at: found.index + `\`\`\`${language}\n`.length };
}

/** Tokens depend on what the cell has seen before. */
function withoutTokens(text: string): string {
  return text.replaceAll(/(token|term) \d+/g, "$1 N");
}

describe("docs/recipes: every example does what its page says", () => {
  let cell: TestCell;
  before(async () => {
    cell = await TestCell.start(1);
  });
  after(async () => {
    await cell.stop();
  });

  const names = readdirSync(EXAMPLES).sort();

  it("every page has its example, and every example its page", () => {
    const pages = readdirSync(PAGES)
      .filter((name) => name.endsWith(".md") && !OTHER_PAGES.includes(name))
      .map((name) => name.slice(0, -".md".length));
    assert.deepEqual(pages.sort(), names);
    const index = readFileSync(join(PAGES, "README.md"), "utf8");
    for (const name of names) assert.ok(index.includes(`(${name}.md)`), `the index names ${name}`);
  });

  for (const name of names) {
    it(name, async () => {
      const file = join(EXAMPLES, name, "main.ts");
      const { stdout, stderr } = await run(process.execPath, [file], {
        env: { ...process.env, LOCKSTEP_ENDPOINTS: cell.endpoints.join(",") },
        timeout: RUN_MS_MAX,
      });
      assert.equal(stderr, "");
      const path = join(PAGES, `${name}.md`);
      const code = readFileSync(file, "utf8");
      if (UPDATE) update(path, code, stdout);
      const page = readFileSync(path, "utf8");
      assert.equal(block(page, "ts").text, code, "the page shows the example that runs");
      assert.equal(
        withoutTokens(block(page, "text").text),
        withoutTokens(stdout),
        "the page shows what it prints",
      );
      const client = await connect({ endpoints: cell.endpoints });
      const { kvs } = await client.range({ prefix: "/" }, { keysOnly: true });
      client.close();
      assert.deepEqual(
        kvs.map((kv) => kv.keyText),
        [],
        "nothing is left",
      );
    });
  }
});

function update(path: string, code: string, output: string): void {
  let page = readFileSync(path, "utf8");
  for (const [language, content] of [
    ["ts", code],
    ["text", output],
  ] as const) {
    const { text, at } = block(page, language);
    page = page.slice(0, at) + content + page.slice(at + text.length);
  }
  writeFileSync(path, page);
}
