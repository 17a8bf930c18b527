import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { storeConformance } from "./conformance.ts";
import { openMemoryStore } from "./memory-store.ts";
import { openRocksStore } from "./rocks-store.ts";

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
