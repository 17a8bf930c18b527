import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { INFINITY_KEY, IntervalIndex } from "./interval-index.ts";

const key = fc.array(fc.constantFrom("\u0000", "a", "b", "\u00ff"), { maxLength: 4 }).map((l) => l.join(""));
const end = fc.oneof({ weight: 5, arbitrary: key }, { weight: 1, arbitrary: fc.constant(INFINITY_KEY) });
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("add" as const), start: key, end }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("delete" as const), pick: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("stab" as const), key }) },
);

describe("the interval index", () => {
  it("finds what a list of intervals finds", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const index = new IntervalIndex<string>();
        const twin = new Map<string, { start: string; end: string }>();
        for (const one of steps) {
          if (one.kind === "add") {
            const name = JSON.stringify([one.start, one.end]);
            assert.equal(index.get(one.start, one.end), twin.has(name) ? name : undefined);
            if (!twin.has(name)) index.add(one.start, one.end, name);
            twin.set(name, one);
          } else if (one.kind === "delete") {
            const names = [...twin.keys()];
            const name = names[one.pick % Math.max(1, names.length)];
            if (name === undefined) continue;
            index.delete(twin.get(name)!.start, twin.get(name)!.end);
            twin.delete(name);
          } else {
            const found: string[] = [];
            index.stab(one.key, (value) => found.push(value));
            const expected = [...twin]
              .filter(([, i]) => i.start <= one.key && one.key < i.end)
              .map(([n]) => n);
            assert.deepEqual(found.sort(), expected.sort());
          }
          assert.equal(index.size, twin.size);
        }
        assert.deepEqual(index.values().sort(), [...twin.keys()].sort());
      }),
      { numRuns: 400 },
    );
  });

  it("stays shallow when intervals come in order", () => {
    const index = new IntervalIndex<number>();
    for (let i = 0; i < 50_000; i++) {
      const name = String(i).padStart(8, "0");
      index.add(name, `${name}~`, i);
    }
    const found: number[] = [];
    index.stab("00012345x", (value) => found.push(value));
    assert.deepEqual(found, [12_345]);
    for (let i = 0; i < 50_000; i++) {
      const name = String(i).padStart(8, "0");
      index.delete(name, `${name}~`);
    }
    assert.equal(index.size, 0);
  });
});
