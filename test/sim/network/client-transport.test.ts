import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { FrameLink } from "@lockstep/client";
import { GrpcCode } from "@lockstep/gateway";
import type { NativeDoor, StreamCall } from "@lockstep/gateway";
import { createClientTransport } from "./client-transport.ts";
import type { OpenDoor } from "./client-transport.ts";
import { manualWorld } from "./testing.ts";
import type { ManualProcess, ManualWorld } from "./testing.ts";
import type { NetworkProfile } from "./profile.ts";

interface Door extends OpenDoor {
  readonly process: ManualProcess;
  readonly calls: StreamCall[];
  /** Events of all calls, in order. */
  readonly heard: string[];
}

/** A door that records what its calls hear; only `openChannel` is ever used. */
function doorOf(world: ManualWorld, host: string): Door {
  const process = world.process(host);
  const calls: StreamCall[] = [];
  const heard: string[] = [];
  const tell = (what: string): void => {
    assert.ok(process.alive && !process.paused, "a process that cannot run was called");
    heard.push(what);
  };
  const openChannel = (call: StreamCall): void => {
    tell("open");
    calls.push(call);
    call.onMessage((frame) => tell(frame.toString()));
    call.onHalfClose(() => tell("<end>"));
    call.onDrain(() => tell("<drain>"));
    call.onClose(() => tell("<over>"));
  };
  const door = { openChannel } as unknown as NativeDoor;
  return { host, process, door, calls, heard };
}

interface Opened {
  readonly link: FrameLink;
  readonly heard: string[];
}

function setUp(profile: Partial<NetworkProfile> = {}) {
  const world = manualWorld(profile);
  const door = doorOf(world, "m1");
  const client = world.process("c1");
  const transport = createClientTransport(client, world.network, (address) =>
    address === "m1:1" ? door : undefined,
  );
  const open = (address = "m1:1"): Opened => {
    const heard: string[] = [];
    const tell = (what: string): void => {
      assert.ok(client.alive && !client.paused, "a process that cannot run was called");
      heard.push(what);
    };
    const link = transport.open(address, {
      frame: (frame) => tell(frame.toString()),
      drained: () => tell("<drained>"),
      closed: (reason) => tell(`<closed ${reason?.message ?? ""}>`),
    });
    assert.deepEqual(heard, []);
    return { link, heard };
  };
  return { world, door, client, open };
}

describe("a link to a door", () => {
  it("carries frames both ways, in order, as copies", async () => {
    const { world, door, open } = setUp({ delayUsMax: 30_000 });
    const { link, heard } = open();
    const memory = Buffer.from("q0");
    link.send(memory);
    memory.write("xx");
    for (let i = 1; i < 20; i++) link.send(Buffer.from(`q${i}`));
    await world.ms(100);
    assert.deepEqual(door.heard, ["open", ...Array.from({ length: 20 }, (_, i) => `q${i}`)]);
    const answer = Buffer.from("a0");
    door.calls[0]!.write(answer);
    answer.write("xx");
    door.calls[0]!.write(Buffer.from("a1"));
    await world.ms(100);
    assert.deepEqual(heard, ["a0", "a1"]);
  });

  it("is refused, later, where nobody listens", async () => {
    const { world, door, open } = setUp();
    const { heard } = open("m7:1");
    await world.ms(10);
    assert.match(heard[0] ?? "", /ECONNREFUSED/);
    door.process.kill();
    const dead = open();
    await world.ms(10);
    assert.match(dead.heard[0] ?? "", /ECONNREFUSED/);
  });

  it("hangs where the way is blocked, and can be given up", async () => {
    const { world, door, open } = setUp();
    world.network.cutOneWay("m1", "c1");
    const { link, heard } = open();
    const other = open();
    await world.ms(10_000);
    assert.deepEqual([heard, door.heard], [[], []]);
    link.destroy();
    await world.ms(30_000);
    assert.deepEqual(heard, []);
    assert.equal(other.heard.length, 1);
  });

  it("ends when the door ends it: OK after the client's end, else with the status", async () => {
    const { world, door, open } = setUp();
    const good = open();
    good.link.send(Buffer.from("q"));
    good.link.finish();
    await world.ms(10);
    door.calls[0]!.write(Buffer.from("a"));
    door.calls[0]!.end();
    assert.ok(!door.heard.includes("<over>"));
    await world.ms(10);
    assert.deepEqual(good.heard, ["a", "<closed >"]);
    assert.deepEqual(door.heard, ["open", "q", "<end>", "<over>"]);
    const bad = open();
    await world.ms(10);
    door.calls[1]!.write(Buffer.from("b"));
    door.calls[1]!.fail({ code: GrpcCode.UNAVAILABLE, details: "shutting down" });
    await world.ms(10);
    assert.deepEqual(bad.heard, ["b", "<closed 14 UNAVAILABLE: shutting down>"]);
    assert.deepEqual(door.heard.slice(4), ["open", "<over>"]);
  });

  it("that is destroyed says nothing more and is cancelled at the door", async () => {
    const { world, door, open } = setUp();
    const { link, heard } = open();
    await world.ms(10);
    door.calls[0]!.write(Buffer.from("a"));
    link.destroy();
    await world.ms(10);
    assert.deepEqual(heard, []);
    assert.deepEqual(door.heard, ["open", "<over>"]);
    assert.equal(door.calls[0]!.cancelled, true);
  });

  it("breaks with the death of either process; the dead one is not called", async () => {
    const { world, door, client, open } = setUp();
    const { heard } = open();
    await world.ms(10);
    door.process.kill();
    await world.ms(10);
    assert.match(heard[0] ?? "", /^<closed 14/);
    assert.deepEqual(door.heard, ["open"]);
    const second = setUp();
    const opened = second.open();
    await second.world.ms(10);
    second.client.kill();
    await second.world.ms(10);
    assert.deepEqual([opened.heard, second.door.heard], [[], ["open", "<over>"]]);
    assert.equal(client.alive, true);
  });

  it("without a sign of life is given up: by the client within 8 s, by the member within 15 s", async () => {
    const { world, door, open } = setUp();
    const { heard } = open();
    await world.ms(10);
    world.network.isolate("m1", "both");
    await world.ms(3_000);
    assert.deepEqual(heard, []);
    await world.ms(5_000);
    assert.equal(heard.length, 1);
    assert.deepEqual(door.heard, ["open"]);
    await world.ms(7_000);
    assert.deepEqual(door.heard, ["open", "<over>"]);
    world.network.heal();
    await world.ms(10_000);
    assert.equal(heard.length + door.heard.length, 3);
  });

  it("survives a short partition, and holds what was sent in it", async () => {
    const { world, door, open } = setUp();
    const { link, heard } = open();
    await world.ms(10);
    world.network.partition([["c1"], ["m1"]]);
    link.send(Buffer.from("q"));
    await world.ms(2_000);
    assert.deepEqual(door.heard, ["open"]);
    world.network.heal();
    await world.ms(2_000);
    assert.deepEqual([door.heard, heard], [["open", "q"], []]);
  });
});

describe("back-pressure", () => {
  const frame = Buffer.alloc(1_000, "x");

  it("a paused client fills the member's stream, and drains it when it wakes", async () => {
    const { world, door, client, open } = setUp({ streamWindowBytes: 10_000 });
    const { heard } = open();
    await world.ms(10);
    client.paused = true;
    let flushed = 0;
    const results = Array.from({ length: 20 }, () => door.calls[0]!.write(frame, () => (flushed += 1)));
    assert.equal(flushed, 0, "called from within write");
    await world.ms(100);
    assert.equal(results.filter(Boolean).length, 9);
    assert.equal(flushed, 9);
    client.resume();
    await world.ms(100);
    assert.deepEqual([heard.length, flushed], [20, 20]);
    assert.equal(door.heard.filter((line) => line === "<drain>").length, 1);
  });

  it("a door that reads no more holds the client back", async () => {
    const { world, door, open } = setUp({ streamWindowBytes: 10_000 });
    const { link, heard } = open();
    await world.ms(10);
    door.calls[0]!.pause();
    const results = Array.from({ length: 20 }, () => link.send(frame));
    await world.ms(100);
    assert.ok(results[0] === true && results[19] === false);
    assert.deepEqual([door.heard.length, heard], [1, []]);
    door.calls[0]!.resume();
    await world.ms(100);
    assert.deepEqual([door.heard.length, heard], [21, ["<drained>"]]);
  });

  it("a call is not over while something is left to send, until the client goes", async () => {
    const { world, door, client, open } = setUp({ streamWindowBytes: 2_000 });
    const { link } = open();
    await world.ms(10);
    client.paused = true;
    for (let i = 0; i < 5; i++) door.calls[0]!.write(frame);
    door.calls[0]!.end();
    await world.ms(100);
    assert.deepEqual(door.heard, ["open"]);
    client.resume();
    link.destroy();
    await world.ms(100);
    assert.deepEqual(door.heard, ["open", "<over>"]);
  });
});
