import type {
  Failure,
  LeaseTimeToLiveOperation,
  Mutation,
  MutationOutcome,
  ReadOutcome,
  Renewal,
  RenewalOutcome,
} from "@lockstep/gateway/coordinator";
import {
  DecodeError,
  decodeOutcome,
  decodeReadResult,
  decodeWriteOperation,
  encodeOutcome,
  encodeReadResult,
  encodeWriteOperation,
} from "../machine/index.ts";
import type { LogIndex } from "../raft/types.ts";
import { failures } from "./failures.ts";
import { changeRefusedOf, failureOf, forwardedHead, renewalOf } from "./forwarding-heads.ts";
import type { ChangeRefused, ForwardedChange, ForwardedHead } from "./forwarding-heads.ts";

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
    }
  /** On a member's own behalf: who belongs to the cell, as the asked one has applied it. Answered by its row. */
  | { readonly kind: "membership" }
  /** Of an administrator who asked the member that forwards it, which checked that. */
  | { readonly kind: "change-membership"; readonly change: ForwardedChange };

const NOTHING = new Uint8Array();
const INDEX_BYTES = 8;

export function encodeForwarded(forwarded: Forwarded): Uint8Array {
  if (forwarded.kind !== "mutate") return join(forwarded, NOTHING);
  const { namespace, epoch, identity, deadlineMs = 10_000, operation } = forwarded.mutation;
  const head: ForwardedHead = { kind: "mutate", namespace, epoch, identity, deadlineMs };
  return join(head, encodeWriteOperation(operation));
}

/**
 * @throws DecodeError on anything that is not a forwarded request: the peer is broken, not a client. Nothing of it is
 * taken on trust: a read that was let in is served later, where no caller is left to refuse.
 */
export function decodeForwarded(body: Uint8Array): Forwarded {
  const [json, rest] = split(body);
  const head = forwardedHead(json);
  if (head.kind !== "mutate") return head;
  const { kind, ...scope } = head;
  return { kind, mutation: { ...scope, operation: decodeWriteOperation(rest) } };
}

/** What became of a forwarded mutation. */
export interface MutationAnswer {
  readonly outcome: MutationOutcome;
  /** Whoever has applied this much has applied the mutation. 0: not known. */
  readonly appliedIndex: LogIndex;
}

export function encodeMutationAnswer({ outcome, appliedIndex }: MutationAnswer): Uint8Array {
  const encoded = encodeOutcome(outcome);
  const body = Buffer.allocUnsafe(INDEX_BYTES + encoded.length);
  body.writeBigUInt64BE(BigInt(appliedIndex), 0);
  body.set(encoded, INDEX_BYTES);
  return body;
}

/** The answer of a member that can serve no forwarded request now: nothing was applied, ask again. */
export const REFUSED_FORWARD: Uint8Array = NOTHING;

export function encodeRenewalAnswer(outcome: RenewalOutcome): Uint8Array {
  return outcome.ok
    ? join({ revision: outcome.revision, remainingMs: outcome.remainingMs }, NOTHING)
    : join({ failure: outcome.failure }, NOTHING);
}

/** @param refused undefined: the change was made */
export function encodeChangeAnswer(refused: ChangeRefused | undefined): Uint8Array {
  return join({ refused }, NOTHING);
}

/** @returns why the change was not made; "unknown": nobody can tell whether it was; undefined: it was */
export function decodeChangeAnswer(body: Uint8Array): ChangeRefused | "unknown" | undefined {
  if (body.length === 0) return { code: "no-leader", message: "Leadership moved. Ask again." };
  try {
    const [json] = split(body);
    return changeRefusedOf(json);
  } catch {
    return "unknown";
  }
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

export function decodeMutationAnswer(body: Uint8Array): MutationAnswer {
  let appliedIndex = 0;
  const outcome = decodeAnswer(body, (whole): MutationOutcome => {
    const buffer = Buffer.from(whole.buffer, whole.byteOffset, whole.byteLength);
    if (buffer.length < INDEX_BYTES) throw new TypeError("an answer has an index");
    const index = Number(buffer.readBigUInt64BE(0));
    if (!Number.isSafeInteger(index)) throw new TypeError("an index is below 2^53");
    const decoded = decodeOutcome(buffer.subarray(INDEX_BYTES));
    if (decoded.ok && decoded.result === undefined) throw new TypeError("a mutation has a result");
    appliedIndex = index;
    return decoded;
  });
  return { outcome, appliedIndex: appliedIndex as LogIndex };
}

export function decodeRenewalAnswer(body: Uint8Array): RenewalOutcome {
  return decodeAnswer(body, (whole): RenewalOutcome => {
    const [json] = split(whole);
    const failure = failureOf(json);
    return failure === undefined ? { ok: true, ...renewalOf(json) } : { ok: false, failure };
  });
}

export function decodeReadAnswer(body: Uint8Array): ReadOutcome {
  return decodeAnswer(body, (whole): ReadOutcome => {
    const [json, rest] = split(whole);
    const failure = failureOf(json);
    return failure === undefined ? { ok: true, result: decodeReadResult(rest) } : { ok: false, failure };
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

/** The JSON head, whatever it holds, and what follows it. */
function split(body: Uint8Array): [unknown, Uint8Array] {
  const buffer = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const headLength = buffer.length >= 4 ? buffer.readUInt32BE(0) : Number.POSITIVE_INFINITY;
  if (4 + headLength > buffer.length) throw new DecodeError("cut short");
  const text = buffer.toString("utf8", 4, 4 + headLength);
  try {
    return [JSON.parse(text), buffer.subarray(4 + headLength)];
  } catch {
    throw new DecodeError("the head is not JSON");
  }
}
