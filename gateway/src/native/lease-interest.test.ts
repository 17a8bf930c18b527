import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { LeaseEnd, LeaseId, Revision } from "../coordinator/index.ts";
import type { LeaseListener } from "./lease-interest.ts";
import { LeaseInterest } from "./lease-interest.ts";

class Listener implements LeaseListener {
  closed = false;
  readonly told: string[] = [];

  leaseEnded(end: LeaseEnd): void {
    this.told.push(`${end.namespace}/${end.leaseId}`);
  }
}

function end(namespace: string, leaseId: string): LeaseEnd {
  return { namespace, leaseId: leaseId as LeaseId, cause: "client", revision: 1 as Revision };
}

const id = (text: string): LeaseId => text as LeaseId;

describe("lease interest", () => {
  it("tells each stream once, inside the lease's namespace only", () => {
    const interest = new LeaseInterest(10);
    const [one, two, other] = [new Listener(), new Listener(), new Listener()];
    for (let i = 0; i < 3; i += 1) interest.add("a", id("5"), one);
    interest.add("a", id("5"), two);
    interest.add("b", id("5"), other);
    assert.equal(interest.size, 2);
    interest.ended(end("a", "5"));
    interest.ended(end("a", "5"));
    assert.deepEqual([one.told, two.told, other.told], [["a/5"], ["a/5"], []]);
    assert.equal(interest.size, 1);
  });

  it("follows a lease from a closed stream to the one that renews it next", () => {
    const interest = new LeaseInterest(10);
    const [before, after] = [new Listener(), new Listener()];
    interest.add("a", id("5"), before);
    before.closed = true;
    interest.add("a", id("5"), after);
    interest.ended(end("a", "5"));
    assert.deepEqual([before.told, after.told], [[], ["a/5"]]);
  });

  it("keeps the newest eight streams of one lease", () => {
    const interest = new LeaseInterest(10);
    const listeners = Array.from({ length: 10 }, () => new Listener());
    for (const listener of listeners) interest.add("a", id("5"), listener);
    interest.ended(end("a", "5"));
    assert.deepEqual(
      listeners.map(({ told }) => told.length),
      [0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
    );
  });

  it("at its bound takes no new lease until streams closed, then makes room from theirs", () => {
    const interest = new LeaseInterest(2);
    const [first, second, third] = [new Listener(), new Listener(), new Listener()];
    interest.add("a", id("1"), first);
    interest.add("a", id("2"), second);
    interest.add("b", id("3"), third);
    assert.equal(interest.size, 2);
    interest.ended(end("b", "3"));
    assert.deepEqual(third.told, []);
    first.closed = true;
    interest.listenerClosed(first);
    interest.add("b", id("3"), third);
    assert.equal(interest.size, 2);
    interest.ended(end("b", "3"));
    interest.ended(end("a", "2"));
    assert.deepEqual([third.told, second.told], [["b/3"], ["a/2"]]);
    assert.equal(interest.size, 0);
  });

  it("keeps a namespace's table in place when making room emptied it", () => {
    const interest = new LeaseInterest(1);
    const [first, second] = [new Listener(), new Listener()];
    interest.add("a", id("1"), first);
    first.closed = true;
    interest.listenerClosed(first);
    interest.add("a", id("2"), second);
    interest.ended(end("a", "2"));
    assert.deepEqual(second.told, ["a/2"]);
    assert.equal(interest.size, 0);
  });

  it("tells whom a list for each lease would tell, whatever opens, closes and ends", () => {
    const step = fc.record({
      kind: fc.constantFrom("add", "add", "add", "end", "close"),
      namespace: fc.constantFrom("a", "b"),
      lease: fc.integer({ min: 1, max: 12 }),
      stream: fc.integer({ min: 0, max: 11 }),
    });
    const property = fc.property(fc.array(step, { maxLength: 400, size: "max" }), (steps) => {
      const interest = new LeaseInterest(1_000);
      const streams = Array.from({ length: 12 }, () => new Listener());
      const twin = new Map<string, Listener[]>();
      for (const { kind, namespace, lease, stream } of steps) {
        const name = `${namespace}/${lease}`;
        const listener = streams[stream]!;
        if (kind === "add") {
          interest.add(namespace, id(String(lease)), listener);
          const listeners = twin.get(name) ?? [];
          if (listeners.includes(listener)) continue;
          const open = listeners.filter((one) => !one.closed);
          twin.set(name, [...open.slice(-7), listener]);
        } else if (kind === "close") {
          listener.closed = true;
          interest.listenerClosed(listener);
          streams[stream] = new Listener();
        } else {
          const told = (twin.get(name) ?? []).filter((one) => !one.closed);
          const before = new Map([...told, ...streams].map((one) => [one, one.told.length]));
          interest.ended(end(namespace, String(lease)));
          twin.delete(name);
          for (const [one, count] of before) {
            assert.equal(one.told.length - count, told.includes(one) ? 1 : 0, name);
          }
        }
        assert.equal(interest.size, twin.size);
      }
    });
    fc.assert(property, { numRuns: 200 });
  });
});
