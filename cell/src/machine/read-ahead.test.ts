import assert from "node:assert/strict";
import { test } from "node:test";
import type { StoreReader } from "../store/types.ts";
import { bytes, get, Member, put, remove, string } from "./testing/harness.ts";

/** A member that has just started, and a reader of its store that counts look-ups. */
function cold(): { member: Member; reader: StoreReader; lookUps: () => number } {
  const member = new Member();
  for (let n = 0; n < 100; n += 1) member.do(put(`k${String(n)}`, `v${String(n)}`));
  member.do(remove("k7"));
  member.restart();
  let lookUps = 0;
  const { store } = member;
  const reader: StoreReader = {
    get: (keyspace, key) => {
      lookUps += 1;
      return store.get(keyspace, key);
    },
    getMany: (keyspace, keys) => {
      lookUps += 1;
      return store.getMany(keyspace, keys);
    },
    scan: (keyspace, options) => store.scan(keyspace, options),
  };
  return { member, reader, lookUps: () => lookUps };
}

function valueOf(member: Member, key: string, reader: StoreReader): string | undefined {
  const result = member.machine.range(1, get(key), reader);
  assert.ok("kvs" in result);
  return result.kvs[0] === undefined ? undefined : string(result.kvs[0].value);
}

test("reads that wait together cost three look-ups, and see what each alone would see", () => {
  const { member, reader, lookUps } = cold();
  const keys = Array.from({ length: 110 }, (_, n) => `k${String(n)}`);
  for (const key of keys) member.machine.expectRead("default", bytes(key));
  const read = keys.map((key) => valueOf(member, key, reader));
  const expected = keys.map((_, n) => (n >= 100 || n === 7 ? undefined : `v${String(n)}`));
  assert.deepEqual(read, expected);
  // Live rows, tombstones of those that are not there, values.
  assert.equal(lookUps(), 3);
});

test("what is written between the fetch and the read is read", () => {
  const { member, reader } = cold();
  for (const key of ["k1", "k2", "k3"]) member.machine.expectRead("default", bytes(key));
  assert.equal(valueOf(member, "k1", reader), "v1");
  member.do(put("k2", "newer"));
  member.do(remove("k3"));
  assert.equal(valueOf(member, "k2", reader), "newer");
  assert.equal(valueOf(member, "k3", reader), undefined);
});

test("a hint for a namespace that is not there, or that is never followed, does nothing", () => {
  const { member, reader, lookUps } = cold();
  member.machine.expectRead("nowhere", bytes("k1"));
  for (let n = 0; n < 5_000; n += 1) member.machine.expectRead("default", bytes(`k${String(n % 100)}`));
  assert.equal(valueOf(member, "k99", reader), "v99");
  assert.ok(lookUps() <= 3);
});
