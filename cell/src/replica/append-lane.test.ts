import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Append, Entry, HardState, LogIndex, MemberId, Message, Term } from "../raft/types.ts";
import type { Wal, WalWrite } from "../wal/types.ts";
import { AppendLane } from "./append-lane.ts";

const hardState = (commit: number): HardState => ({
  term: 1 as Term,
  vote: 1 as MemberId,
  commit: commit as LogIndex,
});
const entry = (index: number): Entry => ({
  ...{ term: 1 as Term, index: index as LogIndex, kind: "normal", data: new Uint8Array(0) },
});
const held: Message = { kind: "timeout-now", from: 1 as MemberId, to: 2 as MemberId, term: 1 as Term };
const SNAPSHOT: NonNullable<Append["snapshot"]> = {
  index: 50 as LogIndex,
  term: 1 as Term,
  configuration: { voters: [1 as MemberId], outgoing: [], learners: [], learnersNext: [], autoLeave: false },
};

/** What happens, in order. */
class World {
  readonly events: string[] = [];
  readonly writes: WalWrite[] = [];
  readonly fatal: Error[] = [];
  readonly soon: (() => void)[] = [];
  readonly installation = Promise.withResolvers<undefined>();
  readonly #open: (() => void)[] = [];
  #token = 0;
  readonly lane: AppendLane;

  constructor() {
    const append = (write: WalWrite, done: () => void): void => {
      this.events.push(`write ${this.writes.push(write)}`);
      this.#open.push(done);
    };
    this.lane = new AppendLane({
      wal: { append } as Wal,
      appended: (token) => void this.events.push(`appended ${token}`),
      send: (messages) => void this.events.push(`send ${messages.length}`),
      install: () => this.installation.promise,
      pump: () => undefined,
      soon: (task) => void this.soon.push(task),
      fatal: (error) => void this.fatal.push(error),
    });
  }

  push(append: Partial<Append>): void {
    this.#token += 1;
    this.lane.push({ token: this.#token, mustSync: true, entries: [], held: [], ...append });
  }

  /** The next write is durable. */
  durable(): void {
    this.#open.shift()?.();
  }
}

describe("the append lane", () => {
  it("work that gives way runs when the write under way is durable and its answers have left", () => {
    const world = new World();
    world.push({ entries: [entry(1)], held: [held] });
    world.push({ entries: [entry(2)], held: [held] });
    world.lane.giveWay(() => world.events.push("work"));
    assert.equal(world.soon.length, 0);
    world.durable();
    world.durable();
    assert.deepEqual(world.events, [
      ...["write 1", "write 2", "appended 1", "send 1", "work", "appended 2", "send 1"],
    ]);
  });

  it("work gives way until the next tick at most, and runs soon when nothing is written", () => {
    const world = new World();
    world.lane.giveWay(() => world.events.push("idle work"));
    assert.equal(world.soon.length, 1);
    world.push({ entries: [entry(1)] });
    world.lane.giveWay(() => world.events.push("work"));
    world.lane.proceed();
    world.durable();
    assert.deepEqual(world.events, ["write 1", "work", "appended 1"]);
  });

  it("work that waits when the lane closes never runs: the log has it", () => {
    const world = new World();
    world.push({ entries: [entry(1)] });
    world.lane.giveWay(() => world.events.push("work"));
    world.lane.close();
    world.durable();
    world.lane.proceed();
    assert.ok(!world.events.includes("work"));
  });

  it("R1: an append is reported and its answers leave once it is durable, never before", () => {
    const world = new World();
    world.push({ entries: [entry(1)], held: [held] });
    assert.deepEqual(world.events, ["write 1"]);
    world.durable();
    assert.deepEqual(world.events, ["write 1", "appended 1", "send 1"]);
  });

  it("R5: an append that needs no write of its own waits for those before it", () => {
    const world = new World();
    world.push({ entries: [entry(1)], held: [held] });
    world.push({ mustSync: false, held: [held, held] });
    assert.deepEqual(world.events, ["write 1"]);
    world.durable();
    assert.deepEqual(world.events, ["write 1", "appended 1", "send 1", "appended 2", "send 2"]);
    world.push({ mustSync: false, held: [held] });
    assert.deepEqual(world.events.slice(5), ["appended 3", "send 1"], "nothing is before it");
  });

  it("R2: a commit index alone costs no write, and rides with the next one, the newest only", () => {
    const world = new World();
    world.push({ mustSync: false, hardState: hardState(1) });
    world.push({ mustSync: false, hardState: hardState(2) });
    assert.deepEqual(world.events, ["appended 1", "appended 2"]);
    world.push({ entries: [entry(3)] });
    world.push({ entries: [entry(4)] });
    world.push({ entries: [entry(5)], hardState: hardState(4) });
    assert.deepEqual(
      world.writes.map((write) => write.hardState?.commit),
      [2, undefined, 4],
    );
  });

  it("W14: what follows a snapshot is written behind its marker, and that behind the installation", async () => {
    const world = new World();
    world.push({ entries: [entry(1)] });
    world.push({ mustSync: false, hardState: hardState(1) });
    world.push({ snapshot: SNAPSHOT, hardState: hardState(50), entries: [entry(51)], held: [held] });
    world.push({ entries: [entry(52)] });
    world.durable();
    assert.deepEqual(
      world.events,
      ["write 1", "appended 1", "appended 2"],
      "the old log's writes end as ever",
    );
    world.installation.resolve(undefined);
    await world.installation.promise;
    await Promise.resolve();
    assert.deepEqual(world.writes.slice(1), [
      { snapshot: { index: 50, term: 1 }, hardState: hardState(50), entries: [entry(51)] },
      { entries: [entry(52)] },
    ]);
    world.durable();
    world.durable();
    assert.deepEqual(world.events.slice(5), ["appended 3", "send 1", "appended 4"]);
  });

  it("a state that could not be installed stops the member, and nothing is written behind it", async () => {
    const world = new World();
    world.push({ snapshot: SNAPSHOT, hardState: hardState(50) });
    world.push({ entries: [entry(51)], held: [held] });
    world.installation.reject(new Error("disk"));
    await assert.rejects(world.installation.promise);
    await Promise.resolve();
    assert.equal(world.fatal.length, 1);
    assert.deepEqual(world.events, []);
  });

  it("after it is closed nothing reaches the log, an installation that ends late included", async () => {
    const world = new World();
    world.push({ snapshot: SNAPSHOT, hardState: hardState(50) });
    world.lane.close();
    world.installation.resolve(undefined);
    await world.installation.promise;
    await Promise.resolve();
    world.push({ entries: [entry(51)] });
    assert.deepEqual(world.events, []);
  });
});
