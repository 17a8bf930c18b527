export { openRocksStore, type RocksStoreOptions } from "./rocks-store.ts";
export { openMemoryStore, type MemoryStore, type MemoryStoreOptions } from "./memory-store.ts";
export { StoreError, type StoreErrorCode } from "./errors.ts";
export { nodeBarrierFiles, type BarrierFiles } from "./barrier.ts";
export { KEY_BYTES_MAX } from "./bounds.ts";
export { KEYSPACES } from "./types.ts";
export type {
  Keyspace,
  Row,
  ScanOptions,
  Store,
  StoreReader,
  StoreStatistics,
  StoreView,
  WriteBatch,
} from "./types.ts";
