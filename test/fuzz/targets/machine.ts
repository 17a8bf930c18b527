/** Commands in the log, operations and results between members, and the rows and entries of the membership. */
import {
  createCommandEncoder,
  decodeCommandBatch,
  DecodeError,
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
} from "../../../cell/src/machine/index.ts";
import type { Command, CommandBatch } from "../../../cell/src/machine/index.ts";
import { ByteReader, ByteWriter } from "../../../cell/src/machine/codec/primitives.ts";
import { InvariantError } from "../../../cell/src/invariant.ts";
import {
  decodeMembership,
  decodePlan,
  encodeMembership,
  encodePlan,
} from "../../../cell/src/machine/membership.ts";
import type { ChangePlan, MemberRecord, Membership } from "../../../cell/src/machine/membership.ts";
import { recallOutcome, rememberOutcome } from "../../../cell/src/machine/remembered.ts";
import {
  ConfigurationError,
  decodeConfiguration,
  decodeConfigurationChange,
  encodeConfiguration,
  encodeConfigurationChange,
} from "../../../cell/src/raft/index.ts";
import type { Configuration, LogIndex, MemberId, Term } from "../../../cell/src/raft/types.ts";
import type { WriteOperation } from "@lockstep/gateway/coordinator";
import type { Target } from "../contract.ts";
import type { Dice } from "../generate/dice.ts";
import { damageJson, depthOf } from "../generate/json.ts";
import { input } from "../generate/mutate.ts";
import * as values from "../generate/values.ts";
import { assertLaw, assertRoundTrip, bufferOf } from "./laws.ts";

const isDecodeError = (error: unknown): boolean => error instanceof DecodeError;
const isConfigurationError = (error: unknown): boolean =>
  error instanceof ConfigurationError && error.code === "malformed";

function command(dice: Dice): Command {
  const namespaceId = values.number(dice);
  switch (dice.below(10)) {
    case 0:
      return {
        kind: "expire",
        namespaceId,
        leaderTerm: values.number(dice) as Term,
        leaseIds: dice.list(6, () => values.lease(dice)),
      };
    case 1:
      return {
        kind: "checkpoint",
        namespaceId,
        leaderTerm: values.number(dice) as Term,
        leases: dice.list(6, () => ({ leaseId: values.lease(dice), remainingMs: values.number(dice) })),
      };
    case 2:
      return { kind: "retain", namespaceId, compactRevision: values.revision(dice) };
    case 3:
      return { kind: "format-version", version: values.number(dice) };
    case 4:
      return { kind: "create-namespace", name: values.text(dice), uid: values.text(dice) };
    case 5:
      return { kind: "delete-namespace", name: values.text(dice), uid: values.text(dice) };
    default:
      return {
        kind: "client",
        namespaceId,
        epoch: values.number(dice),
        identity: values.identity(dice),
        operation: values.writeOperation(dice),
      };
  }
}

const encoder = createCommandEncoder();

function encodeBatch({ commands, timeMs }: CommandBatch): Uint8Array {
  for (const each of commands) encoder.add(each);
  return encoder.finish(timeMs);
}

/** Values in JSON keep what a newer version may add, so equal bytes are what can be asked of them. */
function assertJsonRoundTrip<T>(value: T, bytes: Buffer, { encode, decode }: Codec<T>): void {
  // The encoder walks what it writes.
  if (depthOf(bytes) > 100) return;
  const first = bufferOf(encode(value));
  assertLaw(first.equals(encode(decode(first))), "encoded and decoded again it is another value");
}

interface Codec<T> {
  readonly encode: (value: T) => Uint8Array;
  readonly decode: (bytes: Buffer) => T;
}

/** A codec of one value in JSON. */
function jsonCodec<T>(
  about: Pick<Target, "name" | "about" | "weight">,
  make: (dice: Dice) => T,
  both: Codec<T>,
  refused: (error: unknown) => boolean,
): Target {
  return {
    ...about,
    generate: (dice) =>
      input(dice, (inner) => bufferOf(both.encode(make(inner))), { structured: damageJson }),
    decode: both.decode,
    refused,
    check: (value, { bytes }) => assertJsonRoundTrip(value as T, bytes, both),
  };
}

/** A codec of one value. */
function codec<T>(
  about: Pick<Target, "name" | "about" | "weight">,
  make: (dice: Dice) => T,
  { encode, decode }: Codec<T>,
  refused: (error: unknown) => boolean = isDecodeError,
): Target {
  return {
    ...about,
    generate: (dice) => input(dice, (inner) => bufferOf(encode(make(inner)))),
    decode,
    refused,
    check: (value) => assertRoundTrip(value as T, encode, decode),
  };
}

function configuration(dice: Dice): Configuration {
  const ids = (from: number): MemberId[] => {
    const count = dice.between(1, 5);
    const apart = dice.once(8) ? 2 ** 40 : 1;
    return Array.from({ length: count }, (_, i) => (from + i * apart) as MemberId);
  };
  const voters = ids(1);
  const joint = dice.once(2);
  return {
    voters,
    outgoing: joint ? ids(3) : [],
    learners: dice.once(2) ? ids(2 ** 45) : [],
    learnersNext: [],
    autoLeave: joint && dice.once(2),
  };
}

function member(dice: Dice): MemberRecord {
  const port = (): string => `${values.text(dice, 8)}:${dice.below(65536)}`;
  const addresses = { client: port(), http: port(), peer: port(), admin: port(), ops: port() };
  const id = values.number(dice) as MemberId;
  return { id, name: values.text(dice), incarnation: values.text(dice), addresses };
}

function membership(dice: Dice): Membership {
  return {
    cellId: values.text(dice),
    configurationIndex: values.number(dice) as LogIndex,
    configuration: configuration(dice),
    members: dice.list(4, () => member(dice)),
    removedIds: dice.list(4, () => values.number(dice) as MemberId),
    nextMemberId: values.number(dice) as MemberId,
  };
}

function plan(dice: Dice): ChangePlan {
  const plannedOn = values.number(dice) as LogIndex;
  return dice.once(2) ? { plannedOn } : { plannedOn, add: member(dice) };
}

const NO_PLAN = new Error("no plan");

/** The operation that a remembered outcome is asked with: its keys are taken from there. */
const ASKED: WriteOperation = {
  kind: "txn",
  compares: [],
  success: [{ kind: "put", key: Buffer.from("a"), value: Buffer.from("b"), sequential: true }],
  failure: [{ kind: "put", key: Buffer.from("c"), value: Buffer.from("d") }],
};

const REMEMBERED: Target = {
  name: "remembered-outcome",
  about: "an answer kept for retries (cell/machine/remembered); refused with DecodeError",
  weight: 0.5,
  generate: (dice) =>
    input(dice, (inner) => {
      const writer = new ByteWriter(256);
      rememberOutcome(writer, values.outcome(inner), ASKED);
      return bufferOf(writer.take());
    }),
  decode: (bytes) => recallOutcome(new ByteReader(bytes), ASKED),
  refused: isDecodeError,
};

export const MACHINE_TARGETS: readonly Target[] = [
  codec<CommandBatch>(
    {
      name: "command-batch",
      about: "the payload of a log entry (cell/machine/codec/commands); refused with DecodeError",
      weight: 2,
    },
    (dice) => ({ timeMs: values.number(dice), commands: dice.list(6, () => command(dice)) }),
    { encode: encodeBatch, decode: decodeCommandBatch },
  ),
  codec(
    {
      name: "write-operation",
      about: "a forwarded operation (cell/machine/codec/operations); refused with DecodeError",
      weight: 1,
    },
    values.writeOperation,
    { encode: encodeWriteOperation, decode: decodeWriteOperation },
  ),
  codec(
    { name: "read-operation", about: "a read between members; refused with DecodeError", weight: 0.5 },
    values.readOperation,
    { encode: encodeReadOperation, decode: decodeReadOperation },
  ),
  codec(
    {
      name: "outcome",
      about: "an answer between members (cell/machine/codec/results); refused with DecodeError",
      weight: 1,
    },
    values.outcome,
    { encode: encodeOutcome, decode: decodeOutcome },
  ),
  codec(
    { name: "read-result", about: "the answer to a forwarded read; refused with DecodeError", weight: 1 },
    values.readResult,
    { encode: encodeReadResult, decode: decodeReadResult },
  ),
  codec(
    { name: "failure", about: "a refusal between members; refused with DecodeError", weight: 0.5 },
    values.failure,
    { encode: encodeFailure, decode: decodeFailure },
  ),
  REMEMBERED,
  jsonCodec(
    {
      name: "membership",
      about: "the membership row of the store and of snapshots; refused with InvariantError",
      weight: 1,
    },
    membership,
    { encode: encodeMembership, decode: decodeMembership },
    (error) => error instanceof InvariantError,
  ),
  jsonCodec(
    {
      name: "change-plan",
      about: "the context of a configuration entry; refused by returning undefined",
      weight: 1,
    },
    plan,
    {
      encode: encodePlan,
      decode: (bytes) => {
        const decoded = decodePlan(bytes);
        if (decoded === undefined) throw NO_PLAN;
        return decoded;
      },
    },
    (error) => error === NO_PLAN,
  ),
  codec(
    {
      name: "configuration",
      about: "a configuration in snapshots (cell/raft/configuration-codec); refused with ConfigurationError",
      weight: 1,
    },
    configuration,
    { encode: encodeConfiguration, decode: decodeConfiguration },
    isConfigurationError,
  ),
  codec(
    {
      name: "configuration-change",
      about: "the data of a configuration entry; refused with ConfigurationError",
      weight: 1,
    },
    (dice) => ({
      transition: dice.pick(["auto", "joint-implicit", "joint-explicit"] as const),
      steps: dice.list(6, () => ({
        kind: dice.pick(["add-voter", "add-learner", "remove"] as const),
        id: values.number(dice) as MemberId,
      })),
      context: dice.once(2) ? bufferOf(encodePlan(plan(dice))) : values.bytes(dice),
    }),
    { encode: encodeConfigurationChange, decode: decodeConfigurationChange },
    isConfigurationError,
  ),
];
