import assert from "node:assert/strict";
import { test } from "node:test";
import { compareResourceVersions, isAtLeast, isOlder } from "./resource-version.ts";
import { backoffMs } from "./runtime.ts";
import { ManualRuntime } from "./testing/index.ts";
import { TokenBucket } from "./token-bucket.ts";
import { readLines } from "./watch-lines.ts";

test("resourceVersions are compared as numbers of any length, and not at all when they are none", () => {
  assert.ok(isOlder("9", "10"));
  assert.ok(isOlder("18446744073709551615", "18446744073709551616"));
  assert.ok(isAtLeast("10", "10"));
  assert.equal(compareResourceVersions("abc", "10"), undefined);
  assert.equal(compareResourceVersions("010", "10"), undefined);
  assert.equal(compareResourceVersions(undefined, "10"), undefined);
  assert.ok(!isOlder("abc", "abd") && !isAtLeast("abd", "abc"));
});

test("a back-off doubles up to its limit and never leaves the upper half of its interval", () => {
  const limits = { baseMs: 5, maxMs: 300_000 };
  for (const [failures, whole] of [
    [1, 5],
    [2, 10],
    [10, 2_560],
    [17, 300_000],
    [5_000, 300_000],
  ] as const) {
    assert.equal(
      backoffMs(limits, failures, () => 0),
      whole / 2,
    );
    assert.ok(backoffMs(limits, failures, () => 0.999) <= whole);
  }
});

test("a bucket spends its burst, then its rate, refuses waits that are too long, and pauses when told", async () => {
  const runtime = new ManualRuntime();
  const bucket = new TokenBucket({ runtime, rate: 10, burst: 2 });
  assert.deepEqual([bucket.take(), bucket.take(), bucket.take(), bucket.take()], [0, 0, 100, 200]);
  assert.equal(bucket.take(250), undefined);
  await runtime.advance(1_000);
  assert.equal(bucket.take(0), 0);
  bucket.pause(5_000);
  assert.equal(bucket.take(1_000), undefined);
  assert.equal(bucket.take(), 5_000);
});

test("lines are cut wherever the chunks are, a line cut off at the end is dropped, a huge one is refused", async () => {
  const chunks = async function* (...texts: string[]): AsyncGenerator<Uint8Array> {
    for (const text of texts) yield await Promise.resolve(Buffer.from(text));
  };
  const options = { lineBytesMax: 8, onBytes: (): void => undefined };
  const read = async (...texts: string[]): Promise<string[]> => {
    const lines: string[] = [];
    for await (const line of readLines(chunks(...texts), options)) lines.push(line);
    return lines;
  };
  assert.deepEqual(await read("a\nbb", "cc\n\n", "\nd\ne"), ["a", "bbcc", "d"]);
  await assert.rejects(read("1234", "5678", "9\n"), { name: "KubeError", reason: "unavailable" });
});
