import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { drawNetworkProfile } from "./profile.ts";
import type { StreamEnd } from "./stream.ts";
import { SeededDice } from "../kernel/dice.ts";
import { manualWorld } from "./testing.ts";
import type { ManualProcess, ManualWorld } from "./testing.ts";

const TROUBLED = {
  loss: 0.1,
  duplication: 0.1,
  reordering: 0.2,
  reorderingUsMax: 50_000,
  longDelay: 0.01,
  longDelayUsMax: 120_000_000,
};

describe("datagrams", () => {
  it("arrive once and in order on a calm network, within the delay of the profile", async () => {
    const { network, ms } = manualWorld({ delayUsMin: 100, delayUsMax: 20_000 });
    let last = 0;
    for (let i = 0; i < 500; i++) {
      const delays = network.datagram("m1", "m2");
      assert.equal(delays.length, 1);
      const delayUs = delays[0]!;
      assert.ok(delayUs >= 100 && delayUs <= 20_000);
      const arrivalUs = i * 10 + delayUs;
      assert.ok(arrivalUs >= last, "overtaken");
      last = arrivalUs;
      await ms(0.01);
    }
  });

  it("are lost, doubled, overtaken and late as often as the profile says, and it is counted", () => {
    const { network, reporter } = manualWorld(TROUBLED);
    const fates = { lost: 0, doubled: 0, late: 0 };
    for (let i = 0; i < 10_000; i++) {
      const delays = network.datagram("m1", "m2");
      if (delays.length === 0) fates.lost += 1;
      if (delays.length === 2) fates.doubled += 1;
      if ((delays[0] ?? 0) > 1_000_000) fates.late += 1;
    }
    assert.ok(fates.lost > 850 && fates.lost < 1_150, String(fates.lost));
    assert.ok(fates.doubled > 850 && fates.doubled < 1_150, String(fates.doubled));
    assert.ok(fates.late > 50 && fates.late < 150, String(fates.late));
    assert.equal(reporter.counted("messages lost"), fates.lost);
    assert.equal(reporter.counted("messages doubled"), fates.doubled);
    assert.ok(reporter.counted("messages reordered") > 1_000);
  });

  it("have the same fate with the same dice, and another with others", () => {
    const fates = (seed: number): string => {
      const { network } = manualWorld(TROUBLED, seed);
      return JSON.stringify(Array.from({ length: 500 }, () => network.datagram("m1", "m2")));
    };
    assert.equal(fates(5), fates(5));
    assert.notEqual(fates(5), fates(6));
  });
});

describe("partitions", () => {
  it("part the groups, leave whoever is in none alone, and end with the heal", () => {
    const { network, reporter } = manualWorld();
    network.partition([["m1"], ["m2", "m3"]]);
    assert.equal(network.blocked("m1", "m2"), true);
    assert.equal(network.blocked("m3", "m1"), true);
    assert.equal(network.blocked("m2", "m3"), false);
    assert.equal(network.blocked("c1", "m1"), false);
    assert.deepEqual(network.datagram("m1", "m2"), []);
    network.partition([["m1", "m2"], ["m3"]]);
    assert.equal(network.blocked("m1", "m2"), false, "a new partition replaces the old one");
    network.heal();
    assert.equal(network.blocked("m1", "m3"), false);
    assert.equal(reporter.counted("partitions"), 2);
  });

  it("may be one-way", () => {
    const { network, reporter } = manualWorld();
    network.cutOneWay("m1", "m2");
    assert.equal(network.blocked("m1", "m2"), true);
    assert.equal(network.blocked("m2", "m1"), false);
    network.heal();
    network.isolate("m3", "in");
    assert.equal(network.blocked("m1", "m3"), true);
    assert.equal(network.blocked("m3", "m1"), false);
    network.heal();
    network.isolate("m3", "out");
    assert.equal(network.blocked("m1", "m3"), false);
    assert.equal(network.blocked("m3", "c9"), true, "hosts that come later too");
    assert.equal(reporter.counted("one-way partitions"), 3);
    network.heal();
    network.isolate("m3", "both");
    assert.equal(network.blocked("m1", "m3") && network.blocked("m3", "m1"), true);
    assert.equal(network.blocked("m3", "m3"), false, "a host reaches itself");
  });
});

interface Joined {
  readonly one: ManualProcess;
  readonly other: ManualProcess;
  readonly up: StreamEnd<string, string>;
  readonly down: StreamEnd<string, string>;
  readonly heard: string[];
  readonly heardBack: string[];
}

function joined(world: ManualWorld): Joined {
  const one = world.process("m1");
  const other = world.process("m2");
  const listener = (heard: string[]) => ({
    payload: (text: string): unknown => heard.push(text),
    ended: (): unknown => heard.push("<end>"),
    closed: (reason: string): unknown => heard.push(`<${reason}>`),
    drained: (): unknown => heard.push("<drained>"),
  });
  const heard: string[] = [];
  const heardBack: string[] = [];
  const { dialled, accepted } = world.network.connect<string, string>(
    { process: one, handler: listener(heardBack) },
    { process: other, handler: listener(heard) },
  );
  return { one, other, up: dialled, down: accepted, heard, heardBack };
}

describe("streams", () => {
  it("keep order and lose nothing, whatever the network does", async () => {
    const world = manualWorld({ ...TROUBLED, delayUsMax: 50_000, longDelay: 0.001 });
    const { up, heard } = joined(world);
    const sent = Array.from({ length: 300 }, (_, i) => String(i));
    for (const text of sent) {
      up.send(text, 10);
      await world.ms(1);
    }
    up.finish();
    await world.ms(60_000);
    assert.deepEqual(heard, [...sent, "<end>"]);
  });

  it("call nobody before the call has returned", async () => {
    const world = manualWorld({ delayUsMin: 0, delayUsMax: 0 });
    const { up, heard } = joined(world);
    up.send("a", 1);
    up.break();
    assert.deepEqual(heard, []);
    await world.ms(1);
    assert.deepEqual(heard, ["<connection reset>"]);
  });

  it("hold what is sent during a partition and deliver it after the heal", async () => {
    const world = manualWorld();
    const { up, heard } = joined(world);
    up.send("before", 1);
    await world.ms(10);
    world.network.cutOneWay("m1", "m2");
    up.send("meanwhile", 1);
    await world.ms(3_000);
    assert.deepEqual(heard, ["before"]);
    assert.equal(up.alive("answered"), false);
    world.network.heal();
    up.send("after", 1);
    await world.ms(2_000);
    assert.deepEqual(heard, ["before", "meanwhile", "after"]);
    assert.equal(up.alive("answered"), true);
  });

  it("tell the peer of a killed process at once when it can be reached, and never call the dead", async () => {
    const world = manualWorld();
    const { one, up, down, heard, heardBack } = joined(world);
    up.send("last words", 1);
    down.send("to the dead", 1);
    one.kill();
    await world.ms(10);
    assert.deepEqual(heard, ["last words", "<closed by the peer>"]);
    assert.deepEqual(heardBack, []);
  });

  it("tell it after the heal when the dead process could not be reached", async () => {
    const world = manualWorld();
    const { one, heard } = joined(world);
    world.network.isolate("m1", "both");
    one.kill();
    await world.ms(60_000);
    assert.deepEqual(heard, []);
    world.network.heal();
    await world.ms(2_000);
    assert.deepEqual(heard, ["<closed by the peer>"]);
  });

  it("lose what is under way when the network resets them, and count it", async () => {
    const world = manualWorld();
    const { up, heard, heardBack } = joined(world);
    up.send("lost", 1);
    assert.equal(world.network.breakConnections("m1", "m2"), 1);
    await world.ms(10);
    assert.deepEqual([heard, heardBack], [["<connection reset>"], ["<connection reset>"]]);
    assert.equal(world.reporter.counted("connections broken"), 1);
    assert.equal(world.network.breakConnections("m1", "m2"), 0);
  });

  it("break by themselves when the profile says so, until it no longer does", async () => {
    const world = manualWorld({ connectionLifeUsMean: 1_000_000 });
    joined(world);
    await world.ms(20_000);
    assert.equal(world.reporter.counted("connections broken"), 1);
    const { heard } = joined(world);
    world.network.isolate("m2", "both");
    await world.ms(20_000);
    assert.deepEqual(heard, [], "not through a partition");
    world.network.setProfile({ ...world.network.profile, connectionLifeUsMean: 0 });
    world.network.heal();
    await world.ms(60_000);
    assert.equal(world.reporter.counted("connections broken"), 1);
    world.network.setProfile({ ...world.network.profile, connectionLifeUsMean: 1_000_000 });
    await world.ms(20_000);
    assert.equal(world.reporter.counted("connections broken"), 2, "those that stand too");
  });

  it("make the sender wait for a paused process, and go on when it wakes", async () => {
    const world = manualWorld({ streamWindowBytes: 100 });
    const { other, up, heard, heardBack } = joined(world);
    other.paused = true;
    let taken = 0;
    const results = Array.from({ length: 10 }, (_, i) => up.send(String(i), 30, () => (taken += 1)));
    await world.ms(1_000);
    assert.deepEqual(results.slice(0, 4), [true, true, true, false]);
    assert.equal(taken, 3);
    assert.equal(up.waitingBytes, 210);
    assert.deepEqual(heard, []);
    other.resume();
    await world.ms(1_000);
    assert.deepEqual(heard, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert.equal(taken, 10);
    assert.deepEqual(heardBack, ["<drained>"]);
  });

  it("keep from a receiver that holds what was sent, but not that the connection is gone", async () => {
    const world = manualWorld();
    const { one, up, down, heard } = joined(world);
    down.pause();
    up.send("a", 1);
    await world.ms(10);
    assert.deepEqual(heard, []);
    down.resume();
    await world.ms(10);
    assert.deepEqual(heard, ["a"]);
    down.pause();
    up.send("b", 1);
    one.kill();
    await world.ms(10);
    assert.deepEqual(heard, ["a", "<closed by the peer>"]);
  });

  it("hand nothing to an end that was closed meanwhile", async () => {
    const world = manualWorld();
    const { up, down, heard, heardBack } = joined(world);
    up.send("a", 1);
    up.sendDatagram("b", 1);
    down.cut();
    up.send("c", 1);
    await world.ms(10);
    assert.deepEqual([heard, heardBack], [[], ["<closed by the peer>"]]);
    assert.equal(up.datagramBytes, 0);
  });

  it("send what waits before they close, and drop it when they are cut", async () => {
    const world = manualWorld({ streamWindowBytes: 10 });
    const closed = joined(world);
    for (const text of ["a", "b", "c"]) closed.up.send(text, 10);
    closed.up.close();
    const cut = joined(world);
    for (const text of ["a", "b", "c"]) cut.up.send(text, 10);
    cut.up.cut();
    await world.ms(1_000);
    assert.deepEqual(closed.heard, ["a", "b", "c", "<closed by the peer>"]);
    assert.deepEqual(cut.heard, ["a", "<closed by the peer>"]);
    assert.deepEqual([closed.heardBack, cut.heardBack], [[], []], "not told for what this side closed");
  });
});

describe("profiles", () => {
  it("are a function of the dice, and stay within what the network can do", () => {
    for (let seed = 0; seed < 200; seed++) {
      const profile = drawNetworkProfile(new SeededDice(seed), 1);
      assert.deepEqual(profile, drawNetworkProfile(new SeededDice(seed), 1));
      assert.ok(profile.loss + profile.duplication + profile.reordering + profile.longDelay < 1);
      assert.ok(profile.delayUsMin <= profile.delayUsMax && profile.streamWindowBytes >= 4096);
    }
  });
});
