export { createMachine } from "./machine.ts";
export type { LoadableMachine, MachineOptions } from "./machine.ts";
export type { Crc32 } from "./sink.ts";
export type { BootstrapOptions } from "./state.ts";
export { FORMAT_VERSION_MAX } from "./state.ts";
export { DEFAULT_SETTINGS } from "./settings.ts";
export { createCommandEncoder, decodeCommandBatch } from "./codec/commands.ts";
export {
  decodeFailure,
  decodeOutcome,
  decodeReadOperation,
  decodeReadResult,
  decodeWriteOperation,
  encodeFailure,
  encodeOutcome,
  encodeReadOperation,
  encodeReadResult,
  encodeWriteOperation,
} from "./codec/whole.ts";
export { DecodeError } from "./codec/primitives.ts";
export type {
  Applied,
  AppliedEntry,
  CheckpointCommand,
  ClientCommand,
  Command,
  CommandBatch,
  CommandEncoder,
  CommandOutcome,
  CreateNamespaceCommand,
  DeleteNamespaceCommand,
  Digest,
  ExpireCommand,
  ExternalRows,
  FormatVersionCommand,
  LeaseChange,
  LeaseRecord,
  Machine,
  MachineEntry,
  MachineEvent,
  MachineSettings,
  NamespaceId,
  NamespaceInfo,
  RetainCommand,
  RetentionPolicy,
  RevisionEvents,
  RowMutation,
} from "./types.ts";
