export { openRocksStore, type RocksStoreOptions } from "./rocks-store.ts";
export { writeBack, type WriteBackOptions } from "./write-back.ts";
export { openMemoryStore, type MemoryStore, type MemoryStoreOptions } from "./memory-store.ts";
export {
  createSnapshotSink,
  createSnapshotSource,
  type Pause,
  type StateSink,
  type StateSinkOptions,
  type StateSource,
  type StateSourceOptions,
  type StateSummary,
} from "./snapshot-stream.ts";
export {
  openGenerations,
  type Generations,
  type GenerationsOptions,
  type PendingGeneration,
} from "./generations.ts";
export { nodeGenerationFiles, type GenerationFiles } from "./generation-files.ts";
export { openMemoryGenerations, type MemoryGenerations } from "./memory-generations.ts";
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
