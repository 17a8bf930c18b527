/** Frames between members: the byte stream, and the bodies of Raft messages, notices, handshakes and snapshots. */
import { crc32 } from "node:zlib";
import {
  decodeMessages,
  decodeNotice,
  encodeMessages,
  encodeNotice,
} from "../../../cell/src/transport/codec.ts";
import { ProtocolError } from "../../../cell/src/transport/errors.ts";
import {
  BodyReader,
  FRAME,
  FRAME_HEADER_BYTES,
  FrameReader,
  FrameWriter,
} from "../../../cell/src/transport/frame.ts";
import type { Frame } from "../../../cell/src/transport/frame.ts";
import {
  decodeHello,
  decodeWelcome,
  encodeHello,
  encodeWelcome,
} from "../../../cell/src/transport/handshake.ts";
import type { PeerNotice } from "../../../cell/src/transport/types.ts";
import type { Configuration, LogIndex, MemberId, Message, Term } from "../../../cell/src/raft/types.ts";
import type { Target } from "../contract.ts";
import type { Dice } from "../generate/dice.ts";
import { input } from "../generate/mutate.ts";
import * as values from "../generate/values.ts";
import { assertLaw, assertRoundTrip } from "./laws.ts";

/** One for all: each has a slab of its own otherwise. */
const writer = new FrameWriter();

const refused = (error: unknown): boolean => error instanceof ProtocolError;
const index = (dice: Dice): LogIndex => values.number(dice) as LogIndex;
const term = (dice: Dice): Term => values.number(dice) as Term;

function configuration(dice: Dice): Configuration {
  const ids = (): MemberId[] => dice.list(5, () => values.number(dice) as MemberId);
  return {
    voters: ids(),
    outgoing: ids(),
    learners: ids(),
    learnersNext: ids(),
    autoLeave: values.flag(dice),
  };
}

function message(dice: Dice): Message {
  const head = {
    from: values.number(dice) as MemberId,
    to: values.number(dice) as MemberId,
    term: term(dice),
  };
  switch (dice.below(10)) {
    case 0:
      return {
        kind: "append-response",
        ...head,
        index: index(dice),
        rejected: values.flag(dice),
        hintIndex: index(dice),
        hintTerm: term(dice),
      };
    case 1:
      return { kind: "heartbeat", ...head, commit: index(dice), readRound: values.number(dice) };
    case 2:
      return { kind: "heartbeat-response", ...head, readRound: values.number(dice) };
    case 3: {
      const kind = dice.pick(["vote", "pre-vote"] as const);
      return { kind, ...head, lastIndex: index(dice), lastTerm: term(dice), transfer: values.flag(dice) };
    }
    case 4: {
      const kind = dice.pick(["vote-response", "pre-vote-response"] as const);
      const committed = { index: (1 + dice.below(1000)) as LogIndex, term: term(dice) };
      return { kind, ...head, granted: values.flag(dice), ...(dice.once(2) && { committed }) };
    }
    case 5:
      return {
        kind: "snapshot",
        ...head,
        snapshot: { index: index(dice), term: term(dice), configuration: configuration(dice) },
      };
    case 6:
      return { kind: "timeout-now", ...head };
    case 7:
      return dice.once(2)
        ? { kind: "read-index", ...head, request: values.number(dice) }
        : { kind: "read-index-response", ...head, request: values.number(dice), index: index(dice) };
    default:
      return {
        kind: "append",
        ...head,
        prevIndex: index(dice),
        prevTerm: term(dice),
        commit: index(dice),
        entries: dice.list(6, () => ({
          term: term(dice),
          index: index(dice),
          kind: dice.pick(["normal", "configuration"] as const),
          // Above 2 KiB the writer takes data by reference.
          data: dice.once(20) ? dice.bytes(3_000) : values.bytes(dice),
        })),
      };
  }
}

function notice(dice: Dice): PeerNotice {
  return {
    digestIndex: dice.once(4) ? -1 : dice.below(1_000_000),
    digestHash: dice.uint32(),
    spaceLow: values.flag(dice),
    formatVersionMax: values.number(dice),
  };
}

function whole(frame: Frame): Buffer {
  return Buffer.concat(frame.parts);
}

function body(frame: Frame): Buffer {
  return whole(frame).subarray(FRAME_HEADER_BYTES);
}

function hello(dice: Dice): Frame {
  const identity = {
    cellId: values.text(dice),
    memberId: values.number(dice) as MemberId,
    incarnation: values.text(dice),
  };
  return encodeHello(
    identity,
    values.number(dice) as MemberId,
    dice.pick(["raft", "forward", "snapshot"] as const),
  );
}

function welcome(dice: Dice): Frame {
  return encodeWelcome(
    dice.once(2) ? { ok: true, incarnation: values.text(dice) } : { ok: false, reason: values.text(dice) },
  );
}

/** An offer, an acknowledgement or a chunk of a snapshot stream: what the inbox and the sender read. */
function snapshotFrame(dice: Dice): Frame {
  writer.begin(dice.pick([FRAME.offer, FRAME.chunk, FRAME.taken, FRAME.finish, FRAME.abort]));
  writer.string(values.text(dice));
  writer.bytes(values.bytes(dice));
  return writer.finish();
}

function anyFrame(dice: Dice): Frame {
  switch (dice.below(5)) {
    case 0:
      return encodeNotice(notice(dice), writer);
    case 1:
      return hello(dice);
    case 2:
      return welcome(dice);
    case 3:
      return snapshotFrame(dice);
    default:
      return encodeMessages(
        dice.list(4, () => message(dice)),
        writer,
      );
  }
}

/** Makes the checksums of whole frames right. */
function resealFrames(bytes: Buffer): Buffer {
  const sealed = Buffer.from(bytes);
  for (let at = 0; at + FRAME_HEADER_BYTES <= sealed.length;) {
    const length = sealed.readUInt32LE(at);
    const end = at + FRAME_HEADER_BYTES - 1 + length;
    if (length < 1 || end > sealed.length) break;
    sealed.writeUInt32LE(crc32(sealed.subarray(at + FRAME_HEADER_BYTES - 1, end)), at + 4);
    at = end;
  }
  return sealed;
}

/** As every receiver of that kind of frame reads it. */
function decodeBody(kind: number, data: Buffer): unknown {
  switch (kind) {
    case FRAME.hello:
      return decodeHello(data);
    case FRAME.welcome:
      return decodeWelcome(data);
    case FRAME.messages:
      return decodeMessages(data);
    case FRAME.notice:
      return decodeNotice(data);
    case FRAME.offer: {
      const reader = new BodyReader(data);
      return { id: reader.string(), header: reader.bytes() };
    }
    case FRAME.ping:
    case FRAME.pong:
      return undefined;
    default: {
      const reader = new BodyReader(data);
      return { number: reader.varint(), rest: reader.rest() };
    }
  }
}

const FRAME_BYTES_MAX = 64 * 1024 * 1024;

/** Cut into chunks as a socket might; the cuts follow from the bytes, so that a case is its bytes alone. */
function readStream(bytes: Buffer, cut: boolean): unknown[] {
  const frames: unknown[] = [];
  const reader = new FrameReader(FRAME_BYTES_MAX);
  let state = crc32(bytes);
  for (let at = 0; at < bytes.length;) {
    state = (Math.imul(state, 0x5bd1e995) + 1) >>> 0;
    const length = cut ? 1 + ((state >>> 16) % (state % 3 === 0 ? 7 : 900)) : bytes.length;
    reader.push(bytes.subarray(at, at + length), (kind, data) => {
      frames.push([kind, decodeBody(kind, Buffer.from(data))]);
    });
    at += length;
  }
  return frames;
}

const PEER_STREAM: Target = {
  name: "peer-stream",
  about: "the bytes of a peer connection in chunks of any size (cell/transport); refused with ProtocolError",
  weight: 2,
  // The reader may take 1 MiB for a frame that announces itself larger, and twice what arrived (FORMAT.md).
  bounds: { allocatedBytes: 2 * 1024 * 1024 },
  generate: (dice) =>
    input(
      dice,
      (inner) => Buffer.concat(Array.from({ length: inner.between(1, 4) }, () => whole(anyFrame(inner)))),
      { reseal: resealFrames },
    ),
  decode: (bytes) => readStream(bytes, true),
  refused,
  check: (value, { bytes }) => {
    assertLaw(
      JSON.stringify(readStream(bytes, false)) === JSON.stringify(value),
      "the same bytes in one chunk are other frames",
    );
  },
};

const asBytes = (frame: Frame): Buffer => body(frame);

const PEER_MESSAGES: Target = {
  name: "peer-messages",
  about: "the body of a messages frame (cell/transport/codec); refused with ProtocolError",
  weight: 2,
  generate: (dice) =>
    input(dice, (inner) =>
      asBytes(
        encodeMessages(
          inner.list(5, () => message(inner)),
          writer,
        ),
      ),
    ),
  decode: (bytes) => decodeMessages(bytes),
  refused,
  check: (value) =>
    assertRoundTrip(
      value as Message[],
      (messages) => asBytes(encodeMessages(messages, writer)),
      (bytes) => decodeMessages(bytes),
    ),
};

const PEER_NOTICE: Target = {
  name: "peer-notice",
  about: "the body of a notice frame; refused with ProtocolError",
  weight: 0.5,
  generate: (dice) => input(dice, (inner) => asBytes(encodeNotice(notice(inner), writer))),
  decode: decodeNotice,
  refused,
  check: (value) =>
    assertRoundTrip(value as PeerNotice, (told) => asBytes(encodeNotice(told, writer)), decodeNotice),
};

const PEER_HANDSHAKE: Target = {
  name: "peer-handshake",
  about: "hello and welcome from strangers (cell/transport/handshake); refused with ProtocolError",
  weight: 0.5,
  generate: (dice) =>
    input(dice, (inner) => whole(inner.once(2) ? hello(inner) : welcome(inner)).subarray(8)),
  decode: (bytes) => {
    const [kind] = bytes;
    if (kind === FRAME.hello) return decodeHello(bytes.subarray(1));
    if (kind === FRAME.welcome) return decodeWelcome(bytes.subarray(1));
    throw new ProtocolError("neither hello nor welcome");
  },
  refused,
};

export const TRANSPORT_TARGETS: readonly Target[] = [PEER_STREAM, PEER_MESSAGES, PEER_NOTICE, PEER_HANDSHAKE];
