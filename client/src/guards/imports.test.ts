import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";

const IMPORT = /^(?:import|export) (?!type )(?:[^;]*? from )?"([^"]+)";/gm;

/** Everything that is loaded with a module. */
function loaded(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  for (const [, name = ""] of readFileSync(file, "utf8").matchAll(IMPORT)) {
    if (name.startsWith(".")) loaded(join(dirname(file), name), seen);
    else seen.add(name);
  }
  return seen;
}

describe("a guard", () => {
  for (const guard of ["postgres", "redis", "register", "s3"])
    it(`loads no package and nothing of the rest of the client that is heavy: ${guard}`, () => {
      const all = [...loaded(join(import.meta.dirname, `${guard}.ts`))];
      assert(all.length > 2);
      const packages = all.filter((name) => !name.startsWith("/") && !name.startsWith("node:"));
      assert.deepEqual(packages, []);
    });
});
