import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { SnapshotReceiver, SnapshotSource } from "./types.ts";
import { Members, id, join, peer, until } from "./testing/member.ts";
import type { Member } from "./testing/member.ts";

const options = { timeout: 10_000 };

/** A source that, like a pinned iterator, cannot go back before the chunk after the last acknowledged one. */
class Source implements SnapshotSource {
  readonly id: string;
  readonly header = Buffer.from("header");
  readonly asked: number[] = [];
  closed = 0;
  readonly #count: number;
  readonly #bytes: number;

  constructor(name: string, count: number, bytes = 10_000) {
    this.id = name;
    this.#count = count;
    this.#bytes = bytes;
  }
  chunk(number: number): Promise<Uint8Array | undefined> {
    this.asked.push(number);
    return Promise.resolve(number < this.#count ? Buffer.alloc(this.#bytes, number) : undefined);
  }
  close(): void {
    this.closed += 1;
  }
}

class Receiver implements SnapshotReceiver {
  nextChunk = 0;
  readonly chunks: Uint8Array[] = [];
  readonly aborts: string[] = [];
  finishes = 0;
  onChunk: (number: number) => Promise<void> = () => Promise.resolve();
  onFinish: () => Promise<void> = () => Promise.resolve();

  async chunk(data: Uint8Array): Promise<void> {
    const number = this.nextChunk + this.chunks.length;
    await this.onChunk(number);
    this.chunks.push(Buffer.from(data));
  }
  async finish(): Promise<void> {
    this.finishes += 1;
    await this.onFinish();
  }
  abort(error: Error): void {
    this.aborts.push(error.message);
  }
}

function assertComplete(receiver: Receiver, count: number): void {
  assert.deepEqual(
    receiver.chunks.map((chunk) => [chunk.length, chunk[0]]),
    Array.from({ length: count - receiver.nextChunk }, (_, i) => [10_000, receiver.nextChunk + i]),
  );
}

/** Two members; 1's snapshot connections can be broken by `breakNow`. */
async function pair(members: Members, bounds = {}): Promise<{ one: Member; two: Member; gate: Gate }> {
  const gate: Gate = { drop: false };
  const one = await members.start(1, {
    bounds: { pingIntervalMs: 10, silentIntervalsMax: 3, ...bounds },
    intercept: (_peer, purpose) => (gate.drop && purpose === "snapshot" ? "drop" : "deliver"),
  });
  const two = await members.start(2, { bounds: { pingIntervalMs: 10, silentIntervalsMax: 10, ...bounds } });
  await join(one, two);
  return { one, two, gate };
}

interface Gate {
  drop: boolean;
}

describe("a snapshot stream", () => {
  it("brings every chunk once, in order, and is done only when it is installed", options, async () => {
    await using members = new Members();
    const { one, two } = await pair(members);
    const receiver = new Receiver();
    const installed = Promise.withResolvers<undefined>();
    receiver.onFinish = () => installed.promise;
    two.host.onSnapshot = (offer) => {
      assert.equal(offer.id, "s1");
      assert.equal(Buffer.from(offer.header).toString(), "header");
      return receiver;
    };
    const source = new Source("s1", 20);
    let answer: boolean | undefined;
    const sending = one.transport.sendSnapshot(id(2), source).then((ok) => (answer = ok));
    await until(() => receiver.finishes === 1);
    assertComplete(receiver, 20);
    assert.equal(answer, undefined);
    installed.resolve(undefined);
    assert.equal(await sending, true);
    assert.equal(source.closed, 1);
    assert.deepEqual(receiver.aborts, []);
  });

  it("does not run ahead of its receiver by more than the window", options, async () => {
    await using members = new Members();
    const { one, two } = await pair(members, { snapshotWindowChunks: 3 });
    const receiver = new Receiver();
    const first = Promise.withResolvers<undefined>();
    receiver.onChunk = (number) => (number === 0 ? first.promise : Promise.resolve());
    two.host.onSnapshot = () => receiver;
    const source = new Source("s", 20);
    const sending = one.transport.sendSnapshot(id(2), source);
    await until(() => source.asked.length === 3);
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(source.asked, [0, 1, 2]);
    first.resolve(undefined);
    assert.equal(await sending, true);
    assertComplete(receiver, 20);
  });

  for (const breakAt of [0, 1, 7, 19]) {
    it(`whose connection breaks at chunk ${breakAt} goes on where it was`, options, async () => {
      await using members = new Members();
      const { one, two, gate } = await pair(members);
      const receiver = new Receiver();
      let offers = 0;
      let broken = false;
      two.host.onSnapshot = () => {
        offers += 1;
        return receiver;
      };
      receiver.onChunk = async (number) => {
        if (number !== breakAt || broken) return;
        broken = true;
        gate.drop = true;
        const logged = one.host.logged.length;
        await until(() =>
          one.host.logged
            .slice(logged)
            .some((line) => line.includes("lost connection") && line.includes("snapshot")),
        );
        gate.drop = false;
      };
      const source = new Source("s", 20);
      assert.equal(await one.transport.sendSnapshot(id(2), source), true);
      assertComplete(receiver, 20);
      assert.equal(offers, 1);
      assert.equal(receiver.finishes, 1);
      assert.deepEqual(source.asked, [...new Set(source.asked)], "no chunk was read from the source twice");
    });
  }

  it("whose connection breaks while it is installed is done all the same", options, async () => {
    await using members = new Members();
    const { one, two, gate } = await pair(members);
    const receiver = new Receiver();
    two.host.onSnapshot = () => receiver;
    receiver.onFinish = async () => {
      gate.drop = true;
      await until(() =>
        one.host.logged.some((line) => line.includes("lost connection") && line.includes("snapshot")),
      );
      gate.drop = false;
    };
    assert.equal(await one.transport.sendSnapshot(id(2), new Source("s", 3)), true);
    assert.equal(receiver.finishes, 1);
    assertComplete(receiver, 3);
  });

  it(
    "ends, and harms nobody, when a receiver wants what is not in memory: it was restarted",
    options,
    async () => {
      await using members = new Members();
      const { one, two } = await pair(members);
      const receiver = new Receiver();
      receiver.nextChunk = 5;
      two.host.onSnapshot = () => receiver;
      const source = new Source("s", 9);
      assert.equal(await one.transport.sendSnapshot(id(2), source), false);
      assert.deepEqual(source.asked, [], "a source cannot jump");
      assert.equal(source.closed, 1);
      const fresh = new Receiver();
      two.host.onSnapshot = () => fresh;
      assert.equal(
        await one.transport.sendSnapshot(id(2), new Source("t", 3)),
        true,
        "the next one begins anew",
      );
      assertComplete(fresh, 3);
    },
  );

  it("that the receiver does not take ends false", options, async () => {
    await using members = new Members();
    const { one } = await pair(members);
    const source = new Source("s", 3);
    assert.equal(await one.transport.sendSnapshot(id(2), source), false);
    assert.equal(source.closed, 1);
  });

  it("whose receiver fails ends false on both sides, and another may follow", options, async () => {
    await using members = new Members();
    const { one, two } = await pair(members);
    for (const place of ["chunk", "finish"] as const) {
      const receiver = new Receiver();
      if (place === "chunk")
        receiver.onChunk = (n) => (n === 2 ? Promise.reject(new Error("disk")) : Promise.resolve());
      else receiver.onFinish = () => Promise.reject(new Error("disk"));
      two.host.onSnapshot = () => receiver;
      const source = new Source(place, 5);
      assert.equal(await one.transport.sendSnapshot(id(2), source), false);
      assert.deepEqual(receiver.aborts, ["disk"]);
      assert.equal(source.closed, 1);
    }
    const receiver = new Receiver();
    two.host.onSnapshot = () => receiver;
    assert.equal(await one.transport.sendSnapshot(id(2), new Source("good", 5)), true);
  });

  it("whose source fails aborts the receiver", options, async () => {
    await using members = new Members();
    const { one, two } = await pair(members);
    const receiver = new Receiver();
    two.host.onSnapshot = () => receiver;
    const source = new Source("s", 5);
    source.chunk = (number) =>
      number < 3 ? Promise.resolve(Buffer.of(number)) : Promise.reject(new Error("gone"));
    assert.equal(await one.transport.sendSnapshot(id(2), source), false);
    await until(() => receiver.aborts.length === 1);
    assert.match(receiver.aborts[0]!, /gone/);
  });

  it("without progress is given up by both ends", options, async () => {
    await using members = new Members();
    const { one, two, gate } = await pair(members, { snapshotStallMsMax: 60 });
    const receiver = new Receiver();
    receiver.onChunk = (number) => {
      if (number === 2) gate.drop = true;
      return Promise.resolve();
    };
    two.host.onSnapshot = () => receiver;
    assert.equal(await one.transport.sendSnapshot(id(2), new Source("s", 50)), false);
    await until(() => receiver.aborts.length === 1);
  });

  it("to a peer that is removed, or when this member closes, ends false", options, async () => {
    for (const end of ["remove", "close"] as const) {
      await using members = new Members();
      const { one, two } = await pair(members);
      const receiver = new Receiver();
      receiver.onChunk = (number) => (number === 3 ? new Promise(() => undefined) : Promise.resolve());
      two.host.onSnapshot = () => receiver;
      const source = new Source("s", 50);
      const sending = one.transport.sendSnapshot(id(2), source);
      await until(() => receiver.chunks.length === 3);
      if (end === "remove") one.transport.setPeers([]);
      else await one.transport.close();
      assert.equal(await sending, false);
      assert.equal(source.closed, 1);
      await until(() => receiver.aborts.length === 1);
    }
  });

  it("of another id takes the place of one that was left", options, async () => {
    await using members = new Members();
    const { one, two } = await pair(members);
    const first = new Receiver();
    const second = new Receiver();
    first.onChunk = (number) => (number === 3 ? new Promise(() => undefined) : Promise.resolve());
    two.host.onSnapshot = (offer) => (offer.id === "first" ? first : second);
    const sending = one.transport.sendSnapshot(id(2), new Source("first", 10));
    await until(() => first.chunks.length === 3);
    const busy = new Source("meanwhile", 1);
    assert.equal(await one.transport.sendSnapshot(id(2), busy), false, "one at a time to one peer");
    assert.equal(busy.closed, 1);
    const other = await members.start(1);
    other.transport.setPeers([peer(2, two.transport.address)]);
    const taking = other.transport.sendSnapshot(id(2), new Source("second", 4));
    await until(() => first.aborts.length > 0);
    assert.equal(first.aborts[0], "the sender began another snapshot");
    await one.transport.close();
    assert.equal(await sending, false);
    // The first sender may have offered its snapshot anew meanwhile, and so have thrown the second one out.
    if (await taking) return;
    const third = new Receiver();
    two.host.onSnapshot = () => third;
    assert.equal(await other.transport.sendSnapshot(id(2), new Source("third", 4)), true);
  });
});
