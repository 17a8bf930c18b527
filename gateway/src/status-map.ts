import { GrpcCode } from "./grpc/call.ts";
import type { GrpcCodeName } from "./grpc/call.ts";
import type { FailureCode } from "./coordinator/index.ts";

/** How one kind of refusal looks at each door, and what it means. docs/errors.md is rendered from this table. */
export interface StatusEntry {
  readonly http: number;
  readonly grpc: GrpcCodeName;
  /** Problem title. */
  readonly title: string;
  /** Outcomes this can come with. */
  readonly outcome: string;
  readonly meaning: string;
  readonly remedy: string;
}

const NOT_APPLIED = "not-applied";

export const STATUS_MAP: Readonly<Record<FailureCode, StatusEntry>> = {
  "invalid-argument": {
    http: 400,
    grpc: "INVALID_ARGUMENT",
    title: "The request is not valid",
    outcome: NOT_APPLIED,
    meaning: "A field, header, key or body is malformed or out of its range.",
    remedy:
      "Correct the request; the message names what is wrong. Sending it again unchanged cannot succeed.",
  },
  "request-too-large": {
    http: 413,
    grpc: "INVALID_ARGUMENT",
    title: "The request is too large",
    outcome: "not-applied; applied when only the answer was too large",
    meaning:
      "A key, value, transaction or whole request is above its limit, or an answer would not fit a frame.",
    remedy:
      "Send less at a time. With outcome `applied` the change was made: read its effect instead of repeating it.",
  },
  "too-many-operations": {
    http: 413,
    grpc: "INVALID_ARGUMENT",
    title: "The request has too many operations",
    outcome: NOT_APPLIED,
    meaning: "A transaction has more compares or operations, or a renewal more leases, than the limit.",
    remedy: "Split the request.",
  },
  "duplicate-key": {
    http: 400,
    grpc: "INVALID_ARGUMENT",
    title: "A transaction writes one key twice",
    outcome: NOT_APPLIED,
    meaning: "One branch of a transaction puts the same key more than once.",
    remedy: "Keep only the last put of the key.",
  },
  "permission-denied": {
    http: 403,
    grpc: "PERMISSION_DENIED",
    title: "The caller may not do this",
    outcome: NOT_APPLIED,
    meaning:
      "The caller's certificate holds, but it names nobody of this cell, or somebody who may not make this call.",
    remedy:
      "Use a certificate that names this cell and the right kind of caller (docs/security.md); the message names what is wrong.",
  },
  compacted: {
    http: 410,
    grpc: "OUT_OF_RANGE",
    title: "The revision is compacted",
    outcome: NOT_APPLIED,
    meaning: "History before `compactRevision` is gone, and the request asked for some of it.",
    remedy: "Read the present state, then watch from the revision of that answer plus one.",
  },
  "future-revision": {
    http: 400,
    grpc: "OUT_OF_RANGE",
    title: "The revision does not exist yet",
    outcome: NOT_APPLIED,
    meaning: "A read at a revision above the one that the answering member has.",
    remedy: "Use a revision from an answer of this cell, or `minRevision` to wait for one.",
  },
  "lease-not-found": {
    http: 404,
    grpc: "NOT_FOUND",
    title: "There is no such lease",
    outcome: NOT_APPLIED,
    meaning: "The lease expired, was revoked, or never was.",
    remedy: "Treat everything held under it as lost. Grant a new lease and acquire again.",
  },
  "lease-exists": {
    http: 409,
    grpc: "ALREADY_EXISTS",
    title: "The lease id is taken",
    outcome: NOT_APPLIED,
    meaning: "A lease was to be granted under a chosen id that is in use.",
    remedy: "Choose another id, or let the cell choose.",
  },
  "key-not-found": {
    http: 404,
    grpc: "NOT_FOUND",
    title: "There is no such key",
    outcome: NOT_APPLIED,
    meaning: "A put was to keep the value or the lease of a key that does not exist.",
    remedy: "Put the key with its value first.",
  },
  "too-many-keys": {
    http: 409,
    grpc: "FAILED_PRECONDITION",
    title: "Too many keys are concerned",
    outcome: NOT_APPLIED,
    meaning:
      "A lease would hold, a deletion remove, or a sorted or filtered range or a compare look at, more keys than the limit.",
    remedy: "Spread the keys over leases; delete, read or compare in smaller ranges.",
  },
  "request-expired": {
    http: 409,
    grpc: "ABORTED",
    title: "The request's outcome is no longer remembered",
    outcome: "unknown",
    meaning:
      "The client or the sequence number of a retry was forgotten; running it again could apply it twice.",
    remedy: "Read the state to learn whether the change was made, then decide; register again.",
  },
  "namespace-not-found": {
    http: 404,
    grpc: "NOT_FOUND",
    title: "There is no such namespace here",
    outcome: NOT_APPLIED,
    meaning: "This cell does not hold the namespace.",
    remedy: "Check the name and the address; a namespace must be created before use.",
  },
  "namespace-exists": {
    http: 409,
    grpc: "ALREADY_EXISTS",
    title: "The namespace exists with another uid",
    outcome: NOT_APPLIED,
    meaning:
      "A namespace was to be created or deleted whose name belongs to one with another uid (admin API alone).",
    remedy: "Choose another name, or give the uid that `lockstep namespace list` shows.",
  },
  "too-many-namespaces": {
    http: 409,
    grpc: "FAILED_PRECONDITION",
    title: "The cell holds too many namespaces",
    outcome: NOT_APPLIED,
    meaning: "One more namespace would be above the cell's maximum of 1,000 (admin API alone).",
    remedy: "Delete one that is no longer used, or use another cell.",
  },
  "wrong-epoch": {
    http: 421,
    grpc: "FAILED_PRECONDITION",
    title: "The namespace moved",
    outcome: NOT_APPLIED,
    meaning: "The routing epoch of the request is not the current one of the namespace.",
    remedy: "Resolve the namespace again and send the request to its present cell.",
  },
  overloaded: {
    http: 503,
    grpc: "RESOURCE_EXHAUSTED",
    title: "The member is overloaded",
    outcome: NOT_APPLIED,
    meaning: "A bound on waiting work was reached, and the request was refused before it cost anything.",
    remedy: "Come back after `retryAfterMs`, with jitter, and with fewer requests in flight.",
  },
  "quota-exceeded": {
    http: 507,
    grpc: "RESOURCE_EXHAUSTED",
    title: "The namespace's quota is used up",
    outcome: NOT_APPLIED,
    meaning: "The write would take the namespace above its quota.",
    remedy: "Delete keys or raise the quota. Deletions, revocations and expiry still work.",
  },
  "no-space": {
    http: 507,
    grpc: "RESOURCE_EXHAUSTED",
    title: "The cell is short of disk space",
    outcome: NOT_APPLIED,
    meaning: "A voter is below its reserve of free bytes; the cell refuses growth.",
    remedy: "Enlarge the volume or delete keys and compact. Deletions, revocations and expiry still work.",
  },
  "too-many-streams": {
    http: 503,
    grpc: "RESOURCE_EXHAUSTED",
    title: "The member has too many streams",
    outcome: NOT_APPLIED,
    meaning: "One more channel or streaming request is above the member's bound.",
    remedy: "Share one channel per process; connect to another member; or raise its `--streams-max`.",
  },
  "too-many-watches": {
    http: 503,
    grpc: "RESOURCE_EXHAUSTED",
    title: "There are too many watches",
    outcome: NOT_APPLIED,
    meaning: "One more watch is above the bound of the stream or of the member.",
    remedy: "Watch a prefix instead of many keys; connect to another member; or raise its `--watches-max`.",
  },
  "no-leader": {
    http: 503,
    grpc: "UNAVAILABLE",
    title: "The cell has no leader",
    outcome: NOT_APPLIED,
    meaning: "No leader is known, for want of a majority or during an election.",
    remedy:
      "Try again after `retryAfterMs`. If it lasts, check that a majority of the voters runs and is connected.",
  },
  "leader-changed": {
    http: 503,
    grpc: "UNAVAILABLE",
    title: "The leader changed before the answer",
    outcome: "not-applied or unknown",
    meaning: "The request was proposed, or about to be, when leadership moved.",
    remedy: "With a request id, send it again. Without one and outcome `unknown`, read the state first.",
  },
  "deadline-exceeded": {
    http: 504,
    grpc: "DEADLINE_EXCEEDED",
    title: "The deadline passed",
    outcome: "not-applied or unknown",
    meaning: "The answer did not come in time.",
    remedy: "With a request id, send it again. Without one and outcome `unknown`, read the state first.",
  },
  "not-leader": {
    http: 503,
    grpc: "UNAVAILABLE",
    title: "This member does not lead",
    outcome: NOT_APPLIED,
    meaning: "The request needs the leader and could not be forwarded.",
    remedy: "Send it to the leader named by Info.",
  },
  diverged: {
    http: 503,
    grpc: "FAILED_PRECONDITION",
    title: "The members disagree",
    outcome: NOT_APPLIED,
    meaning: "Members computed different states from the same log; writes are refused to protect the data.",
    remedy: "An operator must act: see the cell's alarms.",
  },
  "shutting-down": {
    http: 503,
    grpc: "UNAVAILABLE",
    title: "The member is shutting down",
    outcome: "not-applied or unknown",
    meaning: "The member stops and takes no new work.",
    remedy: "Use another member.",
  },
  unsupported: {
    http: 501,
    grpc: "UNIMPLEMENTED",
    title: "This is not supported",
    outcome: NOT_APPLIED,
    meaning: "The cell's format version or this build does not know the operation.",
    remedy: "Upgrade all members, or do without.",
  },
  internal: {
    http: 500,
    grpc: "INTERNAL",
    title: "Something went wrong inside",
    outcome: "unknown",
    meaning: "A defect. The member logged it.",
    remedy: "Report it with the member's log. Read the state before repeating a change.",
  },
};

/** Answers that only the HTTP door gives; they come as `code` of a problem too. */
export type HttpProblemCode =
  "condition-failed" | "key-not-found" | "not-acceptable" | "route-not-found" | "method-not-allowed";

export const HTTP_STATUS_MAP: Readonly<Record<HttpProblemCode, Omit<StatusEntry, "grpc">>> = {
  "condition-failed": {
    http: 412,
    title: "The condition does not hold",
    outcome: NOT_APPLIED,
    meaning: "`If-Version`, `If-Revision`, `If-Lease`, `If-Match` or `If-None-Match` does not match the key.",
    remedy:
      "The problem carries the key's version, revision, fencing token and lease: decide anew from them.",
  },
  "key-not-found": {
    http: 404,
    title: "There is no such key",
    outcome: NOT_APPLIED,
    meaning: "The key does not exist at the revision that was read.",
    remedy: "The header `Lockstep-Revision` tells the revision; watch from the next one to see it appear.",
  },
  "not-acceptable": {
    http: 406,
    title: "The answer is not available in an accepted type",
    outcome: NOT_APPLIED,
    meaning: "A watch was asked for without a streaming type and without `wait`.",
    remedy: "Accept `text/event-stream` or `application/x-ndjson`, or give `?wait=30s`.",
  },
  "route-not-found": {
    http: 404,
    title: "There is nothing at this path",
    outcome: NOT_APPLIED,
    meaning: "The path is not part of the interface.",
    remedy: "See `GET /v1/openapi.yaml`.",
  },
  "method-not-allowed": {
    http: 405,
    title: "The path does not take this method",
    outcome: NOT_APPLIED,
    meaning: "The path exists; the method does not.",
    remedy: "The header `Allow` lists the methods.",
  },
};

/** The gRPC status of a refusal. */
export function grpcStatus(code: FailureCode): GrpcCode {
  return GrpcCode[STATUS_MAP[code].grpc];
}
