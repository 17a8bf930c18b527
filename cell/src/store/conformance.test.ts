import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { storeConformance } from "./conformance.ts";
import { openMemoryStore } from "./memory-store.ts";
import { openRocksStore } from "./rocks-store.ts";
import { writeBack } from "./write-back.ts";

storeConformance({
  name: "RocksDB",
  open: async () => {
    const directory = await mkdtemp(join(tmpdir(), "lockstep-store-"));
    const store = await openRocksStore(directory, { now: () => performance.now() });
    return { store, dispose: () => rm(directory, { recursive: true }) };
  },
});

storeConformance({
  name: "memory",
  open: () => Promise.resolve({ store: openMemoryStore(), dispose: () => Promise.resolve() }),
});

for (const rowsMax of [1, 3, 2048]) {
  storeConformance({
    name: `written back after ${rowsMax} rows`,
    open: () =>
      Promise.resolve({ store: writeBack(openMemoryStore(), { rowsMax }), dispose: () => Promise.resolve() }),
  });
}
