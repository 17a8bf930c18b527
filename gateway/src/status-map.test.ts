import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import { renderErrorsPage } from "./errors-page.ts";

it("docs/errors.md says what the status table says", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/errors.md"), "utf8");
  assert.equal(page, renderErrorsPage(), "render docs/errors.md again from gateway/src/errors-page.ts");
});
