import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { MessageReader, withPrefix } from "./grpc-messages.ts";

function reading(bytesMax = 1_000): { readonly reader: MessageReader; readonly messages: Buffer[] } {
  const messages: Buffer[] = [];
  return { reader: new MessageReader(bytesMax, (message) => messages.push(message)), messages };
}

describe("messages of a gRPC stream", () => {
  it("are what was sent, wherever the stream is cut", () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 8 }),
        fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 20 }),
        (sent, pieces) => {
          const { reader, messages } = reading();
          const bytes = Buffer.concat(sent.map(withPrefix));
          for (let start = 0, n = 0; start < bytes.length; n += 1) {
            const end = start + (pieces[n % pieces.length] ?? 1);
            reader.push(bytes.subarray(start, end));
            start = end;
          }
          assert.deepEqual(
            messages.map((message) => message.toString("hex")),
            sent.map((message) => Buffer.from(message).toString("hex")),
          );
          assert.equal(reader.isInMessage, false);
        },
      ),
    );
  });

  it("are not copied when they came in one piece", () => {
    const { reader, messages } = reading();
    const chunk = Buffer.concat([withPrefix(Buffer.from("one")), withPrefix(Buffer.from("two"))]);
    reader.push(chunk);
    assert.deepEqual(messages.map(String), ["one", "two"]);
    for (const message of messages) assert.equal(message.buffer, chunk.buffer);
  });

  it("are refused by their prefix when they are too long or compressed", () => {
    const tooLong = withPrefix(Buffer.alloc(11)).subarray(0, 5);
    assert.throws(() => reading(10).reader.push(tooLong), /11 bytes, more than 10/);
    assert.throws(() => reading().reader.push(Buffer.from([1, 0, 0, 0, 0])), /compressed/);
  });

  it("that have begun are known to be unfinished", () => {
    const { reader, messages } = reading();
    reader.push(withPrefix(Buffer.from("half")).subarray(0, 7));
    assert.equal(reader.isInMessage, true);
    assert.deepEqual(messages, []);
  });
});

describe("the messages of a stream", () => {
  const sent = ["", "a", "some more", "x".repeat(7_000)];
  const wire = Buffer.concat(sent.map((message) => withPrefix(Buffer.from(message))));

  for (const size of [1, 4, 5, 6, 1_000, wire.length]) {
    it(`are the ones that were sent, when the connection cuts them after ${String(size)} bytes`, () => {
      const { reader, messages } = reading(10_000);
      for (let at = 0; at < wire.length; at += size) reader.push(wire.subarray(at, at + size));
      assert.deepEqual(messages.map(String), sent);
    });
  }
});
