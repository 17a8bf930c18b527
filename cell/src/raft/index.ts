import { assert } from "../invariant.ts";
import { Node } from "./node.ts";
import type { RaftInitialState, RaftNode, RaftOptions } from "./types.ts";

const MEBIBYTE = 1024 * 1024;

/**
 * The consensus core of one member.
 *
 * @throws InvariantError when what was recovered contradicts itself (R9, R55, W9, W12), which means lost data, or when
 * an option makes no sense
 */
export function createRaft(
  options: Partial<RaftOptions> & Pick<RaftOptions, "id" | "random">,
  initial: RaftInitialState,
): RaftNode {
  const full: RaftOptions = {
    electionTimeoutTicks: 10,
    heartbeatTicks: 1,
    appendBytesMax: MEBIBYTE,
    inflightMessagesMax: 256,
    inflightBytesMax: 16 * MEBIBYTE,
    uncommittedBytesMax: 64 * MEBIBYTE,
    applyBytesMax: 16 * MEBIBYTE,
    lazyCommit: false,
    ...options,
  };
  assert(Number.isSafeInteger(full.id) && full.id > 0, "a member id is a positive integer", { id: full.id });
  assert(full.heartbeatTicks >= 1, "heartbeats are at least one tick apart");
  assert(full.electionTimeoutTicks > full.heartbeatTicks, "an election timeout outlasts a heartbeat");
  assert(full.inflightBytesMax >= full.appendBytesMax, "the window takes a whole append");
  return new Node(full, initial);
}

export {
  ConfigurationError,
  EMPTY_CONFIGURATION,
  applyChange,
  isJoint,
  isMember,
  isVoter,
  validateChange,
} from "./configuration.ts";
export type { ConfigurationErrorCode } from "./configuration.ts";
export {
  decodeConfiguration,
  decodeConfigurationChange,
  encodeConfiguration,
  encodeConfigurationChange,
} from "./configuration-codec.ts";
export { NO_MEMBER } from "./types.ts";
export type {
  Append,
  AppendMessage,
  AppendResponse,
  Configuration,
  ConfigurationChange,
  ConfigurationStep,
  Entry,
  EntryKind,
  HardState,
  HeartbeatMessage,
  HeartbeatResponse,
  LogIndex,
  MemberId,
  Message,
  ProgressView,
  ProposalRefusal,
  ProposalResult,
  RaftInitialState,
  RaftNode,
  RaftOptions,
  RaftStatus,
  ReadIndexMessage,
  ReadIndexResponse,
  ReadState,
  Ready,
  Role,
  SnapshotMessage,
  SnapshotMetadata,
  Term,
  TimeoutNowMessage,
  VoteMessage,
  VoteResponse,
} from "./types.ts";
