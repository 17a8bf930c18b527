import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LogIndex, MemberId, Message, Term } from "../../../cell/src/raft/types.ts";
import type { TransportBounds } from "../../../cell/src/transport/options.ts";
import type {
  AdmissionVerdict,
  PeerAddress,
  SnapshotOffer,
  SnapshotReceiver,
  SnapshotSource,
  TransportHandlers,
} from "../../../cell/src/transport/types.ts";
import type { ListeningTransport } from "../../../cell/src/transport/index.ts";
import { SimPeerNet } from "./peer-transport.ts";
import { manualWorld } from "./testing.ts";
import type { ManualProcess, ManualWorld } from "./testing.ts";
import type { NetworkProfile } from "./profile.ts";

const member = (id: number): MemberId => id as MemberId;
const PORT = 7000;
/** Handshakes, and whatever was sent meanwhile, take less than this on a calm network. */
const SOON_MS = 50;

interface Life {
  readonly id: number;
  readonly process: ManualProcess;
  readonly transport: ListeningTransport;
  /** What the handlers heard, in order. */
  readonly heard: string[];
  readonly messages: Message[][];
  admit: (memberId: number, incarnation: string) => AdmissionVerdict;
  onRequest: TransportHandlers["request"];
  onSnapshot: (from: MemberId, offer: SnapshotOffer) => SnapshotReceiver | undefined;
}

interface Cell {
  readonly world: ManualWorld;
  readonly start: (
    id: number,
    options?: { incarnation?: string; port?: number; bounds?: Partial<TransportBounds> },
  ) => Promise<Life>;
}

function cell(profile: Partial<NetworkProfile> = {}, seed = 1): Cell {
  const world = manualWorld(profile, seed);
  const net = new SimPeerNet(world.network);
  return {
    world,
    start: async (id, { incarnation = "i1", port = PORT, bounds = {} } = {}) => {
      const process = world.process(`m${id}`);
      const heard: string[] = [];
      const messages: Message[][] = [];
      const alive = (what: string): void => {
        assert.ok(process.alive && !process.paused, `a handler of m${id} was called while it could not run`);
        heard.push(what);
      };
      const handlers: TransportHandlers = {
        admit: (peer) => life.admit(peer.memberId, peer.incarnation),
        messages: (from, batch) => {
          alive(`messages ${from}`);
          messages.push([...batch]);
        },
        notice: (from, notice) => alive(`notice ${from} ${notice.digestIndex}`),
        disconnected: (peer) => alive(`disconnected ${peer}`),
        unreachable: (peer) => alive(`unreachable ${peer}`),
        request: (from, body, answer) => {
          alive(`request ${from}`);
          life.onRequest(from, body, answer);
        },
        snapshot: (from, offer) => {
          alive(`snapshot ${from} ${offer.id}`);
          return life.onSnapshot(from, offer);
        },
        refused: (peer, reason) => alive(`refused ${peer} ${reason}`),
      };
      const transport = await net.createTransport(
        {
          identity: { cellId: "cell", memberId: member(id), incarnation },
          listen: { host: `m${id}`, port },
          handlers,
          bounds,
        },
        process,
      );
      const life: Life = {
        ...{ id, process, transport, heard, messages },
        admit: () => ({ ok: true }),
        onRequest: (_from, body, answer) => answer(Buffer.from(`re:${Buffer.from(body).toString()}`)),
        onSnapshot: () => undefined,
      };
      return life;
    },
  };
}

function address(id: number, incarnation = "i1"): PeerAddress {
  return { memberId: member(id), incarnation, address: `m${id}:${PORT}` };
}

function heartbeat(from: number, to: number, round: number): Message {
  return {
    kind: "heartbeat",
    from: member(from),
    to: member(to),
    term: 1 as Term,
    commit: 0 as LogIndex,
    readRound: round,
  };
}

async function pair(profile: Partial<NetworkProfile> = {}, bounds: Partial<TransportBounds> = {}) {
  const made = cell(profile);
  const one = await made.start(1, { bounds });
  const two = await made.start(2, { bounds });
  one.transport.setPeers([address(1), address(2)]);
  two.transport.setPeers([address(1), address(2)]);
  await made.world.ms(SOON_MS);
  assert.deepEqual([one.transport.connected(), two.transport.connected()], [[2], [1]]);
  one.heard.length = 0;
  two.heard.length = 0;
  return { ...made, one, two };
}

const rounds = (life: Life): number[] =>
  life.messages.flat().map((message) => (message.kind === "heartbeat" ? message.readRound : -1));

describe("Raft messages", () => {
  it("of one turn arrive as one batch, as copies", async () => {
    const { world, one, two } = await pair();
    const data = Buffer.alloc(5_000, 1);
    const append: Message = {
      ...{ kind: "append", from: member(1), to: member(2), term: 1 as Term },
      ...{ prevIndex: 0 as LogIndex, prevTerm: 0 as Term, commit: 0 as LogIndex },
      entries: [{ term: 1 as Term, index: 1 as LogIndex, kind: "normal", data }],
    };
    one.transport.send([append, heartbeat(1, 2, 7)]);
    data.fill(9);
    assert.equal(two.messages.length, 0, "called from within send");
    await world.ms(SOON_MS);
    assert.equal(two.messages.length, 1);
    const [first, second] = two.messages[0]!;
    assert.ok(first?.kind === "append" && second?.kind === "heartbeat" && second.readRound === 7);
    assert.equal(first.entries[0]?.data[0], 1);
  });

  it("sent while the connection is being made are kept", async () => {
    const { world, start } = cell();
    const one = await start(1);
    const two = await start(2);
    one.transport.setPeers([address(2)]);
    one.transport.send([heartbeat(1, 2, 1)]);
    await world.ms(SOON_MS);
    assert.deepEqual(rounds(two), [1]);
  });

  it("may be lost, doubled and overtaken, the same ones with the same dice", async () => {
    const arrivals = async (): Promise<number[]> => {
      const { world, one, two } = await pair();
      world.network.setProfile({
        ...world.network.profile,
        ...{ loss: 0.1, duplication: 0.1, reordering: 0.2, reorderingUsMax: 30_000 },
      });
      for (let i = 0; i < 200; i++) {
        one.transport.send([heartbeat(1, 2, i)]);
        await world.ms(1);
      }
      await world.ms(SOON_MS);
      return rounds(two);
    };
    const numbers = await arrivals();
    assert.deepEqual(numbers, await arrivals());
    const different = new Set(numbers);
    assert.ok(different.size > 150 && different.size < 198, "some are lost");
    assert.ok(numbers.length > different.size, "some are doubled");
    assert.notDeepEqual(
      numbers,
      [...numbers].sort((a, b) => a - b),
      "some are overtaken",
    );
  });

  it("wait for a paused receiver up to the bound, then are dropped and told", async () => {
    const { world, one, two } = await pair({}, { raftQueueBytesMax: 300, silentIntervalsMax: 1_000 });
    two.process.paused = true;
    for (let i = 0; i < 20; i++) {
      one.transport.send([heartbeat(1, 2, i)]);
      if (i === 0) assert.deepEqual(one.heard, []);
      await world.ms(1);
    }
    assert.ok(one.heard.includes("unreachable 2"));
    assert.deepEqual(two.messages, []);
    two.process.resume();
    await world.ms(SOON_MS);
    const kept = rounds(two);
    assert.ok(kept.length > 3 && kept.length < 20, String(kept));
  });

  it("notices travel like them", async () => {
    const { world, one, two } = await pair();
    one.transport.notify(member(2), {
      ...{ digestIndex: 12, digestHash: 3, spaceLow: false, formatVersionMax: 1 },
    });
    await world.ms(SOON_MS);
    assert.deepEqual(two.heard, ["notice 1 12"]);
  });
});

describe("admission", () => {
  it("a refused member hears why, for every attempt, and is let in when that changed", async () => {
    const { world, start } = cell();
    const one = await start(1);
    const two = await start(2);
    two.admit = () => ({ ok: false, reason: "unknown-member" });
    one.transport.setPeers([address(2)]);
    one.transport.send([heartbeat(1, 2, 1)]);
    await world.ms(2_000);
    const told = one.heard.filter((line) => line === "refused 2 unknown-member").length;
    assert.ok(told > 2 && told < 20, String(told));
    assert.deepEqual(two.messages, []);
    two.admit = () => ({ ok: true });
    await world.ms(2_000);
    assert.deepEqual(one.transport.connected(), [2]);
  });

  it("another incarnation than expected is not spoken to", async () => {
    const { world, start } = cell();
    const one = await start(1);
    await start(2, { incarnation: "i2" });
    one.transport.setPeers([address(2, "i1")]);
    await world.ms(2_000);
    assert.deepEqual(one.transport.connected(), []);
    one.transport.setPeers([address(2, "i2")]);
    await world.ms(SOON_MS);
    assert.deepEqual(one.transport.connected(), [2]);
  });

  it("is asked once for each connection, and not by attempts that a partition swallowed", async () => {
    const { world, start } = cell();
    const one = await start(1);
    const two = await start(2);
    let asked = 0;
    two.admit = () => {
      asked += 1;
      return { ok: true };
    };
    world.network.cutOneWay("m2", "m1");
    one.transport.setPeers([address(2)]);
    await world.ms(10_000);
    assert.equal(asked, 0);
    assert.ok(one.heard.includes("unreachable 2"));
    world.network.heal();
    await world.ms(5_000);
    assert.deepEqual([asked, one.transport.connected()], [2, [2]]);
  });

  it("is asked by a paused member once it runs: its host took the connection on meanwhile", async () => {
    const { world, start } = cell();
    const one = await start(1);
    const two = await start(2);
    let asked = 0;
    two.admit = () => {
      asked += 1;
      return { ok: true };
    };
    two.process.paused = true;
    one.transport.setPeers([address(2)]);
    await world.ms(1_000);
    assert.deepEqual([asked, one.heard, one.transport.connected()], [0, [], []]);
    two.process.resume();
    await world.ms(SOON_MS);
    assert.deepEqual([asked, one.transport.connected()], [2, [2]]);
  });

  it("is not asked for more strangers at once than the bound", async () => {
    const { world, start } = cell();
    const one = await start(1);
    const two = await start(2, { bounds: { handshakesMax: 1 } });
    one.transport.setPeers([address(2)]);
    await world.ms(10);
    // Of two that arrive together the second is turned away, and comes again.
    assert.deepEqual([one.transport.connected(), two.heard, one.heard], [[2], [], []]);
    const answers: unknown[] = [];
    one.transport.request(member(2), Buffer.from("q"), 1_000, (body) => answers.push(body));
    await world.ms(SOON_MS);
    one.transport.request(member(2), Buffer.from("q"), 1_000, (body) => answers.push(body));
    await world.ms(SOON_MS);
    assert.deepEqual([answers[0], typeof answers[1]], ["unsent", "object"]);
  });

  it("is asked again for those that are in when the peers change", async () => {
    const { world, start } = cell();
    const one = await start(1);
    const two = await start(2);
    one.transport.setPeers([address(2)]);
    await world.ms(SOON_MS);
    two.admit = () => ({ ok: false, reason: "removed" });
    two.transport.setPeers([]);
    await world.ms(SOON_MS);
    assert.ok(one.heard.includes("disconnected 2"));
    assert.ok(one.heard.includes("refused 2 removed"));
  });

  it("does not let a peer speak for another member: that ends the connection", async () => {
    const { world, one, two } = await pair();
    one.transport.send([heartbeat(3, 2, 1)]);
    await world.ms(SOON_MS);
    assert.deepEqual([two.messages, two.heard], [[], []]);
    assert.ok(one.heard.includes("disconnected 2"));
  });

  it("a removed peer is cut off and hears it", async () => {
    const { world, one, two } = await pair();
    two.transport.setPeers([address(2)]);
    await world.ms(SOON_MS);
    assert.ok(one.heard.filter((line) => line === "disconnected 2").length >= 1);
    assert.deepEqual(two.heard, []);
    assert.deepEqual(two.transport.connected(), []);
  });
});

describe("death", () => {
  it("of a process on a live host is heard at once, for both directions; nothing of the dead is called", async () => {
    const { world, one, two } = await pair();
    one.transport.send([heartbeat(1, 2, 1)]);
    two.process.kill();
    await world.ms(5);
    assert.equal(one.heard.filter((line) => line === "disconnected 2").length, 2);
    await world.ms(5_000);
    assert.deepEqual([two.heard, two.messages], [[], []]);
    assert.ok(one.heard.includes("unreachable 2"));
  });

  it("behind a partition is heard by its silence", async () => {
    const { world, one, two } = await pair();
    world.network.isolate("m2", "both");
    two.process.kill();
    await world.ms(4_000);
    assert.deepEqual(one.heard, []);
    await world.ms(3_000);
    assert.equal(one.heard.filter((line) => line === "disconnected 2").length, 2);
  });

  it("a one-way cut is noticed by both", async () => {
    const { world, one, two } = await pair();
    world.network.cutOneWay("m1", "m2");
    await world.ms(8_000);
    assert.ok(one.heard.includes("disconnected 2") && two.heard.includes("disconnected 1"));
    assert.deepEqual([one.transport.connected(), two.transport.connected()], [[], []]);
    world.network.heal();
    await world.ms(4_000);
    assert.deepEqual([one.transport.connected(), two.transport.connected()], [[2], [1]]);
  });

  it("a short partition breaks nothing", async () => {
    const { world, one, two } = await pair();
    world.network.partition([["m1"], ["m2"]]);
    await world.ms(3_000);
    world.network.heal();
    await world.ms(10_000);
    assert.deepEqual([one.heard, two.heard], [[], []]);
  });

  it("a member that was paused does not take its own absence for its peers'", async () => {
    const { world, one, two } = await pair();
    one.process.paused = true;
    await world.ms(30_000);
    assert.ok(two.heard.includes("disconnected 1"));
    one.process.resume();
    await world.ms(5_000);
    assert.deepEqual([one.transport.connected(), two.transport.connected()], [[2], [1]]);
  });

  it("a new process at the same address is found again", async () => {
    const { world, start, one, two } = await pair();
    two.process.kill();
    await world.ms(3_000);
    const again = await start(2);
    again.transport.setPeers([address(1)]);
    await world.ms(SOON_MS);
    assert.deepEqual(one.transport.connected(), [2]);
    one.transport.send([heartbeat(1, 2, 3)]);
    await world.ms(SOON_MS);
    assert.deepEqual([rounds(again), rounds(two)], [[3], []]);
  });
});

describe("a peer that moved", () => {
  it("is dialled at its new address, and what it dials itself goes on meanwhile", async () => {
    const { world, start, one, two } = await pair();
    two.process.kill();
    const moved = await start(2, { port: 7001 });
    moved.transport.setPeers([address(1)]);
    await world.ms(2_000);
    moved.transport.send([heartbeat(2, 1, 5)]);
    await world.ms(SOON_MS);
    assert.deepEqual([rounds(one), one.transport.connected()], [[5], []]);
    one.heard.length = 0;
    one.transport.setPeers([{ ...address(2), address: "m2:7001" }]);
    await world.ms(SOON_MS);
    assert.deepEqual([one.heard, one.transport.connected()], [[], [2]]);
  });
});

describe("forwarded requests", () => {
  const ask = (from: Life, to: number, timeoutMs = 1_000): string[] => {
    const answers: string[] = [];
    from.transport.request(member(to), Buffer.from("q"), timeoutMs, (body) =>
      answers.push(typeof body === "object" ? Buffer.from(body).toString() : String(body)),
    );
    assert.deepEqual(answers, [], "answered from within the call");
    return answers;
  };

  it("are answered once, whatever the network doubles", async () => {
    const { world, one, two } = await pair();
    world.network.setProfile({ ...world.network.profile, duplication: 0.9 });
    const answers = ask(one, 2);
    await world.ms(SOON_MS);
    assert.deepEqual([answers, two.heard], [["re:q"], ["request 1"]]);
  });

  it("are unsent when there is no peer or no connection", async () => {
    const { world, one, two } = await pair();
    const stranger = ask(one, 9);
    two.process.kill();
    await world.ms(100);
    const dead = ask(one, 2);
    await world.ms(3_000);
    assert.deepEqual([stranger, dead], [["unsent"], ["unsent"]]);
  });

  it("have an open fate when the connection breaks or the time is over", async () => {
    const { world, one, two } = await pair();
    two.onRequest = () => undefined;
    const late = ask(one, 2, 100);
    await world.ms(200);
    const broken = ask(one, 2);
    await world.ms(SOON_MS);
    two.process.kill();
    await world.ms(SOON_MS);
    assert.deepEqual([late, broken], [["undefined"], ["undefined"]]);
  });

  it("may arrive after their asker gave up: held by a partition, not lost", async () => {
    const { world, one, two } = await pair();
    world.network.cutOneWay("m1", "m2");
    const answers = ask(one, 2, 500);
    await world.ms(2_000);
    assert.deepEqual([answers, two.heard], [["undefined"], []]);
    world.network.heal();
    await world.ms(2_000);
    assert.deepEqual([answers, two.heard], [["undefined"], ["request 1"]]);
  });
});

describe("snapshots", () => {
  const source = (chunks: number, closed: string[] = []): SnapshotSource => ({
    id: "s1",
    header: Buffer.from("head"),
    chunk: (number) => Promise.resolve(number < chunks ? Buffer.alloc(3_000, number) : undefined),
    close: () => closed.push("closed"),
  });

  const receiver = (log: string[], hold?: (number: number) => Promise<void>): SnapshotReceiver => {
    let next = 0;
    return {
      nextChunk: 0,
      chunk: async (data) => {
        const number = next++;
        assert.equal(data[0], number, "out of order");
        await hold?.(number);
        log.push(String(number));
      },
      finish: async () => {
        log.push("finish");
        await Promise.resolve();
      },
      abort: (error) => log.push(`abort ${error.message}`),
    };
  };

  it("arrive chunk by chunk and are installed before the sender hears of it", async () => {
    const { world, one, two } = await pair();
    const log: string[] = [];
    const closed: string[] = [];
    two.onSnapshot = () => receiver(log);
    const sent = one.transport.sendSnapshot(member(2), source(10, closed));
    assert.equal(await one.transport.sendSnapshot(member(2), source(1, closed)), false, "one at a time");
    await world.ms(1_000);
    assert.equal(await sent, true);
    assert.deepEqual(log, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "finish"]);
    assert.equal(closed.length, 2);
  });

  it("send no more ahead than the window while a chunk is being taken in", async () => {
    const { world, one, two } = await pair();
    const log: string[] = [];
    const gate = Promise.withResolvers<undefined>();
    let asked = 0;
    two.onSnapshot = () => receiver(log, () => gate.promise);
    const counted = source(20);
    const sent = one.transport.sendSnapshot(member(2), {
      ...counted,
      chunk: (number) => {
        asked = number;
        return counted.chunk(number);
      },
    });
    await world.ms(2_000);
    assert.equal(asked, 3);
    gate.resolve(undefined);
    await world.ms(2_000);
    assert.equal(await sent, true);
    assert.equal(log.length, 21);
  });

  it("resume with the chunk that is wanted when the connection breaks", async () => {
    const { world, one, two } = await pair();
    const log: string[] = [];
    let offers = 0;
    two.onSnapshot = () => {
      offers += 1;
      return receiver(log, (number) => {
        if (number === 4) world.network.breakConnections("m1", "m2");
        return Promise.resolve();
      });
    };
    const sent = one.transport.sendSnapshot(member(2), source(10));
    await world.ms(5_000);
    assert.equal(await sent, true);
    assert.equal(offers, 1);
    assert.equal(log.length, 11);
  });

  it("are given up on both sides when there is no way for long", async () => {
    const { world, one, two } = await pair({}, { snapshotStallMsMax: 10_000 });
    const log: string[] = [];
    let taken = 0;
    two.onSnapshot = () =>
      receiver(log, () => {
        if (++taken === 3) world.network.isolate("m2", "both");
        return Promise.resolve();
      });
    const sent = one.transport.sendSnapshot(member(2), source(100));
    await world.ms(40_000);
    assert.equal(await sent, false);
    assert.match(log.at(-1) ?? "", /^abort/);
  });

  it("a receiver that fails ends the stream on both sides", async () => {
    const { world, one, two } = await pair();
    const log: string[] = [];
    two.onSnapshot = () => receiver(log, () => Promise.reject(new Error("disk is full")));
    const sent = one.transport.sendSnapshot(member(2), source(5));
    await world.ms(1_000);
    assert.equal(await sent, false);
    assert.deepEqual(log, ["abort disk is full"]);
  });
});

describe("closing", () => {
  it("tells the peers and answers what waits, and frees the address", async () => {
    const { world, start, one, two } = await pair();
    await assert.rejects(start(2), { code: "listen-failed" });
    let done = false;
    void two.transport.close().then(() => (done = true));
    assert.deepEqual(one.heard, []);
    await world.ms(SOON_MS);
    assert.equal(done, true);
    assert.equal(one.heard.filter((line) => line === "disconnected 2").length, 2);
    assert.deepEqual(two.heard, []);
    await start(2);
  });
});
