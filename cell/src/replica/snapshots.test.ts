import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LogIndex, MemberId, RaftNode, SnapshotMetadata } from "../raft/types.ts";
import { openMemoryGenerations } from "../store/index.ts";
import type { Generations, PendingGeneration } from "../store/index.ts";
import type { SnapshotReceiver, SnapshotSource, Transport } from "../transport/types.ts";
import { decodeHeader, Snapshots } from "./snapshots.ts";
import type { SnapshotsOptions } from "./snapshots.ts";
import { Cluster } from "./testing/cluster.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const id = (n: number): MemberId => n as MemberId;

/** Generations that tell what is done to them; the installation or removal of one may take its time. */
class TestGenerations implements Generations {
  readonly inner: Generations = openMemoryGenerations();
  readonly events: string[] = [];
  delay: Promise<unknown> = Promise.resolve();

  get current(): Generations["current"] {
    return this.inner.current;
  }
  get number(): number {
    return this.inner.number;
  }
  get note(): Uint8Array {
    return this.inner.note;
  }
  async begin(): Promise<PendingGeneration> {
    this.events.push("begin");
    const pending = await this.inner.begin();
    return {
      store: pending.store,
      commit: async (note, swap) => {
        this.events.push("commit");
        await this.delay;
        return pending.commit(note, swap);
      },
      abort: async () => {
        this.events.push("abort");
        await this.delay;
        await pending.abort();
        this.events.push("removed");
      },
    };
  }
  close(): Promise<void> {
    return this.inner.close();
  }
}

/** The receiving side of member 2, and sources from the state of member 1. */
class World {
  readonly cluster = new Cluster();
  readonly generations = new TestGenerations();
  readonly announced: SnapshotMetadata[] = [];
  readonly finished: string[] = [];
  readonly streams: {
    readonly to: MemberId;
    readonly source: SnapshotSource;
    readonly end: (ok: boolean) => void;
  }[] = [];
  /** Whether the core wants what is announced. */
  wanted = true;
  adopted: Promise<void> | undefined;
  readonly snapshots: Snapshots;

  constructor() {
    const { raft, state } = this.cluster.member(2);
    const options: SnapshotsOptions = {
      self: id(2),
      environment: this.cluster.prompt((error) => assert.fail(error)),
      raft: this.#core(raft),
      state,
      generations: this.generations,
      announce: (_from, _term, snapshot) => {
        this.announced.push(snapshot);
        if (this.wanted) this.adopted = this.snapshots.adopt(snapshot, () => undefined);
      },
      pump: () => undefined,
    };
    this.snapshots = new Snapshots(options);
    const transport: Pick<Transport, "sendSnapshot"> = {
      sendSnapshot: (to, source) =>
        new Promise((resolve, reject) =>
          this.streams.push({ to, source, end: (ok) => (ok ? resolve(true) : reject(new Error("broken"))) }),
        ),
    };
    this.snapshots.connect(transport as Transport);
  }

  /** What a leader at index 9 would offer. */
  async offer(name: string): Promise<{ receiver: SnapshotReceiver | undefined; chunks: Uint8Array[] }> {
    const donor = new Cluster();
    const { raft, state } = donor.elect(1);
    while (state.appliedIndex < 9) {
      donor.member(1).put("k", "v");
      donor.settle();
    }
    const snapshots = new Snapshots({
      ...{ self: id(1), environment: donor.prompt((error) => assert.fail(error)) },
      ...{ raft, state, generations: this.generations },
      announce: () => undefined,
      pump: () => undefined,
    });
    const sent: SnapshotSource[] = [];
    const transport: Pick<Transport, "sendSnapshot"> = {
      sendSnapshot: (_to, source) => new Promise(() => sent.push(source)),
    };
    snapshots.connect(transport as Transport);
    snapshots.send(id(2));
    const source = sent[0];
    assert.ok(source !== undefined);
    const chunks: Uint8Array[] = [];
    for (let number = 0; ; number += 1) {
      const chunk = await source.chunk(number);
      if (chunk === undefined) break;
      chunks.push(chunk);
    }
    return { receiver: this.snapshots.receive(id(1), { id: name, header: source.header }), chunks };
  }

  #core(raft: RaftNode): RaftNode {
    return Object.create(raft, {
      snapshotStarted: {
        value: (peer: MemberId, index: LogIndex) => this.finished.push(`start ${peer} ${index}`),
      },
      snapshotFinished: { value: (peer: MemberId, ok: boolean) => this.finished.push(`end ${peer} ${ok}`) },
      termAt: { value: () => 1 },
      term: { value: 1 },
      commit: { value: 1 },
    }) as RaftNode;
  }
}

async function take(
  receiver: SnapshotReceiver | undefined,
  chunks: readonly Uint8Array[],
): Promise<SnapshotReceiver> {
  assert.ok(receiver !== undefined);
  for (const chunk of chunks) await receiver.chunk(chunk);
  return receiver;
}

describe("receiving a state", () => {
  it("W14: it is announced when it is complete, and the sender told when it is installed", async () => {
    const world = new World();
    const { receiver, chunks } = await world.offer("one");
    await take(receiver, chunks);
    assert.deepEqual(world.announced, []);
    await receiver?.finish();
    assert.deepEqual(
      world.announced.map(({ index, term }) => [index, term]),
      [[9, 2]],
    );
    assert.deepEqual(world.generations.events, ["begin", "commit"]);
    const note = decodeHeader(world.generations.note);
    assert.equal(note?.snapshot.index, 9, "a start after a crash finds where the state came from");
  });

  it("what the core does not want is thrown away, and the next begins once it is gone", async () => {
    const world = new World();
    world.wanted = false;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    world.generations.delay = promise;
    const first = await world.offer("one");
    await take(first.receiver, first.chunks);
    await assert.rejects(async () => first.receiver?.finish());
    const second = await world.offer("two");
    assert.ok(second.receiver !== undefined);
    for (let turns = 0; turns < 5; turns += 1) await turn();
    assert.deepEqual(world.generations.events, ["begin", "abort"], "one folder, one generation");
    resolve(undefined);
    world.wanted = true;
    await take(second.receiver, second.chunks);
    await second.receiver.finish();
    assert.deepEqual(world.generations.events, ["begin", "abort", "removed", "begin", "commit"]);
  });

  it("a stream that another replaced installs nothing, however complete it is", async () => {
    const world = new World();
    const first = await world.offer("one");
    await take(first.receiver, first.chunks);
    const second = await world.offer("two");
    await assert.rejects(async () => first.receiver?.finish());
    assert.deepEqual(world.announced, []);
    await take(second.receiver, second.chunks);
    await second.receiver?.finish();
    assert.equal(world.announced.length, 1);
  });

  it("B36: none other is taken in while one is being installed", async () => {
    const world = new World();
    const first = await world.offer("one");
    await take(first.receiver, first.chunks);
    const { promise, resolve } = Promise.withResolvers<undefined>();
    world.generations.delay = promise;
    const finishing = first.receiver?.finish();
    assert.equal((await world.offer("two")).receiver, undefined);
    assert.equal(world.announced.length, 1);
    resolve(undefined);
    await finishing;
  });

  it("a stream that is given up leaves nothing on the disk, and the same one offered again begins anew", async () => {
    const world = new World();
    const { receiver, chunks } = await world.offer("one");
    await take(receiver, chunks.slice(0, 1));
    assert.equal(world.snapshots.isInstalling, true);
    receiver?.abort(new Error("the sender gave up"));
    assert.equal(world.snapshots.isInstalling, false);
    for (let turns = 0; turns < 5; turns += 1) await turn();
    assert.deepEqual(world.generations.events, ["begin", "abort", "removed"]);
    const again = await world.offer("one");
    assert.equal(again.receiver?.nextChunk, 0);
    await (await take(again.receiver, again.chunks)).finish();
    assert.equal(world.announced.length, 1);
  });

  it("a stream that is given up while its state is being installed takes nothing back", async () => {
    const world = new World();
    const { receiver, chunks } = await world.offer("one");
    await take(receiver, chunks);
    const { promise, resolve } = Promise.withResolvers<undefined>();
    world.generations.delay = promise;
    const finishing = receiver?.finish();
    for (let turns = 0; turns < 5; turns += 1) await turn();
    receiver?.abort(new Error("the member is closing"));
    assert.equal(world.snapshots.isInstalling, true);
    resolve(undefined);
    await finishing;
    assert.deepEqual(world.generations.events, ["begin", "commit"]);
    assert.equal(world.snapshots.isInstalling, false);
  });

  it("a resumed stream goes on where it was", async () => {
    const world = new World();
    const { receiver, chunks } = await world.offer("one");
    await take(receiver, chunks.slice(0, 1));
    const again = await world.offer("one");
    assert.equal(again.receiver, receiver);
    assert.equal(again.receiver?.nextChunk, 1);
  });
});

describe("sending the state", () => {
  it("R30, R33: each stream is reported whatever its end, and holds the log back no longer", async () => {
    for (const ok of [true, false]) {
      const world = new World();
      world.snapshots.send(id(3));
      world.snapshots.send(id(3));
      assert.equal(world.streams.length, 1, "one stream a peer");
      assert.equal(world.snapshots.pinnedIndex(), 1);
      world.streams[0]?.end(ok);
      await turn();
      assert.deepEqual(world.finished, ["start 3 1", `end 3 ${String(ok)}`]);
      assert.equal(world.snapshots.pinnedIndex(), undefined);
      world.snapshots.send(id(3));
      assert.equal(world.streams.length, 2);
    }
  });
});
