import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { Configuration, Entry, LogIndex, MemberId, Message, Term } from "../raft/types.ts";
import { decodeMessages, decodeNotice, encodeMessages, encodeNotice, encodedBytesBound } from "./codec.ts";
import { ProtocolError } from "./errors.ts";
import { FRAME, FrameReader } from "./frame.ts";

const number = fc.oneof(
  fc.nat(300),
  fc.maxSafeNat(),
  fc.constantFrom(0, 127, 128, 2 ** 31 - 1, 2 ** 31, 2 ** 32, Number.MAX_SAFE_INTEGER),
);
const index = number as fc.Arbitrary<LogIndex>;
const term = number as fc.Arbitrary<Term>;
const member = number as fc.Arbitrary<MemberId>;
const members = fc.array(member, { maxLength: 6 });
const data = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  fc.integer({ min: 0, max: 70_000 }).map((length) => new Uint8Array(length).fill(length % 251)),
);
const entry: fc.Arbitrary<Entry> = fc.record({
  term,
  index,
  kind: fc.constantFrom("normal" as const, "configuration" as const),
  data,
});
const configuration: fc.Arbitrary<Configuration> = fc.record({
  voters: members,
  outgoing: members,
  learners: members,
  learnersNext: members,
  autoLeave: fc.boolean(),
});
const head = { from: member, to: member, term };
const anyMessage: fc.Arbitrary<Message> = fc.oneof(
  fc.record({
    kind: fc.constant("append" as const),
    ...head,
    prevIndex: index,
    prevTerm: term,
    entries: fc.array(entry, { maxLength: 5 }),
    commit: index,
  }),
  fc.record({
    kind: fc.constant("append-response" as const),
    ...head,
    index,
    rejected: fc.boolean(),
    hintIndex: index,
    hintTerm: term,
  }),
  fc.record({ kind: fc.constant("heartbeat" as const), ...head, commit: index, readRound: number }),
  fc.record({ kind: fc.constant("heartbeat-response" as const), ...head, readRound: number }),
  fc.record({
    kind: fc.constantFrom("vote" as const, "pre-vote" as const),
    ...head,
    lastIndex: index,
    lastTerm: term,
    transfer: fc.boolean(),
  }),
  fc.record({
    kind: fc.constantFrom("vote-response" as const, "pre-vote-response" as const),
    ...head,
    granted: fc.boolean(),
  }),
  fc.record({
    kind: fc.constantFrom("vote-response" as const, "pre-vote-response" as const),
    ...head,
    granted: fc.constant(false),
    committed: fc.record({ index: index.map((value) => Math.max(1, value) as LogIndex), term }),
  }),
  fc.record({
    kind: fc.constant("snapshot" as const),
    ...head,
    snapshot: fc.record({ index, term, configuration }),
  }),
  fc.record({ kind: fc.constant("timeout-now" as const), ...head }),
  fc.record({ kind: fc.constant("read-index" as const), ...head, request: number }),
  fc.record({ kind: fc.constant("read-index-response" as const), ...head, request: number, index }),
);

/** The same shape whatever the byte container is. */
function plain(messages: readonly Message[]): unknown {
  const shapes = messages.map((message) => {
    if (message.kind !== "append") return message;
    return {
      ...message,
      entries: message.entries.map((e) => ({ ...e, data: Buffer.from(e.data).toString("hex") })),
    };
  });
  return JSON.parse(JSON.stringify(shapes));
}

function cut(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const chunks: Buffer[] = [];
  let offset = 0;
  for (let i = 0; offset < bytes.length; i++) {
    const size = sizes[i % sizes.length]!;
    chunks.push(bytes.subarray(offset, offset + size));
    offset += size;
  }
  return chunks;
}

describe("the message codec", () => {
  it("gives back every message it was given, however the stream is cut", () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(anyMessage, { maxLength: 8 }), { minLength: 1, maxLength: 4 }),
        fc.array(fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 90_000 })), {
          minLength: 1,
          maxLength: 5,
        }),
        (turns, sizes) => {
          const frames = turns.map((turn) => encodeMessages(turn));
          for (const frame of frames) {
            assert.equal(
              frame.bytes,
              frame.parts.reduce((sum, part) => sum + part.length, 0),
            );
          }
          const stream = Buffer.concat(frames.flatMap((frame) => frame.parts));
          const reader = new FrameReader(64 * 1024 * 1024);
          const seen: Message[][] = [];
          for (const chunk of cut(stream, sizes)) {
            reader.push(chunk, (kind, body) => {
              assert.equal(kind, FRAME.messages);
              seen.push(decodeMessages(body));
            });
          }
          assert.deepEqual(seen.map(plain), turns.map(plain));
        },
      ),
      { numRuns: 150 },
    );
  });

  it("never takes more bytes than its bound says", () => {
    fc.assert(
      fc.property(fc.array(anyMessage, { maxLength: 6 }), (messages) => {
        const bound = messages.reduce((sum, message) => sum + encodedBytesBound(message), 32);
        assert.ok(encodeMessages(messages).bytes <= bound);
      }),
    );
  });

  it("refuses cut and altered bodies with ProtocolError and nothing else", () => {
    fc.assert(
      fc.property(
        fc.array(anyMessage, { minLength: 1, maxLength: 3 }),
        fc.nat(),
        fc.nat(255),
        fc.boolean(),
        (messages, position, byte, truncate) => {
          const body = Buffer.concat(encodeMessages(messages).parts).subarray(9);
          const at = position % body.length;
          const broken = truncate ? body.subarray(0, at) : Buffer.from(body);
          if (!truncate) broken[at] = byte;
          try {
            decodeMessages(broken);
            assert.ok(!truncate, "a truncated body cannot be complete");
          } catch (error) {
            assert.ok(error instanceof ProtocolError, String(error));
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  it("sends large data by reference and hands out views on receiving", () => {
    const payload = Buffer.alloc(10_000, 7);
    const message: Message = {
      kind: "append",
      from: 1 as MemberId,
      to: 2 as MemberId,
      term: 1 as Term,
      prevIndex: 0 as LogIndex,
      prevTerm: 0 as Term,
      entries: [{ term: 1 as Term, index: 1 as LogIndex, kind: "normal", data: payload }],
      commit: 0 as LogIndex,
    };
    const { parts } = encodeMessages([message]);
    assert.ok(parts.includes(payload));
    const body = Buffer.concat(parts).subarray(9);
    const [decoded] = decodeMessages(body);
    assert.ok(decoded?.kind === "append");
    assert.equal(decoded.entries[0]!.data.buffer, body.buffer);
  });

  it("keeps a notice, and ignores what a newer peer adds", () => {
    for (const digestIndex of [-1, 0, 5_000_000_000]) {
      const notice = { digestIndex, digestHash: 0xffff_ffff, spaceLow: true, formatVersionMax: 3 };
      const body = Buffer.concat(encodeNotice(notice).parts).subarray(9);
      assert.deepEqual(decodeNotice(body), notice);
      assert.deepEqual(decodeNotice(Buffer.concat([body, Buffer.of(9, 9)])), notice);
    }
  });
});

describe("the frame reader", () => {
  it("refuses a wrong checksum", () => {
    const bytes = Buffer.concat(encodeMessages([]).parts);
    bytes[9] = 1;
    assert.throws(() => new FrameReader(1_000).push(bytes, () => assert.fail("delivered")), ProtocolError);
  });

  it("refuses lengths of zero and beyond the bound before it allocates", () => {
    for (const length of [0, 1_001, 0xffff_ffff]) {
      const prefix = Buffer.alloc(8);
      prefix.writeUInt32LE(length);
      const reader = new FrameReader(1_000);
      assert.throws(() => {
        for (const byte of prefix) reader.push(Buffer.of(byte), () => assert.fail("delivered"));
      }, ProtocolError);
    }
  });

  it("allocates no more than was received for a large claimed length", () => {
    const reader = new FrameReader(0xffff_fff0);
    const prefix = Buffer.alloc(100);
    prefix.writeUInt32LE(0xffff_0000);
    const before = process.memoryUsage().arrayBuffers;
    for (let i = 0; i < 200; i++) reader.push(i === 0 ? prefix : Buffer.alloc(100), () => undefined);
    assert.ok(process.memoryUsage().arrayBuffers - before < 32 * 1024 * 1024);
  });
});
