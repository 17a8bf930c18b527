import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, it } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { promisify } from "node:util";
import { MessageChannel } from "node:worker_threads";
import * as coordination from "@lockstep/proto/coordination";
import { Channel } from "../channel/channel.ts";
import type { ChannelOptions } from "../channel/channel-options.ts";
import { GrpcTransport } from "../channel/grpc.ts";
import { HeldLease } from "../channel/leases.ts";
import { connect } from "../client.ts";
import { REAL_RUNTIME } from "../runtime.ts";
import { ThreadedMember } from "../testing/fake-cell-thread.ts";
import { UNREAD_BYTES_MAX, type FromRelay } from "./protocol.ts";
import { Relay } from "./relay.ts";
import { RelayClient } from "./relay-client.ts";
import { Deadlines, Pulse, sharedNowMs } from "./shared-clock.ts";

const TTL_MS = 800;
const MARGIN_MS = 200;

const OPTIONS = {
  ...{ namespace: "", epoch: 0, deadlineMs: 10_000, identity: "none" as const, requestsMax: 100 },
  ...{ pendingBytesMax: 1 << 20, transport: new GrpcTransport(undefined), runtime: REAL_RUNTIME },
} satisfies Omit<ChannelOptions, "endpoints">;

/** What a callback does that never gives the loop back. */
function keepLoopBusy(forMs: number): void {
  const until = performance.now() + forMs;
  while (performance.now() < until);
}

/** Asks the member again and again, each time a turn of both threads. */
async function untilWatches(member: ThreadedMember, wanted: number): Promise<void> {
  const until = performance.now() + 20_000;
  while ((await member.watches()) !== wanted) {
    assert.ok(performance.now() < until, `never ${wanted} watches`);
  }
}

const isLost = { code: "session-lost" } as const;

describe("a client whose channel is in a thread of its own", () => {
  it("keeps its session while a callback spins for several times the TTL, under a bound that allows it", async () => {
    await using member = await ThreadedMember.start();
    await using client = await connect({ endpoints: [member.address] });
    await using session = await client.session({
      ...{ ttlMs: TTL_MS, marginMs: MARGIN_MS },
      mainLoopStallMaxMs: 60_000,
    });
    const before = await member.renewals();
    keepLoopBusy(3 * TTL_MS);
    // Before anything that came meanwhile was read: the clocks and the shared deadline alone say so.
    session.assertAlive();
    await turn();
    assert.equal(session.state, "connected");
    assert.ok((await member.renewals()) - before >= 4, "renewed while the loop was busy");
  });

  it("gives it up by default once the loop was busy for more than a TTL, and knows before anything is read", async () => {
    await using member = await ThreadedMember.start();
    await using client = await connect({ endpoints: [member.address] });
    await using session = await client.session({ ttlMs: TTL_MS, marginMs: MARGIN_MS });
    const states: string[] = [];
    session.onStateChange((state) => states.push(state));
    // A TTL without a turn, then at most another one until the last renewal runs out.
    keepLoopBusy(2 * TTL_MS + 100);
    assert.throws(() => session.assertAlive(), isLost);
    assert.equal(session.remainingMs(), 0);
    if (!session.lost.aborted)
      await new Promise((resolve) => session.lost.addEventListener("abort", resolve));
    await turn();
    assert.deepEqual(states, ["lost"]);
    const renewals = await member.renewals();
    keepLoopBusy(TTL_MS / 2);
    assert.equal(await member.renewals(), renewals, "nobody renews what was given up");
  });

  it("stops by its own deadline when no renewal is answered, although it is connected", async () => {
    await using member = await ThreadedMember.start();
    await using client = await connect({ endpoints: [member.address] });
    await using session = await client.session({ ttlMs: TTL_MS, marginMs: MARGIN_MS });
    await member.stopRenewals();
    const left = session.remainingMs();
    assert.ok(left > 0 && left <= TTL_MS - MARGIN_MS, `a TTL less the margin: ${left}`);
    await new Promise((resolve) => session.lost.addEventListener("abort", resolve));
    assert.equal(session.remainingMs(), 0);
  });

  it("is told that it is connected and suspended, and comes back", async () => {
    await using member = await ThreadedMember.start();
    await using client = await connect({ endpoints: [member.address] });
    await using session = await client.session({ ttlMs: 10_000 });
    const states: string[] = [];
    const back = new Promise<void>((resolve) => {
      session.onStateChange((state) => {
        states.push(state);
        if (state === "connected") resolve();
      });
    });
    await member.breakStreams();
    await back;
    assert.deepEqual(states, ["suspended", "connected"]);
    assert.equal((await client.put("/after", "x")).kind, "put");
  });

  it("reads whole what was written while it was busy: in order and without a gap", async () => {
    await using member = await ThreadedMember.start();
    await using client = await connect({ endpoints: [member.address] });
    const watch = client.watch({ prefix: "/load/" }, { startRevision: 2 });
    await watch.created;
    const count = 400;
    // Four times what may be on its way between the threads.
    member.puts(count, 40 * 1024);
    keepLoopBusy(500);
    let next = 0;
    for await (const { kv } of watch) {
      assert.equal(kv.keyText, `/load/${String(next).padStart(5, "0")}`);
      assert.equal(kv.value[17], next & 255);
      next += 1;
      if (next === count) break;
    }
  });

  it("hands answers of every kind, refusals and their outcomes through", async () => {
    await using member = await ThreadedMember.start();
    await using client = await connect({ endpoints: [member.address] });
    const put = await client.put("/a", "1");
    assert.equal(put.createRevision, put.revision);
    assert.equal((await client.get("/a"))?.text(), "1");
    const txn = await client.txn({
      compares: [{ key: "/a", createRevision: 0 }],
      failure: [{ get: { key: "/a" } }],
    });
    assert.equal(txn.succeeded, false);
    assert.equal(txn.failures[0]?.actual?.text(), "1");
    await assert.rejects(client.leaseRevoke("12345"), { code: "lease-not-found", outcome: "not-applied" });
    const many = await Promise.all(
      Array.from({ length: 2_000 }, (_, n) => client.put(`/many/${n}`, String(n))),
    );
    assert.equal(new Set(many.map(({ revision }) => revision)).size, many.length);
  });

  it("a call that is given up before any member was there did not take effect, and says so", async () => {
    await using member = await ThreadedMember.start();
    await using client = await connect({ endpoints: [member.address] });
    await member[Symbol.asyncDispose]();
    await new Promise<void>((resolve) => {
      const stop = client.channel.onConnection((connected) => {
        if (connected) return;
        stop();
        resolve();
      });
    });
    const giveUp = new AbortController();
    const put = client.put("/a", "1", { signal: giveUp.signal });
    await turn();
    await turn();
    giveUp.abort();
    await assert.rejects(put, { code: "cancelled", outcome: "not-applied" });
    await assert.rejects(client.put("/a", "1", { deadlineMs: 200 }), {
      code: "unavailable",
      outcome: "not-applied",
    });
  });

  it("with `worker: false` the session ends with the main loop's silence, as its documentation says", async () => {
    await using member = await ThreadedMember.start();
    await using client = await connect({ endpoints: [member.address], worker: false });
    await using session = await client.session({
      ...{ ttlMs: TTL_MS, marginMs: MARGIN_MS },
      mainLoopStallMaxMs: 60_000,
    });
    keepLoopBusy(TTL_MS + 100);
    assert.throws(() => session.assertAlive(), isLost);
  });

  it("a program whose clients are closed ends by itself, and one that keeps a client open does not", async () => {
    await using member = await ThreadedMember.start();
    const program = (last: string): string => `
      import { connect } from ${JSON.stringify(new URL("../index.ts", import.meta.url).href)};
      const client = await connect({ endpoints: [${JSON.stringify(member.address)}] });
      await client.put("/a", "1");
      ${last}
      process.stdout.write("done");
    `;
    const run = (text: string): Promise<{ stdout: string }> =>
      promisify(execFile)(process.execPath, ["--input-type=module", "--eval", text], { timeout: 20_000 });
    assert.equal((await run(program("client.close();"))).stdout, "done");
    const kept = `setTimeout(() => { process.stdout.write(" and alive"); client.close(); }, 300).unref();`;
    assert.equal((await run(program(kept))).stdout, "done and alive");
  });

  it("does not run the program's preloads again in the thread, where one that connects would begin another", async () => {
    await using member = await ThreadedMember.start();
    const preload = `
      import { connect } from ${JSON.stringify(new URL("../index.ts", import.meta.url).href)};
      process.stdout.write("connects ");
      globalThis.client = await connect({ endpoints: [${JSON.stringify(member.address)}] });
    `;
    const url = `data:text/javascript,${encodeURIComponent(preload)}`;
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ["--eval", `client.get("/a").then(() => { process.stdout.write("once"); client.close(); })`],
      { timeout: 20_000, env: { ...process.env, NODE_OPTIONS: `--import=${url}` } },
    );
    assert.equal(stdout, "connects once");
  });
});

describe("the port between the threads", () => {
  it("holds no more than its bound for a main loop that does not read; the rest comes from the cell's history", async () => {
    await using member = await ThreadedMember.start();
    const channel = new Channel({ ...OPTIONS, endpoints: [member.address] });
    let unread = 0;
    let events = 0;
    const port = {
      postMessage(message: FromRelay): void {
        if (message.kind !== "frame") return;
        unread += message.frame.length;
        events += coordination.ServerFrame.decode(message.frame).watchEvents.length;
      },
    };
    using relay = new Relay({ channel, port, runtime: REAL_RUNTIME, pulse: new Pulse(), sharedNowMs });
    const create = {
      ...{ watchId: 9, startRevision: 2, returnPrevious: false, omitPuts: false, omitDeletes: false },
      range: { key: Buffer.from("/"), rangeEnd: Buffer.from("0") },
    };
    const frame = coordination.ClientFrame.encode({
      ...{ namespace: "", epoch: 0, requests: [], renew: undefined },
      ...{ watchCreates: [create], watchCancels: [], watchProgress: [] },
    }).finish();
    await new Promise<void>((resolve) => {
      channel.onInfo(() => resolve());
    });
    relay.receive({ kind: "frame", frame });
    await untilWatches(member, 1);
    const bytes = 40 * 1024;
    member.puts(400, bytes);
    await untilWatches(member, 0);
    assert.ok(unread < UNREAD_BYTES_MAX + 2 * bytes, `unread: ${unread}`);
    while (events < 400) {
      const read = unread;
      unread = 0;
      relay.receive({ kind: "taken", bytes: read });
      await turn();
      assert.ok(unread < UNREAD_BYTES_MAX + 2 * bytes, `unread: ${unread}`);
    }
  });

  it("that closes without being asked to loses sessions and calls, and says why", async () => {
    const { port1, port2 } = new MessageChannel();
    const channel = new Channel({ ...OPTIONS, endpoints: ["-"], deadlineMs: 300 }, (events) => {
      const client = new RelayClient({ port: port1, pulse: new Pulse(), runtime: REAL_RUNTIME }, events);
      return {
        ...{ links: client, leases: client.leases },
        cancel: () => undefined,
      };
    });
    const ended = new Promise((resolve) => {
      const sent = { monotonicMs: performance.now(), wallMs: Date.now() };
      const lease = new HeldLease(REAL_RUNTIME, {
        ...{ leaseId: "7", ttlMs: 60_000, marginMs: 0, sent },
        onEnd: (reason) => resolve([reason.kind, lease.leftMs()]),
      });
      channel.leases.hold(lease);
      assert.ok(lease.leftMs() > 59_000);
    });
    const outcome = (operation: Uint8Array): Promise<unknown> =>
      new Promise((resolve) => {
        channel.execute(operation, { mutation: true }, (error) => resolve([error?.code, error?.outcome]));
      });
    const sentBefore = outcome(Buffer.from([0x0a, 0x00]));
    await turn();
    await turn();
    port2.close();
    assert.deepEqual(await ended, ["local-deadline", 0]);
    assert.deepEqual(await sentBefore, ["connection-lost", "unknown"]);
    assert.deepEqual(await outcome(Buffer.from([0x0a, 0x00])), ["unavailable", "not-applied"]);
    assert.match(channel.connectError?.message ?? "", /thread .* has ended/);
    channel.close();
  });
});

describe("deadlines that two threads share", () => {
  it("count by the clock that went further, and never give more than either promise while one is replaced", () => {
    const deadlines = new Deadlines();
    const now = { monotonicMs: sharedNowMs(), wallMs: 1_000_000 };
    deadlines.set(3, { monotonicMs: now.monotonicMs + 500, wallMs: now.wallMs + 500 });
    const left = (more: { monotonic?: number; wall?: number }): number =>
      Math.round(
        deadlines.leftMs(3, {
          monotonicMs: now.monotonicMs + (more.monotonic ?? 0),
          wallMs: now.wallMs + (more.wall ?? 0),
        }),
      );
    assert.equal(left({}), 500);
    assert.equal(left({ monotonic: 100, wall: 100 }), 400);
    assert.equal(left({ monotonic: 0, wall: 450 }), 50, "the machine slept");
    assert.equal(left({ monotonic: 100, wall: -3_600_000 }), 400, "the wall clock went back");
    assert.equal(left({ monotonic: 501 }), 0);
    // Between the two stores of a renewal.
    const half = new BigInt64Array(deadlines.buffer);
    half[6] = (half[6] ?? 0n) + 1_000_000n;
    assert.equal(left({}), 500);
    deadlines.end(3);
    assert.equal(left({}), 0);
  });
});
