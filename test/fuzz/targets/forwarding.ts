/** What members ask each other on behalf of clients, and what they answer. */
import { DecodeError } from "../../../cell/src/machine/index.ts";
import type { LogIndex } from "../../../cell/src/raft/types.ts";
import type { CommandOutcome } from "../../../cell/src/machine/index.ts";
import {
  decodeForwarded,
  decodeMutationAnswer,
  decodeReadAnswer,
  decodeRenewalAnswer,
  encodeForwarded,
  encodeMutationAnswer,
  encodeReadAnswer,
  encodeRenewalAnswer,
} from "../../../cell/src/replica/forwarding.ts";
import type { Forwarded } from "../../../cell/src/replica/forwarding.ts";
import type { MutationOutcome, ReadOutcome, RenewalOutcome } from "@lockstep/gateway/coordinator";
import type { Target } from "../contract.ts";
import type { Dice } from "../generate/dice.ts";
import { damageJson } from "../generate/json.ts";
import { input } from "../generate/mutate.ts";
import * as values from "../generate/values.ts";
import { assertRoundTrip, bufferOf } from "./laws.ts";

function forwarded(dice: Dice): Forwarded {
  const scope = { namespace: values.text(dice), epoch: values.number(dice) };
  switch (dice.below(4)) {
    case 0:
      return { kind: "renew", renewal: { ...scope, leaseIds: dice.list(6, () => values.lease(dice)) } };
    case 1:
      return {
        kind: "lease",
        ...scope,
        operation: { kind: "lease-time-to-live", leaseId: values.lease(dice), keys: values.flag(dice) },
        deadlineMs: values.number(dice),
      };
    default:
      return {
        kind: "mutate",
        mutation: {
          ...scope,
          identity: values.identity(dice),
          deadlineMs: values.number(dice),
          operation: values.writeOperation(dice),
        },
      };
  }
}

/** Damages the JSON head and makes its length right again. */
function damageHead(dice: Dice, bytes: Buffer): Buffer {
  const length = bytes.length >= 4 ? bytes.readUInt32BE(0) : 0;
  if (length + 4 > bytes.length) return bytes;
  const head = damageJson(dice, bytes.subarray(4, 4 + length));
  const prefix = Buffer.alloc(4);
  prefix.writeUInt32BE(head.length);
  return Buffer.concat([prefix, head, bytes.subarray(4 + length)]);
}

const REFUSED = new Error("answered as a failure");

/** Answers are never thrown at whoever waits for them: what cannot be read is a failure of unknown outcome. */
function answerTarget<T extends { readonly ok: boolean }>(
  name: string,
  make: (dice: Dice) => T,
  { encode, decode }: { encode: (value: T) => Uint8Array; decode: (bytes: Buffer) => T },
): Target {
  return {
    name,
    about:
      "a member's answer to a forwarded request (cell/replica/forwarding); refused as an internal failure",
    weight: 0.5,
    generate: (dice) => input(dice, (inner) => bufferOf(encode(make(inner))), { structured: damageHead }),
    decode: (bytes) => {
      const outcome = decode(bytes) as T & { readonly failure?: { readonly message: string } };
      if (outcome.failure?.message.startsWith("a member's answer cannot be read") === true) throw REFUSED;
      return outcome;
    },
    refused: (error) => error === REFUSED,
    check: (value, { bytes }) => {
      // An empty answer is the member that serves no forwarded requests now.
      if (bytes.length > 0) assertRoundTrip(value as T, encode, decode);
    },
  };
}

function renewalOutcome(dice: Dice): RenewalOutcome {
  if (dice.once(3)) return { ok: false, failure: values.failure(dice) };
  const remainingMs = dice.list(8, () => values.number(dice));
  return { ok: true, revision: values.revision(dice), remainingMs };
}

function readOutcome(dice: Dice): ReadOutcome {
  if (dice.once(3)) return { ok: false, failure: values.failure(dice) };
  return { ok: true, result: values.readResult(dice) };
}

function mutationOutcome(dice: Dice): MutationOutcome {
  const outcome: CommandOutcome = values.outcome(dice);
  if (outcome.ok && outcome.result === undefined) return { ok: false, failure: values.failure(dice) };
  return outcome;
}

export const FORWARDING_TARGETS: readonly Target[] = [
  {
    name: "forwarded-request",
    about:
      "a request that a member forwards to the leader (cell/replica/forwarding); refused with DecodeError",
    weight: 2,
    generate: (dice) =>
      input(dice, (inner) => bufferOf(encodeForwarded(forwarded(inner))), { structured: damageHead }),
    decode: decodeForwarded,
    refused: (error) => error instanceof DecodeError,
    check: (value) => assertRoundTrip(value as Forwarded, encodeForwarded, decodeForwarded),
  },
  answerTarget("forwarded-renewal-answer", renewalOutcome, {
    encode: encodeRenewalAnswer,
    decode: decodeRenewalAnswer,
  }),
  answerTarget("forwarded-read-answer", readOutcome, { encode: encodeReadAnswer, decode: decodeReadAnswer }),
  answerTarget("forwarded-mutation-answer", mutationOutcome, {
    encode: (outcome) => encodeMutationAnswer({ outcome, appliedIndex: 7 as LogIndex }),
    decode: (body) => decodeMutationAnswer(body).outcome,
  }),
];
