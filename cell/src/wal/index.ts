export { openWal } from "./open.ts";
export { createNodeDisk } from "./node-disk.ts";
export { inspectWal, verifyWal } from "./inspect.ts";
export type { WalInspection, WalProblem, WalReport } from "./inspect.ts";
export type { SegmentHead, WalRecord } from "./format.ts";
export { WalError } from "./error.ts";
export type { WalErrorCode, WalPosition } from "./error.ts";
export type {
  Disk,
  DiskFile,
  LogPosition,
  Wal,
  WalIdentity,
  WalOptions,
  WalRecovery,
  WalWrite,
} from "./types.ts";
