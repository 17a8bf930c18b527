import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { WatchTable } from "./watch-table.ts";

describe("the watches of one stream", () => {
  it("are found by number and gone like in a map, whatever numbers a client chooses", () => {
    const id = fc.oneof(
      fc.nat(40),
      fc.nat(20).map((n) => n * 2 ** 32),
      fc.maxSafeNat(),
    );
    const step = fc.record({ kind: fc.constantFrom("add", "add", "delete", "clear"), id, rare: fc.nat(30) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 600, size: "max" }), fc.integer(), (steps, seed) => {
        const table = new WatchTable<{ readonly id: number }>(seed);
        const twin = new Map<number, { readonly id: number }>();
        for (const one of steps) {
          if (one.kind === "add" && !twin.has(one.id)) {
            const watch = { id: one.id };
            table.add(watch);
            twin.set(one.id, watch);
          } else if (one.kind === "delete") {
            table.delete(one.id);
            twin.delete(one.id);
          } else if (one.kind === "clear" && one.rare === 0) {
            table.clear();
            twin.clear();
          }
          assert.equal(table.get(one.id), twin.get(one.id));
          assert.equal(table.has(one.id), twin.has(one.id));
          assert.equal(table.size, twin.size);
        }
        for (const [number, watch] of twin) assert.equal(table.get(number), watch);
        assert.deepEqual(new Set(table.values()), new Set(twin.values()));
      }),
      { numRuns: 200 },
    );
  });
});
