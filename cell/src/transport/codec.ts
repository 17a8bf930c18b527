import { assertNever } from "../invariant.ts";
import type {
  AppendMessage,
  AppendResponse,
  Configuration,
  Entry,
  LogIndex,
  MemberId,
  Message,
  SnapshotMetadata,
  Term,
} from "../raft/types.ts";
import { ProtocolError } from "./errors.ts";
import { BodyReader, FRAME, FrameWriter } from "./frame.ts";
import type { Frame } from "./frame.ts";
import type { PeerNotice } from "./types.ts";

/** Wire numbers of the message kinds (FORMAT.md): never reuse one. */
const KIND = {
  append: 1,
  "append-response": 2,
  heartbeat: 3,
  "heartbeat-response": 4,
  vote: 5,
  "pre-vote": 6,
  "vote-response": 7,
  "pre-vote-response": 8,
  snapshot: 9,
  "timeout-now": 10,
  "read-index": 11,
  "read-index-response": 12,
} as const satisfies Record<Message["kind"], number>;

/** One frame with all messages; entries' data by reference when it is not small. */
export function encodeMessages(messages: readonly Message[], writer: FrameWriter = new FrameWriter()): Frame {
  writer.begin(FRAME.messages);
  writer.varint(messages.length);
  for (const message of messages) writeMessage(writer, message);
  return writer.finish();
}

/** A bound of what a message takes on the wire, to split a turn that is larger than a frame may be. */
export function encodedBytesBound(message: Message): number {
  if (message.kind !== "append") {
    return message.kind === "snapshot" ? 128 + configurationBytesBound(message.snapshot.configuration) : 64;
  }
  let bytes = 96;
  for (const entry of message.entries) bytes += 32 + entry.data.length;
  return bytes;
}

/** Decodes the body of a `messages` frame and appends to `into`. Throws ProtocolError. */
export function decodeMessages(body: Buffer, into: Message[] = []): Message[] {
  const reader = new BodyReader(body);
  const count = reader.count();
  for (let i = 0; i < count; i++) into.push(readMessage(reader));
  reader.end();
  return into;
}

export function encodeNotice(notice: PeerNotice, writer: FrameWriter = new FrameWriter()): Frame {
  writer.begin(FRAME.notice);
  writer.varint(notice.digestIndex + 1);
  writer.varint(notice.digestHash);
  writer.byte(notice.spaceLow ? 1 : 0);
  writer.varint(notice.formatVersionMax);
  return writer.finish();
}

/** Bytes after the known fields are ignored: a newer peer may tell more. */
export function decodeNotice(body: Buffer): PeerNotice {
  const reader = new BodyReader(body);
  return {
    digestIndex: reader.varint() - 1,
    digestHash: reader.varint(),
    spaceLow: reader.boolean(),
    formatVersionMax: reader.varint(),
  };
}

function writeMessage(writer: FrameWriter, message: Message): void {
  writer.byte(KIND[message.kind]);
  writer.varint(message.from);
  writer.varint(message.to);
  writer.varint(message.term);
  switch (message.kind) {
    case "append":
      writeAppend(writer, message);
      return;
    case "append-response":
      writer.varint(message.index);
      writer.byte(message.rejected ? 1 : 0);
      writer.varint(message.hintIndex);
      writer.varint(message.hintTerm);
      return;
    case "heartbeat":
      writer.varint(message.commit);
      writer.varint(message.readRound);
      return;
    case "heartbeat-response":
      writer.varint(message.readRound);
      return;
    case "vote":
    case "pre-vote":
      writer.varint(message.lastIndex);
      writer.varint(message.lastTerm);
      writer.byte(message.transfer ? 1 : 0);
      return;
    case "vote-response":
    case "pre-vote-response":
      writer.byte(message.granted ? 1 : 0);
      // Indexes begin at 1: 0 says that there is no hint.
      writer.varint(message.committed?.index ?? 0);
      writer.varint(message.committed?.term ?? 0);
      return;
    case "snapshot":
      writeSnapshot(writer, message.snapshot);
      return;
    case "timeout-now":
      return;
    case "read-index":
      writer.varint(message.request);
      return;
    case "read-index-response":
      writer.varint(message.request);
      writer.varint(message.index);
      return;
    default:
      assertNever(message);
  }
}

function writeAppend(writer: FrameWriter, message: AppendMessage): void {
  writer.varint(message.prevIndex);
  writer.varint(message.prevTerm);
  writer.varint(message.commit);
  writer.varint(message.entries.length);
  for (const entry of message.entries) {
    writer.byte(entry.kind === "configuration" ? 1 : 0);
    writer.varint(entry.term);
    writer.varint(entry.index);
    writer.bytes(entry.data);
  }
}

function writeSnapshot(writer: FrameWriter, snapshot: SnapshotMetadata): void {
  writer.varint(snapshot.index);
  writer.varint(snapshot.term);
  const configuration = snapshot.configuration;
  writeIds(writer, configuration.voters);
  writeIds(writer, configuration.outgoing);
  writeIds(writer, configuration.learners);
  writeIds(writer, configuration.learnersNext);
  writer.byte(configuration.autoLeave ? 1 : 0);
}

function writeIds(writer: FrameWriter, ids: readonly MemberId[]): void {
  writer.varint(ids.length);
  for (const id of ids) writer.varint(id);
}

function configurationBytesBound(configuration: Configuration): number {
  const { voters, outgoing, learners, learnersNext } = configuration;
  return 8 * (voters.length + outgoing.length + learners.length + learnersNext.length);
}

function readMessage(reader: BodyReader): Message {
  const kind = reader.byte();
  const from = reader.varint() as MemberId;
  const to = reader.varint() as MemberId;
  const term = reader.varint() as Term;
  switch (kind) {
    case KIND.append:
      return readAppend(reader, { from, to, term });
    case KIND["append-response"]:
      return readAppendResponse(reader, { from, to, term });
    case KIND.heartbeat: {
      const commit = reader.varint() as LogIndex;
      return { kind: "heartbeat", from, to, term, commit, readRound: reader.varint() };
    }
    case KIND["heartbeat-response"]:
      return { kind: "heartbeat-response", from, to, term, readRound: reader.varint() };
    case KIND.vote:
    case KIND["pre-vote"]: {
      const lastIndex = reader.varint() as LogIndex;
      const lastTerm = reader.varint() as Term;
      const name = kind === KIND.vote ? "vote" : "pre-vote";
      return { kind: name, from, to, term, lastIndex, lastTerm, transfer: reader.boolean() };
    }
    case KIND["vote-response"]:
    case KIND["pre-vote-response"]: {
      const granted = reader.boolean();
      const index = reader.varint() as LogIndex;
      const committed = { index, term: reader.varint() as Term };
      const name = kind === KIND["vote-response"] ? "vote-response" : "pre-vote-response";
      return { kind: name, from, to, term, granted, ...(index > 0 && { committed }) };
    }
    case KIND.snapshot:
      return { kind: "snapshot", from, to, term, snapshot: readSnapshot(reader) };
    case KIND["timeout-now"]:
      return { kind: "timeout-now", from, to, term };
    case KIND["read-index"]:
      return { kind: "read-index", from, to, term, request: reader.varint() };
    case KIND["read-index-response"]: {
      const request = reader.varint();
      return { kind: "read-index-response", from, to, term, request, index: reader.varint() as LogIndex };
    }
    default:
      throw new ProtocolError(`unknown message kind ${kind}`);
  }
}

interface Head {
  readonly from: MemberId;
  readonly to: MemberId;
  readonly term: Term;
}

function readAppend(reader: BodyReader, { from, to, term }: Head): AppendMessage {
  const prevIndex = reader.varint() as LogIndex;
  const prevTerm = reader.varint() as Term;
  const commit = reader.varint() as LogIndex;
  const count = reader.count();
  const entries: Entry[] = [];
  for (let i = 0; i < count; i++) {
    const configuration = reader.boolean();
    const entryTerm = reader.varint() as Term;
    const index = reader.varint() as LogIndex;
    const data = reader.bytes();
    entries.push({ term: entryTerm, index, kind: configuration ? "configuration" : "normal", data });
  }
  return { kind: "append", from, to, term, prevIndex, prevTerm, entries, commit };
}

function readAppendResponse(reader: BodyReader, { from, to, term }: Head): AppendResponse {
  const index = reader.varint() as LogIndex;
  const rejected = reader.boolean();
  const hintIndex = reader.varint() as LogIndex;
  const hintTerm = reader.varint() as Term;
  return { kind: "append-response", from, to, term, index, rejected, hintIndex, hintTerm };
}

function readSnapshot(reader: BodyReader): SnapshotMetadata {
  const index = reader.varint() as LogIndex;
  const term = reader.varint() as Term;
  const voters = readIds(reader);
  const outgoing = readIds(reader);
  const learners = readIds(reader);
  const learnersNext = readIds(reader);
  const autoLeave = reader.boolean();
  return { index, term, configuration: { voters, outgoing, learners, learnersNext, autoLeave } };
}

function readIds(reader: BodyReader): MemberId[] {
  const count = reader.count();
  const ids: MemberId[] = [];
  for (let i = 0; i < count; i++) ids.push(reader.varint() as MemberId);
  return ids;
}
