/** Command batches: the payload of Raft entries. The layout is in ../FORMAT.md. */
import { NO_IDENTITY, NO_LEASE } from "@lockstep/gateway/coordinator";
import type { ClientId, LeaseId, RequestIdentity, Revision } from "@lockstep/gateway/coordinator";
import { assertNever } from "../../invariant.ts";
import type { Term } from "../../raft/types.ts";
import type {
  CheckpointCommand,
  ClientCommand,
  Command,
  CommandBatch,
  CommandEncoder,
  ExpireCommand,
} from "../types.ts";
import { readWriteOperation, writeWriteOperation } from "./operations.ts";
import {
  ByteReader,
  ByteWriter,
  DecodeError,
  getUint32,
  getUint64,
  putUint32,
  putUint64,
} from "./primitives.ts";

/** First byte of every batch. */
export const BATCH_VERSION = 1;
/** Version, time, number of commands. */
const HEADER_BYTES = 1 + 8 + 4;
const CHUNK_BYTES = 64 * 1024;

/** Command kinds in the log: never renumbered. */
const CLIENT = 1;
const EXPIRE = 2;
const CHECKPOINT = 3;
const RETAIN = 4;
const FORMAT_VERSION = 5;
const CREATE_NAMESPACE = 6;
const DELETE_NAMESPACE = 7;

const IDENTITY_NONE = 0;
const IDENTITY_CLIENT = 1;
const IDENTITY_TOKEN = 2;

/** @returns an empty encoder. A command that cannot be encoded throws TypeError and leaves the batch as it was. */
export function createCommandEncoder(): CommandEncoder {
  return new BatchEncoder();
}

class BatchEncoder implements CommandEncoder {
  private readonly writer = new ByteWriter(CHUNK_BYTES);
  private commands = 0;

  get count(): number {
    return this.commands;
  }

  get bytes(): number {
    return this.writer.length;
  }

  add(command: Command): number {
    const writer = this.writer;
    if (this.commands === 0) this.begin();
    const before = writer.length;
    try {
      writeCommand(writer, command);
    } catch (error) {
      writer.rewind(before);
      throw error;
    }
    this.commands += 1;
    return writer.length;
  }

  finish(timeMs: number): Uint8Array {
    if (this.commands === 0) this.begin();
    const batch = this.writer.take();
    batch[0] = BATCH_VERSION;
    putUint64(batch, 1, timeMs);
    putUint32(batch, 9, this.commands);
    this.commands = 0;
    return batch;
  }

  /** Leaves room for the header, which is known at the end only. */
  private begin(): void {
    this.writer.rewind(0);
    this.writer.ensure(HEADER_BYTES);
    this.writer.position += HEADER_BYTES;
  }
}

/** Throws {@link DecodeError} on anything that this version does not write: nothing is skipped (R58). */
export function decodeCommandBatch(bytes: Uint8Array): CommandBatch {
  if (bytes.length < HEADER_BYTES) throw new DecodeError("cut short");
  if (bytes[0] !== BATCH_VERSION) throw new DecodeError(`unknown batch version ${bytes[0] ?? -1}`);
  const timeMs = getUint64(bytes, 1);
  if (timeMs > Number.MAX_SAFE_INTEGER) throw new DecodeError("time beyond 53 bits");
  const count = getUint32(bytes, 9);
  if (count * 2 > bytes.length) throw new DecodeError("cut short");
  const reader = new ByteReader(bytes);
  reader.position = HEADER_BYTES;
  const commands: Command[] = [];
  for (let i = 0; i < count; i++) commands.push(readCommand(reader));
  reader.end();
  return { timeMs, commands };
}

function writeCommand(writer: ByteWriter, command: Command): void {
  switch (command.kind) {
    case "client":
      writer.byte(CLIENT);
      writer.varint(command.namespaceId);
      writer.varint(command.epoch);
      writeIdentity(writer, command.identity);
      writeWriteOperation(writer, command.operation);
      return;
    case "expire":
      writer.byte(EXPIRE);
      writer.varint(command.namespaceId);
      writer.varint(command.leaderTerm);
      writer.varint(command.leaseIds.length);
      for (const id of command.leaseIds) writer.leaseId(id);
      return;
    case "checkpoint":
      writer.byte(CHECKPOINT);
      writer.varint(command.namespaceId);
      writer.varint(command.leaderTerm);
      writer.varint(command.leases.length);
      for (const lease of command.leases) {
        writer.leaseId(lease.leaseId);
        writer.varint(lease.remainingMs);
      }
      return;
    case "retain":
      writer.byte(RETAIN);
      writer.varint(command.namespaceId);
      writer.varint(command.compactRevision);
      return;
    case "format-version":
      writer.byte(FORMAT_VERSION);
      writer.varint(command.version);
      return;
    case "create-namespace":
    case "delete-namespace":
      writer.byte(command.kind === "create-namespace" ? CREATE_NAMESPACE : DELETE_NAMESPACE);
      writer.text(command.name);
      writer.text(command.uid);
      return;
    default:
      assertNever(command);
  }
}

function readCommand(reader: ByteReader): Command {
  const kind = reader.byte();
  switch (kind) {
    case CLIENT:
      return readClientCommand(reader);
    case EXPIRE:
      return readExpire(reader);
    case CHECKPOINT:
      return readCheckpoint(reader);
    case RETAIN:
      return {
        kind: "retain",
        namespaceId: reader.varint(),
        compactRevision: reader.varint() as Revision,
      };
    case FORMAT_VERSION:
      return { kind: "format-version", version: reader.varint() };
    case CREATE_NAMESPACE:
      return { kind: "create-namespace", name: reader.text(), uid: reader.text() };
    case DELETE_NAMESPACE:
      return { kind: "delete-namespace", name: reader.text(), uid: reader.text() };
    default:
      throw new DecodeError(`unknown command ${kind}`);
  }
}

function readClientCommand(reader: ByteReader): ClientCommand {
  return {
    kind: "client",
    namespaceId: reader.varint(),
    epoch: reader.varint(),
    identity: readIdentity(reader),
    operation: readWriteOperation(reader),
  };
}

export function writeIdentity(writer: ByteWriter, identity: RequestIdentity): void {
  switch (identity.kind) {
    case "none":
      writer.byte(IDENTITY_NONE);
      return;
    case "client":
      writer.byte(IDENTITY_CLIENT);
      writer.varint(identity.clientId);
      writer.varint(identity.sequence);
      writer.varint(identity.acknowledgedBelow);
      return;
    case "token":
      writer.byte(IDENTITY_TOKEN);
      writer.text(identity.token);
      return;
    default:
      assertNever(identity);
  }
}

export function readIdentity(reader: ByteReader): RequestIdentity {
  const kind = reader.byte();
  switch (kind) {
    case IDENTITY_NONE:
      return NO_IDENTITY;
    case IDENTITY_CLIENT:
      return {
        kind: "client",
        clientId: reader.varint() as ClientId,
        sequence: reader.varint(),
        acknowledgedBelow: reader.varint(),
      };
    case IDENTITY_TOKEN:
      return { kind: "token", token: reader.text() };
    default:
      throw new DecodeError(`unknown identity ${kind}`);
  }
}

function readExpire(reader: ByteReader): ExpireCommand {
  const namespaceId = reader.varint();
  const leaderTerm = reader.varint() as Term;
  const count = reader.count(8);
  const leaseIds: LeaseId[] = [];
  for (let i = 0; i < count; i++) leaseIds.push(readLease(reader));
  return { kind: "expire", namespaceId, leaderTerm, leaseIds };
}

function readCheckpoint(reader: ByteReader): CheckpointCommand {
  const namespaceId = reader.varint();
  const leaderTerm = reader.varint() as Term;
  const count = reader.count(9);
  const leases: { leaseId: LeaseId; remainingMs: number }[] = [];
  for (let i = 0; i < count; i++) leases.push({ leaseId: readLease(reader), remainingMs: reader.varint() });
  return { kind: "checkpoint", namespaceId, leaderTerm, leases };
}

function readLease(reader: ByteReader): LeaseId {
  const id = reader.leaseId();
  if (id === NO_LEASE) throw new DecodeError("no lease id");
  return id;
}
