import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { Revision } from "@lockstep/gateway/coordinator";
import { KeyTable } from "./key-table.ts";
import { Watcher } from "./watcher.ts";

const ignore = (): void => undefined;

function watcher(key: string): Watcher {
  return new Watcher({
    scope: { id: 1, commands: { cancel: ignore, resume: ignore, requestProgress: ignore } },
    range: { key: Buffer.from(key, "latin1") },
    sink: { events: () => true, progress: ignore, end: ignore },
    ...{ returnPrevious: false, omit: undefined, beginsLater: false },
    ...{ next: 1 as Revision, createdRevision: 0 as Revision },
  });
}

describe("watchers by key", () => {
  it("are found, replaced and gone like in a map", () => {
    const key = fc.oneof(fc.nat(30).map(String), fc.string({ unit: "binary-ascii", maxLength: 4 }));
    const step = fc.record({ kind: fc.constantFrom("set", "set", "delete", "group"), key });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 1_500, size: "max" }), fc.integer(), (steps, seed) => {
        const table = new KeyTable(seed);
        const twin = new Map<string, Watcher | Watcher[]>();
        for (const { kind, key: name } of steps) {
          if (kind === "delete") {
            table.delete(name);
            twin.delete(name);
          } else {
            const group = kind === "set" ? watcher(name) : [watcher(name), watcher(name)];
            table.set(name, group);
            twin.set(name, group);
          }
          assert.equal(table.get(name), twin.get(name));
          assert.equal(table.size, twin.size);
        }
        for (const [name, group] of twin) assert.equal(table.get(name), group);
        assert.deepEqual(new Set(table.values()), new Set(twin.values()));
      }),
      { numRuns: 100 },
    );
  });

  it("stay spread when there are many with long common beginnings and ends", () => {
    const table = new KeyTable(7);
    const names = Array.from({ length: 50_000 }, (_, n) => `/registry/pods/default/pod-${n * 4096}/status`);
    for (const name of names) table.set(name, watcher(name));
    const begin = performance.now();
    for (const name of names) assert.ok(table.get(name) !== undefined);
    const microseconds = ((performance.now() - begin) * 1000) / names.length;
    assert.ok(microseconds < 20, `${microseconds} us a look-up`);
  });
});
