import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { MessageReader, withPrefix } from "./pooled-transport.ts";

describe("the messages of a stream", () => {
  const messages = ["", "a", "some more", "x".repeat(7_000)];
  const wire = Buffer.concat(messages.map((message) => withPrefix(Buffer.from(message))));

  for (const size of [1, 4, 5, 6, 1_000, wire.length]) {
    it(`are the ones that were sent, when the connection cuts them after ${String(size)} bytes`, () => {
      const got: string[] = [];
      const reader = new MessageReader((message) => got.push(message.toString()));
      for (let at = 0; at < wire.length; at += size) reader.push(wire.subarray(at, at + size));
      assert.deepEqual(got, messages);
    });
  }
});
