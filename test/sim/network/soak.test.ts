import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LogIndex, MemberId, Term } from "../../../cell/src/raft/types.ts";
import type { PeerAddress, TransportHandlers } from "../../../cell/src/transport/types.ts";
import type { ListeningTransport } from "../../../cell/src/transport/index.ts";
import { SimPeerNet } from "./peer-transport.ts";
import { CALM_NETWORK, drawNetworkProfile } from "./profile.ts";
import { SeededDice } from "../kernel/dice.ts";
import { manualWorld } from "./testing.ts";
import type { ManualProcess, ManualWorld } from "./testing.ts";

const IDS = [1, 2, 3];
const ROUNDS = 60;
const SEEDS = 25;

interface Life {
  readonly process: ManualProcess;
  readonly transport: ListeningTransport;
}

interface Soak {
  readonly world: ManualWorld;
  readonly dice: SeededDice;
  readonly net: SimPeerNet;
  readonly lives: Map<number, Life>;
  /** Everything that any handler or answer said, with its time. */
  readonly history: string[];
  /** Requests that were answered, or whose fate was told, must be told once. */
  readonly open: Set<string>;
  readonly served: Set<string>;
}

function member(id: number): MemberId {
  return id as MemberId;
}

function address(id: number): PeerAddress {
  return { memberId: member(id), incarnation: "i", address: `m${id}:7000` };
}

async function boot(soak: Soak, id: number): Promise<void> {
  const { world, history } = soak;
  const process = world.process(`m${id}`);
  const tell = (what: string): void => {
    assert.ok(process.alive && !process.paused, `m${id} was called while it could not run`);
    history.push(`${world.scheduler.nowUs} m${id} ${what}`);
  };
  const handlers: TransportHandlers = {
    admit: () => ({ ok: true }),
    messages: (from, messages) => tell(`${messages.length} from ${from}`),
    notice: (from) => tell(`notice ${from}`),
    disconnected: (peer) => tell(`disconnected ${peer}`),
    unreachable: (peer) => tell(`unreachable ${peer}`),
    request: (from, body, answer) => {
      const name = Buffer.from(body).toString();
      tell(`request ${from} ${name}`);
      assert.ok(!soak.served.has(name), `request ${name} arrived twice`);
      soak.served.add(name);
      process.deliver(soak.dice.between(0, 20_000), () => answer(body));
    },
    snapshot: () => undefined,
    refused: (peer, reason) => tell(`refused ${peer} ${reason}`),
  };
  const transport = await soak.net.createTransport(
    {
      identity: { cellId: "cell", memberId: member(id), incarnation: "i" },
      listen: { host: `m${id}`, port: 7000 },
      handlers,
    },
    process,
  );
  transport.setPeers(IDS.map(address));
  soak.lives.set(id, { process, transport });
}

async function disturb(soak: Soak): Promise<void> {
  const { world, dice } = soak;
  const { network } = world;
  const id = dice.pick(IDS);
  const { process } = soak.lives.get(id)!;
  switch (dice.between(0, 7)) {
    case 0:
      return network.partition([[`m${id}`], IDS.filter((other) => other !== id).map((other) => `m${other}`)]);
    case 1:
      return network.cutOneWay(`m${id}`, `m${dice.pick(IDS)}`);
    case 2:
      return network.isolate(`m${id}`, dice.pick(["both", "in", "out"]));
    case 3:
    case 4:
      return network.heal();
    case 5:
      process.kill();
      for (const name of soak.open) if (name.startsWith(`${id}:`)) soak.open.delete(name);
      return boot(soak, id);
    case 6:
      process.paused = true;
      return;
    default:
      if (process.paused) process.resume();
      network.setProfile(drawNetworkProfile(dice, dice.random()));
  }
}

function talk(soak: Soak, round: number): void {
  for (const [id, { process, transport }] of soak.lives) {
    if (process.paused) continue;
    for (const to of IDS.filter((other) => other !== id)) {
      const head = { from: member(id), to: member(to), term: 1 as Term };
      transport.send([{ ...head, kind: "heartbeat", commit: 0 as LogIndex, readRound: round }]);
      const name = `${id}:${to}:${round}:${soak.world.scheduler.nowUs}`;
      soak.open.add(name);
      transport.request(member(to), Buffer.from(name), 2_000, (body) => {
        assert.ok(soak.open.delete(name), `the fate of ${name} was told twice, or to a dead process`);
        if (body === "unsent") assert.ok(!soak.served.has(name), `${name} arrived, but is told as unsent`);
        if (typeof body === "object") assert.equal(Buffer.from(body).toString(), name);
        soak.history.push(`${soak.world.scheduler.nowUs} ${name} ${typeof body}`);
      });
    }
  }
}

async function live(seed: number): Promise<Soak> {
  const world = manualWorld({}, seed);
  const soak: Soak = {
    ...{ world, dice: new SeededDice(seed + 1_000), net: new SimPeerNet(world.network) },
    ...{ lives: new Map(), history: [], open: new Set(), served: new Set() },
  };
  for (const id of IDS) await boot(soak, id);
  for (let round = 0; round < ROUNDS; round++) {
    if (soak.dice.chance(0.4)) await disturb(soak);
    talk(soak, round);
    await world.ms(soak.dice.exponential(300));
  }
  world.network.heal();
  world.network.setProfile(CALM_NETWORK);
  for (const { process } of soak.lives.values()) if (process.paused) process.resume();
  await world.ms(60_000);
  return soak;
}

describe("the peer transports in a bad world", () => {
  it("call nobody who cannot run, tell each request's fate once, and find each other again in the end", async () => {
    for (let seed = 1; seed <= SEEDS; seed++) {
      const soak = await live(seed);
      const told = `seed ${seed} of test/sim/network/soak.test.ts`;
      assert.deepEqual([...soak.open], [], `${told}: requests without a fate`);
      for (const [id, { transport }] of soak.lives) {
        const others = IDS.filter((other) => other !== id);
        assert.deepEqual([...transport.connected()].sort(), others, `${told}: m${id} is not connected`);
      }
      const before = soak.history.length;
      talk(soak, ROUNDS);
      await soak.world.ms(100);
      const answered = soak.history.slice(before).filter((line) => line.endsWith(" object")).length;
      assert.equal(answered, 6, `${told}: requests in a calm network`);
    }
  });

  it("do the same again with the same seed, and something else with another", async () => {
    const one = (await live(1)).history;
    assert.deepEqual((await live(1)).history, one);
    assert.notDeepEqual((await live(2)).history, one);
  });
});
