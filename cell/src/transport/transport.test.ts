import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import { describe, it } from "node:test";
import fc from "fast-check";
import { decodeMessages, encodeMessages } from "./codec.ts";
import { FRAME, FrameReader } from "./frame.ts";
import type { Frame } from "./frame.ts";
import { decodeHello, decodeWelcome, encodeHello, encodeWelcome } from "./handshake.ts";
import { createTransport } from "./index.ts";
import { CELL, Host, Members, append, heartbeat, id, join, peer, until } from "./testing/member.ts";

const options = { timeout: 10_000 };

/** A socket that speaks the framing by hand. */
function dialByHand(address: string): { socket: Socket; frames: [number, Buffer][]; ended: () => boolean } {
  const [host, port] = address.split(":");
  const socket = connect(Number(port), host);
  const reader = new FrameReader(1 << 20);
  const frames: [number, Buffer][] = [];
  let over = false;
  socket.on("data", (chunk: Buffer) => reader.push(chunk, (kind, body) => frames.push([kind, body])));
  socket.on("error", () => undefined);
  socket.on("close", () => (over = true));
  return { socket, frames, ended: () => over };
}

function put(socket: Socket, frame: Frame): void {
  for (const part of frame.parts) socket.write(part);
}

async function listenByHand(
  onSocket: (socket: Socket) => void,
): Promise<{ server: Server; address: string }> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    onSocket(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}

describe("Raft messages", () => {
  it(
    "to a peer whose address makes no sense are told of as not reachable, but not from within the call",
    options,
    async () => {
      await using members = new Members();
      const one = await members.start(1);
      one.transport.setPeers([peer(2, "nonsense")]);
      assert.deepEqual(one.host.notReached, []);
      await until(() => one.host.notReached.includes(id(2)));
    },
  );

  it("of one turn arrive in order, in one call, and both ways", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    await join(one, two);
    one.transport.send([heartbeat(1, 2, 1), append(1, 2, Buffer.alloc(20_000, 3)), heartbeat(1, 2, 3)]);
    two.transport.send([heartbeat(2, 1, 9)]);
    await until(() => two.host.messagesReceived.length === 3 && one.host.messagesReceived.length === 1);
    assert.equal(two.host.calls.length, 1);
    assert.deepEqual(
      two.host.calls[0]!.map((message) => message.kind),
      ["heartbeat", "append", "heartbeat"],
    );
    const received = two.host.calls[0]![1]!;
    assert.ok(received.kind === "append");
    assert.deepEqual(Buffer.from(received.entries[0]!.data), Buffer.alloc(20_000, 3));
  });

  it("sent before the first connection is up are held for it", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    one.transport.setPeers([peer(2, two.transport.address)]);
    one.transport.send([heartbeat(1, 2, 7)]);
    await until(() => two.host.messagesReceived.length === 1);
    assert.deepEqual(one.host.notReached, []);
  });

  it("larger than a frame in sum are split, none lost", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { bounds: { frameBytesMax: 10_000 } });
    const two = await members.start(2, { bounds: { frameBytesMax: 10_000 } });
    await join(one, two);
    one.transport.send(Array.from({ length: 50 }, () => append(1, 2, Buffer.alloc(3_000))));
    await until(() => two.host.messagesReceived.length === 50);
  });

  it("beyond the queue's bound are dropped and told, and what follows arrives whole", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { bounds: { raftQueueBytesMax: 1 << 20 } });
    const received: number[] = [];
    let pausedSocket: Socket | undefined;
    const byHand = await listenByHand((socket) => {
      const reader = new FrameReader(1 << 26);
      socket.on("data", (chunk: Buffer) => {
        reader.push(chunk, (kind, body) => {
          if (kind === FRAME.hello && decodeHello(body).purpose !== "raft") socket.destroy();
          else if (kind === FRAME.hello) {
            put(socket, encodeWelcome({ ok: true, incarnation: "life-2" }));
            pausedSocket = socket.pause();
          } else if (kind === FRAME.messages) {
            for (const message of decodeMessages(body))
              if (message.kind === "heartbeat") received.push(message.readRound);
          }
        });
      });
    });
    one.transport.setPeers([peer(2, byHand.address)]);
    await until(() => one.transport.connected().length === 1 && pausedSocket !== undefined);
    one.host.notReached.length = 0;
    let sent = 0;
    while (one.host.notReached.length === 0) {
      one.transport.send([heartbeat(1, 2, sent++), append(1, 2, Buffer.alloc(200_000))]);
      await Promise.resolve();
      assert.ok(sent < 1_000, "the bound never applied");
    }
    assert.deepEqual(new Set(one.host.notReached), new Set([id(2)]));
    pausedSocket!.resume();
    await until(() => received.length === sent - 1);
    one.transport.send([heartbeat(1, 2, 5_000)]);
    await until(() => received.at(-1) === 5_000);
    assert.deepEqual(
      received.slice(0, -1),
      Array.from({ length: sent - 1 }, (_, i) => i),
    );
    byHand.server.close();
  });

  it("to a peer that cannot be reached are dropped and told after the call returned", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { bounds: { backoffMsMin: 10_000, backoffMsMax: 10_000 } });
    const gone = await listenByHand(() => undefined);
    gone.server.close();
    one.transport.setPeers([peer(2, gone.address)]);
    await until(() => one.host.notReached.length === 1);
    one.transport.send([heartbeat(1, 2, 1), heartbeat(1, 2, 2)]);
    assert.equal(one.host.notReached.length, 1);
    await until(() => one.host.notReached.length === 2);
  });

  it("with another sender than the connection's end it (R28)", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const { socket, ended } = dialByHand(one.transport.address);
    put(socket, encodeHello({ cellId: CELL, memberId: id(2), incarnation: "life-2" }, id(1), "raft"));
    put(socket, encodeMessages([heartbeat(3, 1, 1)]));
    await until(ended);
    assert.deepEqual(one.host.messagesReceived, []);
    assert.deepEqual(one.host.lost, [], "our own close is no evidence of death");
  });

  it("and notices keep their order", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    await join(one, two);
    const notice = { digestIndex: 5, digestHash: 77, spaceLow: false, formatVersionMax: 2 };
    one.transport.notify(id(2), notice);
    await until(() => two.host.notices.length === 1);
    assert.deepEqual(two.host.notices[0], notice);
  });
});

describe("the handshake", () => {
  it("refuses another cell, another addressee and itself before any state is sent", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    for (const [identity, to, reason] of [
      [{ cellId: "other", memberId: id(2), incarnation: "life-2" }, 1, "wrong-cell"],
      [{ cellId: CELL, memberId: id(2), incarnation: "life-2" }, 3, "wrong-member"],
      [{ cellId: CELL, memberId: id(1), incarnation: "life-1" }, 1, "wrong-member"],
    ] as const) {
      const { socket, frames, ended } = dialByHand(one.transport.address);
      put(socket, encodeHello(identity, id(to), "raft"));
      put(socket, encodeMessages([heartbeat(2, 1, 1)]));
      await until(ended);
      assert.equal(frames.length, 1);
      assert.deepEqual(decodeWelcome(frames[0]![1]), { ok: false, reason });
    }
    assert.deepEqual(one.host.messagesReceived, []);
  });

  for (const reason of ["wrong-incarnation", "unknown-member", "removed"] as const) {
    it(`tells the dialler that it is refused: ${reason}`, options, async () => {
      await using members = new Members();
      const one = await members.start(1);
      const two = await members.start(2);
      two.host.verdict = { ok: false, reason };
      one.transport.setPeers([peer(2, two.transport.address)]);
      one.transport.send([heartbeat(1, 2, 1)]);
      await until(() => one.host.refusals.length > 0);
      assert.equal(one.host.refusals[0], reason);
      assert.deepEqual(two.host.messagesReceived, []);
      assert.deepEqual(one.transport.connected(), []);
      assert.deepEqual(one.host.lost, []);
    });
  }

  it("gives up a peer with another incarnation than expected", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    one.transport.setPeers([peer(2, two.transport.address, "an-earlier-life")]);
    one.transport.send([heartbeat(1, 2, 1)]);
    await until(() => one.host.notReached.length > 2);
    assert.deepEqual(two.host.messagesReceived, []);
    assert.deepEqual(one.transport.connected(), []);
  });

  it("refuses another protocol version and says its own", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const { socket, frames, ended } = dialByHand(one.transport.address);
    const hello = Buffer.concat(
      encodeHello({ cellId: CELL, memberId: id(2), incarnation: "x" }, id(1), "raft").parts,
    );
    hello[13] = 1;
    const { crc32 } = await import("node:zlib");
    hello.writeUInt32LE(crc32(hello.subarray(8)), 4);
    socket.write(hello);
    await until(ended);
    assert.deepEqual(decodeWelcome(frames[0]![1]), { ok: false, reason: "protocol-version-2" });
  });

  it("survives garbage", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const hello = Buffer.concat(
      encodeHello({ cellId: CELL, memberId: id(2), incarnation: "x" }, id(1), "raft").parts,
    );
    await fc.assert(
      fc.asyncProperty(
        fc.boolean(),
        fc.uint8Array({ minLength: 12, maxLength: 600 }),
        async (greeted, garbage) => {
          const { socket, ended } = dialByHand(one.transport.address);
          if (greeted) socket.write(hello);
          socket.end(garbage);
          await until(ended);
        },
      ),
      { numRuns: 40 },
    );
    assert.deepEqual(one.host.messagesReceived, []);
    const two = await members.start(2);
    await join(one, two);
  });

  it("is waited for on a bounded number of connections, and one that ends makes room", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { bounds: { handshakesMax: 2 } });
    const waiting = [dialByHand(one.transport.address), dialByHand(one.transport.address)];
    await Promise.all(waiting.map(({ socket }) => once(socket, "connect")));
    const refused = dialByHand(one.transport.address);
    await until(() => refused.ended());
    assert.deepEqual(
      waiting.map(({ ended }) => ended()),
      [false, false],
    );
    waiting[0]!.socket.destroy();
    const hello = encodeHello({ cellId: CELL, memberId: id(2), incarnation: "life-2" }, id(1), "raft");
    const shakeHands = (): ReturnType<typeof dialByHand> => {
      const dialled = dialByHand(one.transport.address);
      put(dialled.socket, hello);
      return dialled;
    };
    let late = shakeHands();
    await until(() => {
      // The member may hear later of the end than of what comes after it.
      if (late.ended() && late.frames.length === 0) late = shakeHands();
      return late.frames.length > 0;
    });
    assert.deepEqual(decodeWelcome(late.frames[0]![1]), { ok: true, incarnation: "life-1" });
    waiting[1]!.socket.destroy();
    late.socket.destroy();
  });

  it("is cut after the silent time, even if bytes drip", options, async () => {
    await using members = new Members();
    const one = await members.start(1, { bounds: { pingIntervalMs: 10, silentIntervalsMax: 2 } });
    const { socket, ended } = dialByHand(one.transport.address);
    while (!ended()) {
      socket.write(Buffer.of(0));
      await new Promise((resolve) => setImmediate(resolve));
    }
  });
});

describe("a peer's end", () => {
  it("is told on both Raft streams, and the connection comes back", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    await join(one, two);
    const port = Number(two.transport.address.split(":")[1]);
    await two.transport.close();
    await until(() => one.host.lost.length === 2);
    assert.deepEqual(one.host.lost, [id(2), id(2)]);
    assert.deepEqual(two.host.lost, [], "our own close is no evidence");
    assert.deepEqual(one.transport.connected(), []);
    const again = await members.start(2, { listen: { host: "127.0.0.1", port } });
    await until(() => one.transport.connected().length === 1);
    one.transport.send([heartbeat(1, 2, 1)]);
    await until(() => again.host.messagesReceived.length === 1);
  });

  it("in silence is noticed after some ping intervals", options, async () => {
    let cut = false;
    await using members = new Members();
    const bounds = { pingIntervalMs: 10, silentIntervalsMax: 3 };
    const one = await members.start(1, { bounds, intercept: () => (cut ? "drop" : "deliver") });
    const two = await members.start(2, { bounds });
    await join(one, two);
    cut = true;
    await until(() => one.host.lost.length === 2 && two.host.lost.length > 0);
    cut = false;
    await until(() => one.transport.connected().length === 1 && two.transport.connected().length === 1);
  });

  it("is not assumed while an idle connection answers pings", options, async () => {
    await using members = new Members();
    const bounds = { pingIntervalMs: 5, silentIntervalsMax: 40 };
    const one = await members.start(1, { bounds });
    const two = await members.start(2, { bounds });
    await join(one, two);
    await new Promise((resolve) => setTimeout(resolve, 400));
    assert.deepEqual([one.host.lost, two.host.lost], [[], []]);
  });
});

describe("setPeers", () => {
  it("cuts off a removed peer both ways, without taking it for dead", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    await join(one, two);
    one.host.verdict = { ok: false, reason: "removed" };
    one.transport.setPeers([]);
    await until(() => two.host.refusals.includes("removed"));
    assert.deepEqual(one.host.lost, []);
    assert.deepEqual(one.transport.connected(), []);
    assert.deepEqual(two.transport.connected(), []);
    one.transport.send([heartbeat(1, 2, 1)]);
  });

  it("follows a changed address and leaves other peers' connections alone", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const two = await members.start(2);
    const three = await members.start(3);
    one.transport.setPeers([peer(2, two.transport.address), peer(3, three.transport.address)]);
    await until(() => one.transport.connected().length === 2);
    const elsewhere = await members.start(2);
    one.transport.setPeers([peer(2, elsewhere.transport.address), peer(3, three.transport.address)]);
    one.transport.send([heartbeat(1, 2, 1), heartbeat(1, 3, 1)]);
    await until(
      () => elsewhere.host.messagesReceived.length === 1 && three.host.messagesReceived.length === 1,
    );
    assert.deepEqual(three.host.lost, []);
    assert.deepEqual(two.host.messagesReceived, []);
  });
});

describe("setting up", () => {
  it("refuses a host that is not loopback without TLS", options, async () => {
    for (const host of ["0.0.0.0", "::", "10.1.2.3", "example.org"]) {
      await assert.rejects(
        createTransport({
          identity: { cellId: CELL, memberId: id(1), incarnation: "x" },
          listen: { host, port: 0 },
          handlers: new Host(),
        }),
        { name: "TransportError", code: "insecure-listen" },
      );
    }
  });

  it("says when the port is taken", options, async () => {
    await using members = new Members();
    const one = await members.start(1);
    const port = Number(one.transport.address.split(":")[1]);
    await assert.rejects(members.start(2, { listen: { host: "127.0.0.1", port } }), {
      name: "TransportError",
      code: "listen-failed",
    });
  });

  it("and closing leaves no handle behind", options, async () => {
    const before = process
      .getActiveResourcesInfo()
      .filter((name) => /TCP|Timeout|Immediate/.test(name)).length;
    {
      await using members = new Members();
      const one = await members.start(1);
      const two = await members.start(2);
      await join(one, two);
      const gone = await listenByHand(() => undefined);
      gone.server.close();
      one.transport.setPeers([peer(2, two.transport.address), peer(3, gone.address)]);
      one.transport.request(id(2), Buffer.from("x"), 60_000, () => undefined);
    }
    await until(
      () => process.getActiveResourcesInfo().filter((name) => /TCP|Immediate/.test(name)).length === 0,
    );
    const after = process
      .getActiveResourcesInfo()
      .filter((name) => /TCP|Timeout|Immediate/.test(name)).length;
    assert.ok(after <= before + 1, process.getActiveResourcesInfo().join());
  });
});
