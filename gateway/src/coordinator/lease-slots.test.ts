import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { LeaseSlots } from "./lease-slots.ts";
import type { LeaseId } from "./operations.ts";

const id = (value: number | bigint | string): LeaseId => String(value) as LeaseId;
const LARGEST = 2n ** 63n - 1n;

describe("slots of leases", () => {
  it("are found again by scope and id, like in a map, whatever is added and removed", () => {
    const anyId = fc.oneof(fc.bigInt({ min: 1n, max: 60n }), fc.bigInt({ min: 1n, max: LARGEST }));
    const step = fc.record({
      kind: fc.constantFrom("add", "add", "add", "remove", "look", "clear"),
      scope: fc.integer({ min: 0, max: 3 }),
      id: anyId,
      pick: fc.nat(),
    });
    const property = fc.property(
      fc.array(step, { maxLength: 600, size: "max" }),
      fc.integer(),
      (steps, seed) => {
        let capacity = 1024;
        const slots = new LeaseSlots(seed, (grown) => (capacity = grown));
        const twin = new Map<string, number>();
        for (const [at, one] of steps.entries()) {
          const name = `${one.scope}/${one.id}`;
          if (one.kind === "add" && !twin.has(name)) {
            const slot = slots.add(one.scope, id(one.id));
            assert.ok(slot < capacity && ![...twin.values()].includes(slot), "a slot of its own");
            twin.set(name, slot);
          } else if (one.kind === "remove" && twin.size > 0) {
            const [gone, slot] = [...twin][one.pick % twin.size]!;
            slots.remove(slot);
            twin.delete(gone);
            assert.equal(slots.idOf(slot), undefined);
          } else if (one.kind === "clear" && at % 7 === 0) {
            slots.clear();
            twin.clear();
          }
          assert.equal(slots.slot(one.scope, id(one.id)), twin.get(name));
          assert.equal(slots.count, twin.size);
        }
        for (const [name, slot] of twin) {
          const [scope, text] = name.split("/");
          assert.equal(slots.slot(Number(scope), id(text!)), slot);
          assert.equal(slots.idOf(slot), text);
          assert.equal(slots.scopeOf(slot), Number(scope));
        }
        for (const scope of [0, 1, 2, 3]) {
          const own = [...twin.keys()].filter((name) => name.startsWith(`${scope}/`));
          assert.equal(slots.countOf(scope), own.length);
        }
      },
    );
    fc.assert(property, { numRuns: 100 });
  });

  it("hold ids of every length, digit for digit, and nothing that is no id", () => {
    const slots = new LeaseSlots(1, () => undefined);
    const ids = [
      1n,
      9n,
      2n ** 32n - 1n,
      2n ** 32n,
      2n ** 53n - 1n,
      2n ** 53n,
      10n ** 15n,
      10n ** 18n,
      LARGEST,
    ];
    for (let power = 1n; power < LARGEST; power *= 7n) ids.push(power * 3n > LARGEST ? power : power * 3n);
    const texts = [...new Set(ids.map(String))];
    const held = texts.map((text) => slots.add(7, id(text)));
    assert.deepEqual(
      held.map((slot) => slots.idOf(slot)),
      texts,
    );
    assert.deepEqual(
      texts.map((text) => slots.slot(7, id(text))),
      held,
    );
    const wrong = [
      "",
      "-1",
      "01",
      "1.5",
      "1e3",
      " 1",
      "x",
      String(LARGEST + 1n),
      "9".repeat(19),
      "1".repeat(20),
    ];
    for (const text of wrong) {
      assert.equal(slots.slot(7, id(text)), undefined, text);
      assert.throws(() => slots.add(7, id(text)), /not the id of a lease/, text);
    }
  });

  it("stay fast and small with 300,000 leases that come and go", () => {
    const slots = new LeaseSlots(3, () => undefined);
    for (let n = 0; n < 300_000; n += 1) assert.equal(slots.add(1, id(n * 1024)), n);
    for (let n = 0; n < 300_000; n += 2) slots.remove(n);
    for (let n = 0; n < 150_000; n += 1) slots.add(2, id(n));
    assert.equal(slots.count, 300_000);
    assert.equal(slots.slotsUsed, 300_000, "slots are used again");
    assert.deepEqual([slots.countOf(1), slots.countOf(2)], [150_000, 150_000]);
    for (let n = 0; n < 300_000; n += 1) {
      assert.equal(slots.slot(1, id(n * 1024)), n % 2 === 0 ? undefined : n);
    }
  });
});
