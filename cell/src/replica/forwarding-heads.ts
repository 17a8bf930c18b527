/**
 * The JSON heads of forwarded requests and their answers, read field by field: what comes out has exactly the fields
 * of its type, each of its kind, or nothing comes out.
 */
import type {
  ClientId,
  Failure,
  LeaseId,
  LeaseTimeToLiveOperation,
  OperationOutcome,
  Renewal,
  RequestIdentity,
  Revision,
} from "@lockstep/gateway/coordinator";
import { isLeaseId } from "../machine/codec/primitives.ts";
import { failureCode } from "../machine/codec/results.ts";
import { DecodeError } from "../machine/index.ts";
import type { MemberId } from "../raft/types.ts";

/** A forwarded request without the operation behind its head. */
export type ForwardedHead =
  | {
      readonly kind: "mutate";
      readonly namespace: string;
      readonly epoch: number;
      readonly identity: RequestIdentity;
      readonly deadlineMs: number;
    }
  | { readonly kind: "renew"; readonly renewal: Renewal }
  | {
      readonly kind: "lease";
      readonly namespace: string;
      readonly epoch: number;
      readonly operation: LeaseTimeToLiveOperation;
      readonly deadlineMs: number;
    }
  | { readonly kind: "membership" }
  | { readonly kind: "change-membership"; readonly change: ForwardedChange };

/** Learners that become voters and members that leave, in one change of the configuration. */
export interface ForwardedChange {
  readonly promote: readonly MemberId[];
  readonly remove: readonly MemberId[];
}

/** Why the leader did not make a change: a code of the admin API, and what to do. */
export interface ChangeRefused {
  readonly code: string;
  readonly message: string;
}

const OUTCOMES: readonly string[] = ["not-applied", "applied", "unknown"] satisfies OperationOutcome[];

/** @throws DecodeError */
export function forwardedHead(json: unknown): ForwardedHead {
  const head = fieldsOf(json);
  switch (head["kind"]) {
    case "mutate":
      return {
        kind: "mutate",
        ...scopeOf(head),
        identity: identityOf(head["identity"]),
        ...deadlineOf(head),
      };
    case "renew": {
      const renewal = fieldsOf(head["renewal"]);
      return {
        kind: "renew",
        renewal: { ...scopeOf(renewal), leaseIds: listOf(renewal["leaseIds"], leaseOf) },
      };
    }
    case "lease":
      return {
        kind: "lease",
        ...scopeOf(head),
        operation: timeToLiveOf(head["operation"]),
        ...deadlineOf(head),
      };
    case "membership":
      return { kind: "membership" };
    case "change-membership": {
      const change = fieldsOf(head["change"]);
      const members = (field: string): readonly MemberId[] => listOf(change[field], memberOf);
      return {
        kind: "change-membership",
        change: { promote: members("promote"), remove: members("remove") },
      };
    }
    default:
      throw new DecodeError("a forwarded request of an unknown kind");
  }
}

/** What the leader refused a change for; undefined: it was made. @throws DecodeError */
export function changeRefusedOf(json: unknown): ChangeRefused | undefined {
  const refused = fieldsOf(json)["refused"];
  if (refused === undefined) return undefined;
  const { code, message } = fieldsOf(refused);
  return { code: textOf(code), message: textOf(message) };
}

/** The refusal that an answer holds; undefined: it holds none. @throws DecodeError */
export function failureOf(json: unknown): Failure | undefined {
  const answer = fieldsOf(json)["failure"];
  if (answer === undefined) return undefined;
  const head = fieldsOf(answer);
  const { code, outcome, compactRevision, retryAfterMs } = head;
  const known = failureCode(code);
  if (known === undefined) throw new DecodeError("a failure with an unknown code");
  if (typeof outcome !== "string" || !OUTCOMES.includes(outcome))
    throw new DecodeError("a failure without an outcome");
  return {
    code: known,
    outcome: outcome as OperationOutcome,
    message: textOf(head["message"]),
    ...(compactRevision !== undefined && { compactRevision: countOf(compactRevision) as Revision }),
    ...(retryAfterMs !== undefined && { retryAfterMs: numberOf(retryAfterMs) }),
  };
}

/** @throws DecodeError */
export function renewalOf(json: unknown): {
  readonly revision: Revision;
  readonly remainingMs: readonly number[];
} {
  const answer = fieldsOf(json);
  return {
    revision: countOf(answer["revision"]) as Revision,
    remainingMs: listOf(answer["remainingMs"], numberOf),
  };
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw new DecodeError("not an object");
  return value as Readonly<Record<string, unknown>>;
}

function scopeOf(head: Readonly<Record<string, unknown>>): { namespace: string; epoch: number } {
  return { namespace: textOf(head["namespace"]), epoch: countOf(head["epoch"]) };
}

function deadlineOf(head: Readonly<Record<string, unknown>>): { deadlineMs: number } {
  return { deadlineMs: numberOf(head["deadlineMs"]) };
}

function identityOf(value: unknown): RequestIdentity {
  const identity = fieldsOf(value);
  switch (identity["kind"]) {
    case "none":
      return { kind: "none" };
    case "client":
      return {
        kind: "client",
        clientId: countOf(identity["clientId"]) as ClientId,
        sequence: countOf(identity["sequence"]),
        acknowledgedBelow: countOf(identity["acknowledgedBelow"]),
      };
    case "token":
      return { kind: "token", token: textOf(identity["token"]) };
    default:
      throw new DecodeError("an identity of an unknown kind");
  }
}

function timeToLiveOf(value: unknown): LeaseTimeToLiveOperation {
  const { kind, leaseId, keys } = fieldsOf(value);
  if (kind !== "lease-time-to-live") throw new DecodeError("a read that is not forwarded");
  if (keys !== undefined && typeof keys !== "boolean") throw new DecodeError("not true or false");
  return { kind, leaseId: leaseOf(leaseId), ...(keys !== undefined && { keys }) };
}

function textOf(value: unknown): string {
  if (typeof value !== "string") throw new DecodeError("not a text");
  return value;
}

/** Minus zero, which JSON can say, becomes zero. */
function numberOf(value: unknown): number {
  if (typeof value !== "number" || !Number.isFinite(value)) throw new DecodeError("not a number");
  return value + 0;
}

function countOf(value: unknown): number {
  const count = numberOf(value);
  if (!Number.isSafeInteger(count) || count < 0) throw new DecodeError("not a whole number");
  return count;
}

function leaseOf(value: unknown): LeaseId {
  const id = textOf(value);
  if (!isLeaseId(id)) throw new DecodeError("not a lease id");
  return id as LeaseId;
}

function memberOf(value: unknown): MemberId {
  const id = countOf(value);
  if (id < 1) throw new DecodeError("not a member's id");
  return id as MemberId;
}

function listOf<T>(value: unknown, each: (item: unknown) => T): T[] {
  if (!Array.isArray(value)) throw new DecodeError("not a list");
  return value.map((item) => each(item));
}
