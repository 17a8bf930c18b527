/**
 * What etcd's clients must be told: they restore their errors from the text, so each is a code with the exact words
 * (research 3g).
 */
import type { Failure } from "../coordinator/index.ts";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcStatus } from "../grpc/call.ts";

const { INVALID_ARGUMENT, OUT_OF_RANGE, RESOURCE_EXHAUSTED, NOT_FOUND, FAILED_PRECONDITION } = GrpcCode;
const { UNAVAILABLE, DATA_LOSS, PERMISSION_DENIED, CANCELLED, UNIMPLEMENTED, INTERNAL, UNKNOWN } = GrpcCode;

function etcd(code: GrpcCode, text: string): GrpcStatus {
  return { code, details: `etcdserver: ${text}` };
}

type EtcdStatusName =
  | "keyNotProvided"
  | "keyNotFound"
  | "valueProvided"
  | "leaseProvided"
  | "tooManyOperations"
  | "duplicateKey"
  | "invalidSortOption"
  | "requestTooLarge"
  | "compacted"
  | "futureRevision"
  | "leaseTtlTooLarge"
  | "noSpace"
  | "tooManyRequests"
  | "leaseNotFound"
  | "memberNotFound"
  | "leaseExists"
  | "authNotEnabled"
  | "notLeader"
  | "badTransferee"
  | "learnerNotReady"
  | "notALearner"
  | "unhealthyCluster"
  | "corrupt"
  | "permissionDenied"
  | "watchCancelled"
  | "noLeader"
  | "leaderChanged"
  | "stopped"
  | "timedOut"
  | "timedOutLeaderFailure"
  | "electionNotLeader"
  | "electionNoLeader"
  | "electionWithoutLeader"
  | "badUrls"
  | "urlsExist";

/** Statuses with the words of etcd's server. */
export const ETCD: Readonly<Record<EtcdStatusName, GrpcStatus>> = {
  keyNotProvided: etcd(INVALID_ARGUMENT, "key is not provided"),
  keyNotFound: etcd(INVALID_ARGUMENT, "key not found"),
  valueProvided: etcd(INVALID_ARGUMENT, "value is provided"),
  leaseProvided: etcd(INVALID_ARGUMENT, "lease is provided"),
  tooManyOperations: etcd(INVALID_ARGUMENT, "too many operations in txn request"),
  duplicateKey: etcd(INVALID_ARGUMENT, "duplicate key given in txn request"),
  invalidSortOption: etcd(INVALID_ARGUMENT, "invalid sort option"),
  requestTooLarge: etcd(INVALID_ARGUMENT, "request is too large"),
  compacted: etcd(OUT_OF_RANGE, "mvcc: required revision has been compacted"),
  futureRevision: etcd(OUT_OF_RANGE, "mvcc: required revision is a future revision"),
  badUrls: etcd(INVALID_ARGUMENT, "given member URLs are invalid"),
  urlsExist: etcd(FAILED_PRECONDITION, "Peer URLs already exists"),
  leaseTtlTooLarge: etcd(OUT_OF_RANGE, "too large lease TTL"),
  noSpace: etcd(RESOURCE_EXHAUSTED, "mvcc: database space exceeded"),
  tooManyRequests: etcd(RESOURCE_EXHAUSTED, "too many requests"),
  leaseNotFound: etcd(NOT_FOUND, "requested lease not found"),
  memberNotFound: etcd(NOT_FOUND, "member not found"),
  leaseExists: etcd(FAILED_PRECONDITION, "lease already exists"),
  authNotEnabled: etcd(FAILED_PRECONDITION, "authentication is not enabled"),
  notLeader: etcd(FAILED_PRECONDITION, "not leader"),
  badTransferee: etcd(FAILED_PRECONDITION, "bad leader transferee"),
  learnerNotReady: etcd(
    FAILED_PRECONDITION,
    "can only promote a learner member which is in sync with leader",
  ),
  notALearner: etcd(FAILED_PRECONDITION, "can only promote a learner member"),
  unhealthyCluster: etcd(UNAVAILABLE, "unhealthy cluster"),
  corrupt: etcd(DATA_LOSS, "corrupt cluster"),
  permissionDenied: etcd(PERMISSION_DENIED, "permission denied"),
  watchCancelled: etcd(CANCELLED, "watch canceled"),
  noLeader: etcd(UNAVAILABLE, "no leader"),
  leaderChanged: etcd(UNAVAILABLE, "leader changed"),
  stopped: etcd(UNAVAILABLE, "server stopped"),
  timedOut: etcd(UNAVAILABLE, "request timed out"),
  /** The change may have been made. */
  timedOutLeaderFailure: etcd(UNAVAILABLE, "request timed out, possibly due to previous leader failure"),
  // Errors of the recipes have no code of their own in etcd.
  electionNotLeader: { code: UNKNOWN, details: "election: not leader" },
  electionNoLeader: { code: UNKNOWN, details: "election: no leader" },
  electionWithoutLeader: { code: UNKNOWN, details: '"leader" field must be provided' },
};

/** Says something that etcd has no words for. */
export function lockstepStatus(code: GrpcCode, text: string): GrpcStatus {
  return { code, details: `lockstep: ${text}` };
}

/**
 * A refusal as etcd's clients know it. Whether a change was made may be unknown only with UNAVAILABLE: clients take
 * everything else for a definite answer.
 */
export function statusOf(failure: Failure): GrpcStatus {
  if (failure.outcome === "unknown") return ETCD.timedOutLeaderFailure;
  switch (failure.code) {
    case "request-too-large":
      return ETCD.requestTooLarge;
    case "too-many-operations":
      return ETCD.tooManyOperations;
    case "duplicate-key":
      return ETCD.duplicateKey;
    case "permission-denied":
      return ETCD.permissionDenied;
    case "compacted":
      return ETCD.compacted;
    case "future-revision":
      return ETCD.futureRevision;
    case "lease-not-found":
      return ETCD.leaseNotFound;
    case "lease-exists":
      return ETCD.leaseExists;
    case "key-not-found":
      return ETCD.keyNotFound;
    case "overloaded":
    case "too-many-streams":
    case "too-many-watches":
      return ETCD.tooManyRequests;
    case "quota-exceeded":
    case "no-space":
      return ETCD.noSpace;
    case "no-leader":
      return ETCD.noLeader;
    case "leader-changed":
      return ETCD.leaderChanged;
    case "deadline-exceeded":
      return ETCD.timedOut;
    case "not-leader":
      return ETCD.notLeader;
    case "diverged":
      return ETCD.corrupt;
    case "shutting-down":
      return ETCD.stopped;
    default:
      return unlikely(failure);
  }
}

function unlikely({ code, message }: Failure): GrpcStatus {
  switch (code) {
    case "invalid-argument":
    case "too-many-keys":
      return lockstepStatus(INVALID_ARGUMENT, message);
    case "namespace-not-found":
    case "wrong-epoch":
      return lockstepStatus(FAILED_PRECONDITION, message);
    case "unsupported":
      return lockstepStatus(UNIMPLEMENTED, message);
    default:
      return lockstepStatus(INTERNAL, message);
  }
}
