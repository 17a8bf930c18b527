import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { openMemoryStore } from "../store/index.ts";
import type { StoreReader } from "../store/types.ts";
import { attachedLists } from "./attached-lists.ts";
import { LEASE_KEY_BYTES, writeAttachedKey } from "./keys.ts";
import { attachedKeys, Lease } from "./leases.ts";
import { bytes, lease, string } from "./testing/harness.ts";

interface World {
  readonly reader: StoreReader;
  /** Scans so far. */
  readonly scans: () => number;
}

/** Leases 1, 2, ... with so many keys each. */
function world(keysOf: readonly number[], namespaceId = 1): World {
  const store = openMemoryStore();
  store.write((batch) => {
    for (const [at, keys] of keysOf.entries()) {
      for (let key = 0; key < keys; key += 1) {
        const name = bytes(`k${String(key).padStart(4, "0")}`);
        const row = new Uint8Array(LEASE_KEY_BYTES + name.length);
        writeAttachedKey(row, 0, { namespaceId, leaseId: lease(at + 1), key: name });
        batch.put("lease-keys", row, new Uint8Array(0));
      }
    }
  });
  let scans = 0;
  const reader: StoreReader = {
    get: (keyspace, key) => store.get(keyspace, key),
    getMany: (keyspace, keys) => store.getMany(keyspace, keys),
    scan: (keyspace, options) => {
      scans += 1;
      return store.scan(keyspace, options);
    },
  };
  return { reader, scans: () => scans };
}

function counted(id: number, keys: number): Lease {
  const one = new Lease(1, lease(id));
  one.exists = true;
  one.keys = keys;
  return one;
}

describe("the keys of leases that end together", () => {
  it("are those that each lease lists alone, whoever stands in between", () => {
    const keysOf = fc.array(fc.oneof(fc.constant(0), fc.constant(1), fc.nat(4), fc.nat(200)), {
      minLength: 1,
      maxLength: 60,
    });
    const property = fc.property(
      keysOf,
      fc.infiniteStream(fc.boolean()),
      fc.nat(2),
      (counts, ends, stale) => {
        const { reader } = world(counts);
        const ending = counts.flatMap((keys, at) =>
          ends.next().value === true ? [counted(at + 1, keys)] : [],
        );
        // In a batch that detached some keys already the store lists more than the lease counts.
        for (const one of ending) one.keys = Math.max(Math.min(1, one.keys), one.keys - stale);
        const lists = attachedLists(1, ending, reader);
        for (const { leaseId, keys } of ending) {
          const alone = keys === 0 ? [] : attachedKeys(1, leaseId, reader).map(string);
          assert.deepEqual((lists.get(leaseId) ?? []).map(string), alone, `lease ${leaseId}`);
        }
      },
    );
    fc.assert(property, { numRuns: 300 });
  });

  it("of neighbours are read in a few stretches", () => {
    const { reader, scans } = world(new Array<number>(512).fill(1));
    const ending = Array.from({ length: 512 }, (_, at) => counted(at + 1, 1));
    assert.equal(attachedLists(1, ending, reader).size, 512);
    assert.ok(scans() <= 6, `${String(scans())} scans`);
  });

  it("cost at most one page of strangers' rows beside a scan for each", () => {
    const { reader, scans } = world(Array.from({ length: 300 }, (_, at) => (at % 30 === 0 ? 1 : 100)));
    const ending = Array.from({ length: 10 }, (_, at) => counted(at * 30 + 1, 1));
    assert.equal(attachedLists(1, ending, reader).size, 10);
    assert.ok(scans() <= 11, `${String(scans())} scans`);
  });
});
