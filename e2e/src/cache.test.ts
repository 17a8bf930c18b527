import assert from "node:assert/strict";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import fc from "fast-check";
import { cached, cacheKey, entryOf } from "./cache.ts";

describe("cacheKey", () => {
  it("is the same for the same inputs in any order", () => {
    assert.equal(cacheKey({ a: "1", b: "2" }), cacheKey({ b: "2", a: "1" }));
  });

  it("differs whenever a name or a value differs", () => {
    const inputs = fc.dictionary(fc.string({ maxLength: 4 }), fc.string({ maxLength: 4 }), {
      noNullPrototype: true,
    });
    const text = (one: Record<string, string>): string => JSON.stringify(Object.entries(one).sort());
    fc.assert(
      fc.property(inputs, inputs, (one, other) => {
        assert.equal(cacheKey(one) === cacheKey(other), text(one) === text(other));
      }),
    );
  });

  it("does not let a name's end become a value's start", () => {
    assert.notEqual(cacheKey({ ab: "c" }), cacheKey({ a: "bc" }));
  });
});

describe("cached", () => {
  let cache = "";
  beforeEach(() => {
    cache = mkdtempSync(join(tmpdir(), "e2e-cache-"));
  });
  afterEach(() => rmSync(cache, { recursive: true }));

  const write = (text: string) => (folder: string) => {
    writeFileSync(join(folder, "file"), text);
    return Promise.resolve();
  };

  it("builds once, and not again for the same inputs", async () => {
    const entry = await cached(cache, "thing", { v: "1" }, write("first"));
    assert.equal(await cached(cache, "thing", { v: "1" }, write("second")), entry);
    assert.equal(readFileSync(join(entry, "file"), "utf8"), "first");
  });

  it("leaves nothing of a build that failed half way, and builds again", async () => {
    const half = (folder: string): Promise<void> => {
      writeFileSync(join(folder, "file"), "half");
      return Promise.reject(new Error("no more"));
    };
    await assert.rejects(cached(cache, "thing", {}, half), /no more/);
    assert.deepEqual(readdirSync(cache), []);
    const entry = await cached(cache, "thing", {}, write("whole"));
    assert.equal(readFileSync(join(entry, "file"), "utf8"), "whole");
  });

  it("removes what a killed process left unfinished, and not what a living one builds", async () => {
    const dead = join(cache, ".unfinished-4194999-thing");
    const living = join(cache, `.unfinished-${String(process.ppid)}-thing`);
    mkdirSync(dead);
    mkdirSync(living);
    await cached(cache, "thing", {}, write(""));
    assert.equal(existsSync(dead), false);
    assert.equal(existsSync(living), true);
  });

  it("keeps the three entries of a name that were used last, and those of other names", async () => {
    const other = await cached(cache, "other", {}, write(""));
    const entries: string[] = [];
    for (const [index, v] of ["1", "2", "3", "4"].entries()) {
      const entry = await cached(cache, "thing", { v }, write(v));
      // Far apart and in the past, so that the next one is younger whatever the clock's grain.
      utimesSync(entry, index + 1, index + 1);
      entries.push(entry);
    }
    assert.deepEqual(
      entries.map((entry) => existsSync(entry)),
      [false, true, true, true],
    );
    assert.equal(entryOf(cache, "thing", { v: "4" }), entries[3]);
    assert.equal(existsSync(other), true);
  });
});
