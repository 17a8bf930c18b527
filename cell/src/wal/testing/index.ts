export { MemoryDisk } from "./memory-disk.ts";
export type { DiskOperation, MemoryDiskOptions } from "./memory-disk.ts";
export { diskFault } from "./memory-volume.ts";
export type { CrashMode } from "./memory-volume.ts";
