import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ManualRuntime, mulberry32, settle } from "./testing/index.ts";
import { TokenBucket } from "./token-bucket.ts";
import { KubeError } from "./types.ts";
import { WorkQueue } from "./work-queue.ts";
import type { WorkQueueOptions, WorkResult } from "./work-queue.ts";

interface Pass {
  readonly key: string;
  readonly signal: AbortSignal;
  readonly end: (result?: WorkResult) => Promise<void>;
  readonly fail: (error: Error) => Promise<void>;
}

interface Setting {
  readonly runtime: ManualRuntime;
  readonly queue: WorkQueue;
  readonly passes: Pass[];
  readonly reports: string[];
}

function setting(options: (runtime: ManualRuntime) => Partial<WorkQueueOptions> = () => ({})): Setting {
  const runtime = new ManualRuntime();
  const passes: Pass[] = [];
  const reports: string[] = [];
  const queue = new WorkQueue({
    name: "test",
    runtime,
    work: (key, signal) =>
      new Promise((resolve, reject) => {
        const end = (result?: WorkResult): Promise<void> => {
          resolve(result);
          return settle();
        };
        const fail = (error: Error): Promise<void> => {
          reject(error);
          return settle();
        };
        passes.push({ key, signal, end, fail });
      }),
    report: (message, error) => reports.push(`${message}: ${error.message}`),
    ...options(runtime),
  });
  queue.start();
  return { runtime, queue, passes, reports };
}

const keys = (passes: readonly Pass[]): string[] => passes.map(({ key }) => key);

describe("a work queue", () => {
  it("works on each key once however often it was added, in order, and no more at once than it may", () => {
    const { queue, passes } = setting(() => ({ concurrency: 2 }));
    for (const key of ["a", "b", "c", "c", "b", "d", "c"]) queue.add(key);
    assert.deepEqual(keys(passes), ["a", "b"]);
    assert.deepEqual([queue.depth, queue.working], [2, 2]);
  });

  it("never works on a key twice at once; what was added meanwhile makes one more pass", async () => {
    const { queue, passes } = setting();
    queue.add("a");
    queue.add("a");
    queue.add("a");
    assert.deepEqual(keys(passes), ["a"]);
    await passes[0]?.end();
    assert.deepEqual(keys(passes), ["a", "a"]);
    await passes[1]?.end();
    assert.deepEqual([passes.length, queue.working, queue.depth], [2, 0, 0]);
  });

  it("backs a failing key off, ever longer, and forgets its failures with the first success", async () => {
    const { queue, passes, runtime, reports } = setting();
    queue.add("a");
    for (let failures = 0; failures < 20; failures += 1) {
      await passes.at(-1)?.fail(new Error("no"));
      const before = passes.length;
      const whole = Math.min(30_000, 5 * 2 ** failures);
      await runtime.advance(whole / 2 - 1);
      assert.equal(passes.length, before, `sooner than half of ${whole}`);
      await runtime.advance(whole / 2 + 1);
      assert.equal(passes.length, before + 1, `later than ${whole}`);
    }
    await passes.at(-1)?.end();
    queue.add("a");
    await passes.at(-1)?.fail(new Error("no"));
    await runtime.advance(5);
    assert.equal(passes.length, 23);
    assert.equal(reports[0], "test: a: no");
  });

  it("waits as long as the server asked for", async () => {
    const { queue, passes, runtime } = setting();
    queue.add("a");
    await passes[0]?.fail(new KubeError("throttled", "slowly", { retryAfterMs: 7_000 }));
    await runtime.advance(6_999);
    assert.equal(passes.length, 1);
    await runtime.advance(1);
    assert.equal(passes.length, 2);
  });

  it("takes the earliest of several times, and a pass that begins forgets them", async () => {
    const { queue, passes, runtime } = setting();
    queue.addAfter("a", 10_000);
    queue.addAfter("a", 1_000);
    queue.addAfter("a", 5_000);
    await runtime.advance(1_000);
    assert.equal(passes.length, 1);
    await passes[0]?.end({ requeueAfterMs: 60_000 });
    queue.add("a");
    await passes[1]?.end();
    await runtime.advance(1_000_000);
    assert.equal(passes.length, 2);
    assert.equal(runtime.pending, 0);
  });

  it("begins no more passes than its bucket allows, even in a hot loop", async () => {
    const { queue, passes, runtime } = setting((clock) => ({
      bucket: new TokenBucket({ runtime: clock, rate: 2, burst: 3 }),
    }));
    queue.add("a");
    for (let ms = 0; ms < 10_000; ms += 100) {
      if (queue.working > 0) await passes.at(-1)?.end({ requeueAfterMs: 0 });
      await runtime.advance(100);
    }
    assert.ok(passes.length >= 20 && passes.length <= 24, String(passes.length));
  });

  it("drops and tells what does not fit", () => {
    const { queue, reports } = setting(() => ({ keysMax: 2, concurrency: 1 }));
    for (const key of ["working", "a", "b", "c"]) queue.add(key);
    queue.addAfter("d", 10);
    assert.equal(queue.depth, 2);
    assert.deepEqual(reports, ["test: c: dropped: more than 2 keys", "test: d: dropped: more than 2 keys"]);
  });

  it("drains: begins nothing more, waits for what is under way, and then breaks it off", async () => {
    const { queue, passes, runtime } = setting();
    queue.add("a");
    queue.add("b");
    queue.addAfter("c", 10);
    const drained = queue.drain(5_000);
    queue.add("d");
    await passes[0]?.fail(new Error("no"));
    await runtime.advance(4_999);
    assert.equal(passes[1]?.signal.aborted, false);
    await runtime.advance(1);
    assert.equal(passes[1].signal.aborted, true);
    await passes[1].end();
    assert.equal(await drained, false);
    assert.deepEqual([passes.length, runtime.pending], [2, 0]);
    const { queue: quick, passes: ended } = setting();
    quick.add("a");
    const clean = quick.drain(5_000);
    await ended[0]?.end();
    assert.equal(await clean, true);
  });

  it("in any history: one pass a key at a time, and a pass begins after every addition", async () => {
    for (let seed = 1; seed <= 100; seed += 1) {
      const random = mulberry32(seed);
      const runtime = new ManualRuntime(seed);
      const active = new Set<string>();
      const unseen = new Set<string>();
      const queue = new WorkQueue({
        name: "test",
        runtime,
        concurrency: 1 + Math.floor(random() * 3),
        work: async (key) => {
          assert.ok(!active.has(key), `seed ${seed}: ${key} twice at once`);
          active.add(key);
          unseen.delete(key);
          await new Promise<void>((resolve) => runtime.after(random() * 100, resolve));
          active.delete(key);
          if (random() < 0.3) throw new Error("no");
          return random() < 0.2 ? { requeueAfterMs: random() * 500 } : undefined;
        },
      });
      queue.start();
      for (let step = 0; step < 200; step += 1) {
        const key = `k${Math.floor(random() * 5)}`;
        if (random() < 0.8) {
          unseen.add(key);
          queue.add(key);
        } else queue.addAfter(key, random() * 200);
        await runtime.advance(random() * 20);
      }
      await runtime.advance(10_000);
      assert.deepEqual([...unseen], [], `seed ${seed}`);
      await queue.drain(0);
    }
  });
});
