import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LogIndex, RaftNode, Term } from "../raft/types.ts";
import type { Store } from "../store/types.ts";
import type { Wal } from "../wal/types.ts";
import { LogKeeper } from "./log-keeper.ts";
import type { CellState } from "./state.ts";

const KEEP_BYTES = 640;
const ENTRY_BYTES = 100;

/** A store whose barriers end when the test says so. */
class World {
  readonly state: { appliedIndex: LogIndex; store: Store; logicalBytes: number };
  readonly released: number[] = [];
  readonly fatal: Error[] = [];
  /** Of the core's log. */
  first = 1;
  pinned: LogIndex | undefined;
  awaited: LogIndex | undefined;
  #barrier = Promise.withResolvers<undefined>();
  barriers = 0;
  readonly keeper: LogKeeper;

  constructor() {
    this.state = { appliedIndex: 0 as LogIndex, store: this.store(), logicalBytes: Number.MAX_SAFE_INTEGER };
    const raft: Pick<RaftNode, "termAt" | "compact"> = {
      termAt: (index) => (index >= this.first - 1 ? (1 as Term) : undefined),
      compact: (index) => void (this.first = index + 1),
    };
    const wal: Pick<Wal, "release"> = { release: (index) => void this.released.push(index) };
    Object.defineProperty(raft, "firstIndex", { get: () => this.first });
    this.keeper = new LogKeeper({
      raft: raft as RaftNode,
      wal: wal as Wal,
      state: this.state as unknown as CellState,
      fatal: (error) => void this.fatal.push(error),
      keepBytes: KEEP_BYTES,
      pinned: () => this.pinned,
      awaited: () => this.awaited,
    });
  }

  store(): Store {
    const barrier = (): Promise<void> => {
      this.barriers += 1;
      this.#barrier = Promise.withResolvers();
      return this.#barrier.promise;
    };
    return { barrier } as Store;
  }

  apply(entries: number): void {
    for (let at = 0; at < entries; at += 1) {
      this.state.appliedIndex = (this.state.appliedIndex + 1) as LogIndex;
      this.keeper.applied(this.state.appliedIndex, ENTRY_BYTES);
    }
  }

  async barrier(error?: Error): Promise<void> {
    if (error === undefined) this.#barrier.resolve(undefined);
    else this.#barrier.reject(error);
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** One entry a second. */
  async seconds(count: number): Promise<void> {
    for (let second = 0; second < count; second += 1) {
      this.apply(1);
      await this.second();
    }
  }

  /** A second passes, and its barrier. */
  async second(): Promise<void> {
    this.keeper.tick();
    await this.barrier();
  }
}

describe("the log keeper", () => {
  it("W9: nothing is released before the barrier that covers it, nor what was applied while it ran", async () => {
    const world = new World();
    world.apply(2);
    await world.second();
    world.apply(10);
    world.keeper.tick();
    world.apply(100);
    assert.deepEqual(world.released, []);
    assert.equal(world.keeper.barrierIndex, 2);
    await world.barrier();
    assert.equal(world.keeper.barrierIndex, 12);
    assert.ok(Math.max(...world.released) <= 12, `released ${world.released.join()}`);
    assert.equal(world.first - 1, world.released.at(-1), "memory and disk keep the same");
  });

  it("keeps the bytes it was told to keep for members that lag a little", async () => {
    const world = new World();
    for (let second = 0; second < 20; second += 1) {
      world.apply(1);
      await world.second();
      const released = world.released.at(-1) ?? 0;
      assert.ok(
        (world.state.appliedIndex - released) * ENTRY_BYTES >= Math.min(KEEP_BYTES, 100 * (second + 1)),
      );
    }
    assert.ok((world.released.at(-1) ?? 0) >= 10);
  });

  it("a burst between two barriers goes as soon as one covers it, not with what is written after it", async () => {
    const world = new World();
    world.apply(1);
    await world.second();
    world.apply(1_000);
    await world.second();
    const kept = world.state.appliedIndex - (world.released.at(-1) ?? 0);
    assert.ok(kept * ENTRY_BYTES <= KEEP_BYTES + 2 * ENTRY_BYTES, `kept ${String(kept)} entries`);
    assert.ok(kept * ENTRY_BYTES >= KEEP_BYTES);
  });

  it("R33: what a stream under way needs stays, up to a bound", async () => {
    const world = new World();
    world.pinned = 3 as LogIndex;
    for (let second = 0; second < 30; second += 1) {
      world.apply(1);
      await world.second();
    }
    assert.ok(world.released.every((index) => index <= 3));
    for (let second = 0; second < 60; second += 1) {
      world.apply(1);
      await world.second();
    }
    assert.ok((world.released.at(-1) ?? 0) > 3, "the stream starts over instead of filling the disk");
  });

  it("what a member lacks that is expected back stays, up to a bound, and goes once it is not awaited any more", async () => {
    const world = new World();
    world.awaited = 3 as LogIndex;
    await world.seconds(30);
    assert.ok(world.released.every((index) => index <= 3));
    world.awaited = undefined;
    world.keeper.tick();
    const kept = world.state.appliedIndex - (world.released.at(-1) ?? 0);
    assert.ok(kept * ENTRY_BYTES <= KEEP_BYTES + 2 * ENTRY_BYTES, `kept ${String(kept)} entries`);
    world.awaited = world.released.at(-1) as LogIndex;
    await world.seconds(90);
    assert.ok(world.first > world.awaited + 1, "it gets the state instead");
  });

  it("more log than there is state is not kept for a member that is expected back", async () => {
    const world = new World();
    world.awaited = 3 as LogIndex;
    world.state.logicalBytes = 2 * KEEP_BYTES;
    await world.seconds(30);
    const kept = (world.state.appliedIndex - (world.released.at(-1) ?? 0)) * ENTRY_BYTES;
    assert.ok(kept >= KEEP_BYTES && kept <= 2 * KEEP_BYTES + 2 * ENTRY_BYTES, `kept ${String(kept)} bytes`);
  });

  it("one barrier runs at a time, and none when nothing was applied", async () => {
    const world = new World();
    world.keeper.tick();
    assert.equal(world.barriers, 0);
    world.apply(1);
    world.keeper.tick();
    world.apply(1);
    world.keeper.tick();
    assert.equal(world.barriers, 1);
    await world.barrier();
    world.keeper.tick();
    assert.equal(world.barriers, 2);
  });

  it("W14: a barrier of the store that a snapshot replaced says nothing about the new one", async () => {
    const world = new World();
    world.apply(20);
    world.keeper.tick();
    world.state.store = world.store();
    world.state.appliedIndex = 50 as LogIndex;
    world.keeper.installed(50 as LogIndex);
    await world.barrier(new Error("closed"));
    assert.equal(world.keeper.barrierIndex, 50);
    assert.deepEqual(world.fatal, []);
    assert.deepEqual(world.released, []);
  });

  it("W7: a failed barrier of the live store stops the member", async () => {
    const world = new World();
    world.apply(1);
    world.keeper.tick();
    await world.barrier(new Error("disk"));
    assert.equal(world.fatal.length, 1);
  });
});
