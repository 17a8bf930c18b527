import assert from "node:assert/strict";
import { it } from "node:test";
import { crc32 } from "node:zlib";
import type { LogIndex, Term } from "../raft/types.ts";
import { openMemoryStore } from "../store/index.ts";
import { createCommandEncoder, createMachine } from "./index.ts";
import type { Applied } from "./types.ts";

const bytes = (text: string): Uint8Array => Buffer.from(text);

/** A fresh cell that applies two puts and a deletion. */
function applyStory(wantEvents: boolean): { readonly applied: Applied; readonly digest: number } {
  const store = openMemoryStore();
  const machine = createMachine({ crc32 });
  const write = (rows: Applied["mutations"]): void =>
    store.write((batch) => {
      for (const { keyspace, key, value } of rows) {
        if (value === undefined) batch.delete(keyspace, key);
        else batch.put(keyspace, key, value);
      }
    });
  write(machine.bootstrap({ appliedIndex: 1 as LogIndex }));
  machine.load(store);
  const encoder = createCommandEncoder();
  const client = { kind: "client", namespaceId: 1, epoch: 0, identity: { kind: "none" } } as const;
  encoder.add({ ...client, operation: { kind: "put", key: bytes("a"), value: bytes("1") } });
  encoder.add({ ...client, operation: { kind: "put", key: bytes("b"), value: bytes("2") } });
  encoder.add({ ...client, operation: { kind: "delete", range: { key: bytes("a") } } });
  const entry = { index: 2 as LogIndex, term: 1 as Term, data: encoder.finish(1) };
  const applied = machine.apply([entry], store, wantEvents);
  return { applied, digest: machine.digest.hash };
}

it("events are made only when somebody wants them, and make no other difference", () => {
  const watched = applyStory(true);
  const unwatched = applyStory(false);
  assert.equal(watched.applied.events.length, 3);
  assert.equal(unwatched.applied.events.length, 0);
  assert.equal(unwatched.digest, watched.digest);
  assert.deepEqual(unwatched.applied.mutations, watched.applied.mutations);
  assert.deepEqual(unwatched.applied.entries, watched.applied.entries);
});
