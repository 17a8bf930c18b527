import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { connect } from "@lockstep/client";
import type { Client, Runtime } from "@lockstep/client";
import { createNativeDoor } from "@lockstep/gateway";
import type { NativeDoor, NativeDoorLimits, StreamCall } from "@lockstep/gateway";
import { MemoryCoordinator } from "../../../gateway/src/testing/memory-coordinator.ts";
import { createClientTransport } from "./client-transport.ts";
import { SimServerCall } from "./server-call.ts";
import { manualWorld } from "./testing.ts";
import type { ManualProcess, ManualWorld } from "./testing.ts";

const ADDRESS = "127.0.0.1:4101";

function runtimeOf(process: ManualProcess): Runtime {
  let uuids = 0;
  return {
    now: () => process.monotonicMs(),
    wallNow: () => process.wallMs(),
    random: () => process.dice.random(),
    uuid: () => `00000000-0000-4000-8000-${String(++uuids).padStart(12, "0")}`,
    schedule: (callback, delayMs) => process.after(delayMs, callback),
    afterTurn: (callback) => {
      process.deliver(0, callback);
    },
  };
}

interface Scene {
  readonly world: ManualWorld;
  readonly streams: () => number;
  /** Bytes that the door wrote to streams whose client runs on this host. */
  readonly writtenTo: (host: string) => number;
  /** Lets time pass until `promise` settles. */
  readonly until: <T>(promise: Promise<T>) => Promise<T>;
  readonly connect: (host: string) => Promise<{ readonly client: Client; readonly process: ManualProcess }>;
}

function scene(doorLimits: Partial<NativeDoorLimits> = {}): Scene {
  const world = manualWorld();
  const member = world.process("m1");
  const leader = { memberId: 1, clientAddress: ADDRESS, httpAddress: "" };
  const real = createNativeDoor({ coordinator: new MemoryCoordinator({ leader }), doorLimits });
  const written = new Map<string, number>();
  const openChannel = (call: StreamCall): void => {
    assert.ok(call instanceof SimServerCall);
    const write = call.write.bind(call);
    const host = call.peerHost;
    call.write = (message, sent) => {
      assert.ok(message instanceof Uint8Array);
      written.set(host, (written.get(host) ?? 0) + message.length);
      return write(message, sent);
    };
    real.openChannel(call);
  };
  const door = { ...real, openChannel } as NativeDoor;
  const until = async <T>(promise: Promise<T>): Promise<T> => {
    const state = { settled: false };
    const note = (): void => {
      state.settled = true;
    };
    promise.then(note, note);
    for (let passed = 0; !state.settled && passed < 120_000; passed += 10) await world.ms(10);
    assert.ok(state.settled, "nothing came of it in two minutes");
    return promise;
  };
  return {
    ...{ world, until },
    streams: () => real.stats().streams,
    writtenTo: (host) => written.get(host) ?? 0,
    connect: async (host) => {
      const process = world.process(host);
      const transport = createClientTransport(process, world.network, (address) =>
        address === ADDRESS ? { host: "m1", process: member, door } : undefined,
      );
      const options = { endpoints: [ADDRESS], transport, runtime: runtimeOf(process) };
      return { client: await until(connect(options)), process };
    },
  };
}

describe("production's client and door over the simulated network", () => {
  it("serve requests and watches through resets, partitions and delays: each write once, each event once", async () => {
    const { world, until, connect: open } = scene();
    const { client } = await open("c1");
    const seen: string[] = [];
    const watch = client.watch({ prefix: "k" });
    const watching = (async () => {
      for await (const event of watch) {
        seen.push(String(event.kv.key));
        if (seen.length === 60) break;
      }
    })();
    await until(watch.created);
    world.network.setProfile({
      ...world.network.profile,
      ...{ delayUsMax: 20_000, loss: 0.05, connectionLifeUsMean: 300_000 },
    });
    const keys: string[] = [];
    for (let i = 0; i < 60; i++) {
      if (i % 20 === 7) world.network.isolate("m1", i === 7 ? "both" : i === 27 ? "in" : "out");
      const written = client.put(`k${i}`, "v");
      if (i % 20 === 7) {
        await world.ms(2_000);
        world.network.heal();
      }
      const { revision } = await until(written);
      assert.equal(revision, i + 2, "written once");
      keys.push(`k${i}`);
    }
    await until(watching);
    assert.deepEqual(seen, keys);
    assert.ok(world.reporter.counted("connections broken") > 5);
  });

  it("leave no stream behind at the door, whoever ended it", async () => {
    const { world, streams, connect: open } = scene();
    const first = await open("c1");
    assert.equal(streams(), 1);
    first.client.close();
    await world.ms(100);
    assert.equal(streams(), 0);
    const second = await open("c1");
    second.process.kill();
    await world.ms(100);
    assert.equal(streams(), 0);
  });

  it("hold a watch back while its client is paused, and lose none of its events", async () => {
    const unflushedBytesMax = 64 * 1024;
    const { world, until, writtenTo, connect: open } = scene({ unflushedBytesMax });
    world.network.setProfile({ ...world.network.profile, streamWindowBytes: 16 * 1024 });
    const reader = await open("c1");
    const writer = await open("c2");
    const watch = reader.client.watch({ prefix: "k" });
    await until(watch.created);
    const before = writtenTo("c1");
    reader.process.paused = true;
    for (let i = 0; i < 100; i++) await until(writer.client.put(`k${i}`, "x".repeat(10_000)));
    const held = writtenTo("c1") - before;
    assert.ok(held > unflushedBytesMax && held < unflushedBytesMax + 30_000, String(held));
    reader.process.resume();
    const keys = async (): Promise<string[]> => {
      const seen: string[] = [];
      for await (const event of watch) if (seen.push(String(event.kv.key)) === 100) break;
      return seen;
    };
    assert.deepEqual(
      await until(keys()),
      Array.from({ length: 100 }, (_, i) => `k${i}`),
    );
  });
});
