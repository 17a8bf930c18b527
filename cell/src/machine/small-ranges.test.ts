import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { compareBytes } from "./bytes.ts";
import { SMALL_RANGE_KEYS_MAX, SmallRanges } from "./small-ranges.ts";
import type { BoundedSpan } from "./small-ranges.ts";

const bytes = (text: string): Uint8Array => Buffer.from(text);
const span = (from: string, to: string): BoundedSpan => ({ from: bytes(from), to: bytes(to) });
const text = (keys: readonly Uint8Array[] | undefined): string[] | undefined =>
  keys?.map((key) => Buffer.from(key).toString());

/** The state that the ranges are held against: live keys of two namespaces. */
class Live {
  readonly keys = new Map<number, Set<string>>([
    [1, new Set()],
    [2, new Set()],
  ]);

  in(namespaceId: number, { from, to }: BoundedSpan): Uint8Array[] {
    return [...(this.keys.get(namespaceId) ?? [])]
      .map(bytes)
      .filter((key) => compareBytes(key, from) >= 0 && compareBytes(key, to) < 0)
      .sort(compareBytes);
  }

  read(namespaceId: number): (rest: BoundedSpan) => Uint8Array[] | undefined {
    return (rest) => {
      const keys = this.in(namespaceId, rest);
      return keys.length > SMALL_RANGE_KEYS_MAX ? undefined : keys;
    };
  }
}

const namespace = fc.constantFrom(1, 2);
const key = fc.string({ unit: fc.constantFrom("a", "b", "c"), minLength: 1, maxLength: 3 });
const step = fc.oneof(
  fc.record({ kind: fc.constant("toggle" as const), namespace, key, to: key }),
  fc.record({ kind: fc.constant("read" as const), namespace, key, to: key }),
);

test("whatever is created, deleted and read: what is known of a range is what is live in it", () => {
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 150 }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 3, max: 40 }),
      (steps, rangesMax, keysMax) => {
        const live = new Live();
        const ranges = new SmallRanges({ rangesMax, keysMax });
        for (const { kind, namespace: id, key: from, to } of steps) {
          const keys = live.keys.get(id) as Set<string>;
          if (kind === "toggle") {
            if (keys.delete(from)) ranges.deleted(id, bytes(from));
            else {
              keys.add(from);
              ranges.created(id, bytes(from));
            }
            continue;
          }
          const asked = span(from, to);
          if (compareBytes(asked.from, asked.to) >= 0) continue;
          const known = ranges.find(id, asked, live.read(id));
          if (known === undefined) ranges.learn(id, asked, live.in(id, asked));
          else assert.deepEqual(text(known), text(live.in(id, asked)));
          assert.ok(ranges.size <= rangesMax);
        }
      },
    ),
    { numRuns: 300 },
  );
});

test("a range whose beginning is known is read on from there only", () => {
  const ranges = new SmallRanges();
  ranges.learn(1, span("q/", "q/3"), [bytes("q/1")]);
  const read: BoundedSpan[] = [];
  const found = ranges.find(1, span("q/", "q/9"), (rest) => {
    read.push(rest);
    return [bytes("q/5")];
  });
  assert.deepEqual(text(found), ["q/1", "q/5"]);
  assert.deepEqual(
    read.map(({ from, to }) => text([from, to])),
    [["q/3", "q/9"]],
  );
  assert.deepEqual(text(ranges.find(1, span("q/2", "q/8"), () => assert.fail("all of it is known"))), [
    "q/5",
  ]);
});

test("a range that grows too large is forgotten, and another namespace's keys do not count", () => {
  const ranges = new SmallRanges();
  ranges.learn(1, span("a", "b"), []);
  const unknown = (): undefined => undefined;
  for (let n = 0; n < SMALL_RANGE_KEYS_MAX; n += 1) {
    ranges.created(1, bytes(`a${String(n).padStart(3, "0")}`));
    ranges.created(2, bytes(`a${String(n)}`));
  }
  assert.equal(ranges.find(1, span("a", "b"), unknown)?.length, SMALL_RANGE_KEYS_MAX);
  ranges.created(1, bytes("a999"));
  assert.equal(ranges.find(1, span("a", "b"), unknown), undefined);
});
