// A slow line is not a silent member: what takes long is waited for, on the stream where it is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualRuntime } from "../testing/manual-runtime.ts";
import { SlowLine } from "../testing/slow-line.ts";
import { Channel } from "./channel.ts";

const KEY = Buffer.from("key");

function setUp(bytesPerSecond: number): {
  readonly runtime: ManualRuntime;
  readonly line: SlowLine;
  readonly channel: Channel;
  /** Of requests: undefined, or the code of what went wrong. */
  readonly ends: (string | undefined)[];
  readonly put: (bytes: number) => void;
} {
  const runtime = new ManualRuntime();
  const line = new SlowLine(runtime, bytesPerSecond);
  const channel = new Channel({
    ...{ endpoints: ["slow:1"], namespace: "", epoch: 0, deadlineMs: 60_000, identity: "none" },
    ...{ requestsMax: 1_024, pendingBytesMax: 64 * 1024 * 1024, transport: line, runtime },
  });
  runtime.advance(200);
  assert.equal(channel.connected, true);
  const ends: (string | undefined)[] = [];
  const put = (bytes: number): void => {
    channel.putWith(KEY, Buffer.alloc(bytes), (error) => ends.push(error?.code));
  };
  return { runtime, line, channel, ends, put };
}

test("a request that takes ten seconds to arrive is sent once, on one stream", () => {
  const { runtime, line, ends, put } = setUp(100_000);
  put(1_000_000);
  runtime.advance(9_000);
  assert.deepEqual(ends, []);
  runtime.advance(2_000);
  assert.deepEqual(ends, [undefined]);
  assert.deepEqual([line.openedAt.length, line.requests], [1, 1]);
});

test("an answer that takes ten seconds to come is asked for once, on one stream", () => {
  const { runtime, line, channel, ends, put } = setUp(100_000);
  put(1_000_000);
  runtime.advance(11_000);
  channel.getWith(KEY, (error, result) => ends.push(error?.code ?? String(result?.kvs[0]?.value.length)));
  runtime.advance(9_000);
  assert.deepEqual(ends, [undefined]);
  runtime.advance(2_000);
  assert.deepEqual(ends, [undefined, "1000000"]);
  assert.deepEqual([line.openedAt.length, line.requests], [1, 2]);
});

test("a line that stops in the middle of a request is left a second later, and the request goes again", () => {
  const { runtime, line, channel } = setUp(100_000);
  const codes: (string | undefined)[] = [];
  // A read may go again: a large one, of a key that is not there.
  channel.getWith(Buffer.alloc(500_000, 65), (error) => codes.push(error?.code));
  runtime.advance(3_000);
  const [first] = line.links;
  assert.ok(first !== undefined);
  first.moves = false;
  runtime.advance(800);
  assert.equal(line.openedAt.length, 1);
  runtime.advance(800);
  assert.equal(line.openedAt.length, 2);
  assert.equal(first.isDestroyed, true);
  runtime.advance(6_000);
  assert.deepEqual(codes, [undefined]);
});

test("a member that takes in all that is sent and answers nothing is left after a second, however much is sent", () => {
  const { runtime, line, put } = setUp(1_000_000);
  line.answers = false;
  for (let i = 0; i < 8; i++) {
    put(50_000);
    runtime.advance(200);
  }
  assert.ok(line.openedAt.length >= 2, "it was looked for another stream");
});

test("a small request keeps no dead member alive, whatever our own system took in", () => {
  const { runtime, line, put } = setUp(1_000_000);
  const [first] = line.links;
  assert.ok(first !== undefined);
  first.moves = false;
  put(10);
  runtime.advance(1_600);
  assert.equal(first.isDestroyed, true);
});

test("a stream whose member asks to be left is replaced by another one to it, and what was asked on it is answered", () => {
  const { runtime, line, channel, ends, put } = setUp(100_000);
  const [first] = line.links;
  assert.ok(first !== undefined);
  put(200_000);
  runtime.advance(500);
  first.sink.leaving?.();
  first.sink.leaving?.();
  runtime.advance(500);
  assert.equal(line.openedAt.length, 2);
  assert.deepEqual([channel.connected, first.isDestroyed, ends], [true, false, []]);
  runtime.advance(2_000);
  assert.deepEqual(ends, [undefined]);
  assert.deepEqual([first.isDestroyed, line.openedAt.length, line.requests], [true, 2, 1]);
});

test("a stream that was replaced finishes a request that takes longer than replaced streams are given", () => {
  const { runtime, line, ends, put } = setUp(100_000);
  put(2_000_000);
  runtime.advance(500);
  line.links[0]?.sink.leaving?.();
  runtime.advance(21_000);
  assert.deepEqual(ends, [undefined]);
  assert.equal(line.requests, 1);
});
