import type {
  Failure,
  LeaseTimeToLiveOperation,
  Mutation,
  MutationOutcome,
  ReadOutcome,
  Renewal,
  RenewalOutcome,
  RequestIdentity,
  Revision,
} from "@lockstep/gateway/coordinator";
import {
  decodeOutcome,
  decodeReadResult,
  decodeWriteOperation,
  encodeOutcome,
  encodeReadResult,
  encodeWriteOperation,
} from "../machine/index.ts";

import { failures } from "./failures.ts";

/**
 * What members ask each other on behalf of clients. A JSON head (small, rare: clients follow the leader by
 * themselves) and the operation or result in the log's own encoding.
 */
export type Forwarded =
  | { readonly kind: "mutate"; readonly mutation: Mutation }
  | { readonly kind: "renew"; readonly renewal: Renewal }
  | {
      readonly kind: "lease";
      readonly namespace: string;
      readonly epoch: number;
      readonly operation: LeaseTimeToLiveOperation;
      readonly deadlineMs: number;
    };

interface MutateHead {
  readonly kind: "mutate";
  readonly namespace: string;
  readonly epoch: number;
  readonly identity: RequestIdentity;
  readonly deadlineMs: number;
}

type Head = MutateHead | Exclude<Forwarded, { readonly kind: "mutate" }>;

interface AnswerHead {
  readonly failure?: Failure;
  readonly revision?: number;
  readonly remainingMs?: readonly number[];
}

const NOTHING = new Uint8Array();

export function encodeForwarded(forwarded: Forwarded): Uint8Array {
  if (forwarded.kind !== "mutate") return join(forwarded, NOTHING);
  const { namespace, epoch, identity, deadlineMs = 10_000, operation } = forwarded.mutation;
  const head: MutateHead = { kind: "mutate", namespace, epoch, identity, deadlineMs };
  return join(head, encodeWriteOperation(operation));
}

/** Throws on anything that is not a forwarded request: the peer is broken, not a client. */
export function decodeForwarded(body: Uint8Array): Forwarded {
  const [head, rest] = split<Head>(body);
  switch (head.kind) {
    case "mutate": {
      const { namespace, epoch, identity, deadlineMs } = head;
      return {
        kind: "mutate",
        mutation: { namespace, epoch, identity, deadlineMs, operation: decodeWriteOperation(rest) },
      };
    }
    case "renew":
    case "lease":
      return head;
    default:
      throw new TypeError("a forwarded request of an unknown kind");
  }
}

export function encodeMutationAnswer(outcome: MutationOutcome): Uint8Array {
  return encodeOutcome(outcome);
}

/** The answer of a member that can serve no forwarded request now: nothing was applied, ask again. */
export const REFUSED_FORWARD: Uint8Array = NOTHING;

export function encodeRenewalAnswer(outcome: RenewalOutcome): Uint8Array {
  return outcome.ok
    ? join({ revision: outcome.revision, remainingMs: outcome.remainingMs }, NOTHING)
    : join({ failure: outcome.failure }, NOTHING);
}

export function encodeReadAnswer(outcome: ReadOutcome): Uint8Array {
  return outcome.ok
    ? join({}, encodeReadResult(outcome.result))
    : join({ failure: outcome.failure }, NOTHING);
}

type Refused = { readonly ok: false; readonly failure: Failure };

/** A peer's answer: refused, broken (then nobody knows what happened), or what `decode` makes of it. */
function decodeAnswer<T>(body: Uint8Array, decode: (body: Uint8Array) => T): T | Refused {
  if (body.length === 0) return { ok: false, failure: failures.leaderChanged() };
  try {
    return decode(body);
  } catch (error) {
    return { ok: false, failure: failures.internal(`a member's answer cannot be read: ${String(error)}`) };
  }
}

export function decodeMutationAnswer(body: Uint8Array): MutationOutcome {
  return decodeAnswer(body, (whole): MutationOutcome => {
    const outcome = decodeOutcome(whole);
    if (outcome.ok && outcome.result === undefined) throw new TypeError("a mutation has a result");
    return outcome;
  });
}

export function decodeRenewalAnswer(body: Uint8Array): RenewalOutcome {
  return decodeAnswer(body, (whole): RenewalOutcome => {
    const [head] = split<AnswerHead>(whole);
    if (head.failure !== undefined) return { ok: false, failure: head.failure };
    const { revision = 0, remainingMs = [] } = head;
    return { ok: true, revision: revision as Revision, remainingMs };
  });
}

export function decodeReadAnswer(body: Uint8Array): ReadOutcome {
  return decodeAnswer(body, (whole): ReadOutcome => {
    const [head, rest] = split<AnswerHead>(whole);
    if (head.failure !== undefined) return { ok: false, failure: head.failure };
    return { ok: true, result: decodeReadResult(rest) };
  });
}

function join(head: object, rest: Uint8Array): Uint8Array {
  const json = Buffer.from(JSON.stringify(head));
  const body = Buffer.allocUnsafe(4 + json.length + rest.length);
  body.writeUInt32BE(json.length, 0);
  json.copy(body, 4);
  body.set(rest, 4 + json.length);
  return body;
}

function split<T>(body: Uint8Array): [T, Uint8Array] {
  const buffer = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const headLength = buffer.length >= 4 ? buffer.readUInt32BE(0) : Number.POSITIVE_INFINITY;
  if (4 + headLength > buffer.length) throw new TypeError("a forwarded body is cut short");
  const head = JSON.parse(buffer.toString("utf8", 4, 4 + headLength)) as T;
  return [head, buffer.subarray(4 + headLength)];
}
