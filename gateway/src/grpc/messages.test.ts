import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { GrpcCode } from "./call.ts";
import { GrpcError } from "./error.ts";
import { UNFINISHED_BYTES_MAX } from "./limits.ts";
import { MessageReader, framed } from "./messages.ts";

const MIB = 1024 * 1024;

interface Scene {
  readonly reader: MessageReader;
  readonly budget: { unfinishedBytes: number };
  /** Whole messages that `chunk` completes. */
  readonly feed: (chunk: Buffer) => Buffer[];
}

function scene(bytesMax: number = MIB, encoding?: string, budget = { unfinishedBytes: 0 }): Scene {
  const reader = new MessageReader({ bytesMax, encoding, budget });
  const feed = (chunk: Buffer): Buffer[] => {
    reader.push(chunk);
    const messages: Buffer[] = [];
    for (let next = reader.next(); next !== undefined; next = reader.next()) messages.push(next);
    return messages;
  };
  return { reader, budget, feed };
}

function prefix(flag: number, length: number): Buffer {
  const bytes = Buffer.from([flag, 0, 0, 0, 0]);
  bytes.writeUInt32BE(length, 1);
  return bytes;
}

function fails(code: GrpcCode, details: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof GrpcError && error.status.code === code && details.test(error.message);
}

describe("messages of a call", () => {
  it("are the same however the bytes are cut", () => {
    const message = fc.uint8Array({ maxLength: 300 });
    const property = fc.property(
      fc.array(message, { maxLength: 8 }),
      fc.array(fc.nat(60)),
      (messages, cuts) => {
        const { reader, budget, feed } = scene();
        const bytes = Buffer.concat(messages.map((each) => framed(each, each.length)));
        const came: Buffer[] = [];
        let position = 0;
        for (const cut of cuts) {
          came.push(...feed(bytes.subarray(position, position + cut)));
          position += cut;
        }
        came.push(...feed(bytes.subarray(position)));
        assert.deepEqual(
          came.map((each) => [...each]),
          messages.map((each) => [...each]),
        );
        assert.equal(reader.isInMessage, false);
        assert.equal(reader.hasUnread, false);
        assert.equal(budget.unfinishedBytes, 0);
      },
    );
    fc.assert(property, { numRuns: 500 });
  });

  it("that come in one piece are not copied", () => {
    const { feed } = scene();
    const chunk = Buffer.concat([framed(Buffer.from("ab"), 2), framed(Buffer.from("c"), 1)]);
    const [first, second] = feed(chunk);
    assert.equal(first?.buffer, chunk.buffer);
    chunk.write("xy", 5);
    assert.equal(first.toString(), "xy");
    assert.equal(second?.toString(), "c");
  });

  it("that are too long are refused at their prefix, before anything is kept", () => {
    const { budget, feed } = scene(1_000);
    assert.throws(() => feed(prefix(0, 1_001)), fails(GrpcCode.RESOURCE_EXHAUSTED, /1001 bytes/));
    assert.equal(budget.unfinishedBytes, 0);
    assert.equal(scene(1_000).feed(framed(Buffer.alloc(1_000), 1_000)).length, 1);
    assert.throws(
      () => scene().feed(prefix(0, 2 ** 32 - 1)),
      fails(GrpcCode.RESOURCE_EXHAUSTED, /4294967295/),
    );
  });

  it("take memory by what has come, not by what was announced", () => {
    const { reader, budget, feed } = scene(MIB);
    feed(Buffer.concat([prefix(0, MIB), Buffer.from("x")]));
    assert.ok(budget.unfinishedBytes <= 4_096, String(budget.unfinishedBytes));
    for (let i = 0; i < 10_000; i += 1) feed(Buffer.from("x"));
    assert.ok(budget.unfinishedBytes <= 20_002, String(budget.unfinishedBytes));
    assert.equal(reader.isInMessage, true);
    reader.release();
    assert.equal(budget.unfinishedBytes, 0);
  });

  it("of one connection that are not whole are bounded together", () => {
    const budget = { unfinishedBytes: 0 };
    const half = Buffer.concat([prefix(0, 8 * MIB), Buffer.alloc(4 * MIB)]);
    const most = UNFINISHED_BYTES_MAX / (4 * MIB);
    const readers = Array.from({ length: most }, () => scene(8 * MIB, undefined, budget));
    for (const { feed } of readers) feed(half);
    assert.equal(budget.unfinishedBytes, UNFINISHED_BYTES_MAX);
    const oneMore = scene(8 * MIB, undefined, budget);
    assert.throws(() => oneMore.feed(half), fails(GrpcCode.RESOURCE_EXHAUSTED, /unfinished/));
    readers[0]?.reader.release();
    scene(8 * MIB, undefined, budget).feed(half);
  });

  it("may be gzip where the call says so; bombs and garbage are refused", () => {
    const text = Buffer.from("a".repeat(5_000));
    const packed = gzipSync(text);
    const message = Buffer.concat([prefix(1, packed.length), packed]);
    assert.deepEqual(scene(10_000, "gzip").feed(message), [text]);
    assert.throws(() => scene(4_999, "gzip").feed(message), fails(GrpcCode.RESOURCE_EXHAUSTED, /4999/));
    const garbage = Buffer.concat([prefix(1, 3), Buffer.from("abc")]);
    assert.throws(() => scene(10_000, "gzip").feed(garbage), fails(GrpcCode.INTERNAL, /gzip/));
    for (const encoding of [undefined, "identity"]) {
      assert.throws(() => scene(10_000, encoding).feed(message), fails(GrpcCode.INTERNAL, /compressed/));
    }
    assert.throws(() => scene(10_000, "gzip").feed(prefix(2, 0)), fails(GrpcCode.INTERNAL, /flags are 2/));
  });
});
