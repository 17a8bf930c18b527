import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Applied, MachineEntry } from "../machine/types.ts";
import { encodeConfigurationChange } from "../raft/index.ts";
import type { ConfigurationChange, Entry, LogIndex, MemberId, Term } from "../raft/types.ts";
import { ApplyQueue } from "./apply-queue.ts";
import { DIGEST_INTERVAL } from "./divergence.ts";
import type { CellState, ChangeOutcome } from "./state.ts";

const change: ConfigurationChange = {
  transition: "auto",
  steps: [{ kind: "remove", id: 3 as MemberId }],
  context: new Uint8Array(0),
};
const command = (index: number, bytes = 1): Entry => ({
  ...{ term: 1 as Term, index: index as LogIndex, kind: "normal", data: new Uint8Array(bytes) },
});
const configuration = (index: number, data: Uint8Array = encodeConfigurationChange(change)): Entry => ({
  ...{ term: 1 as Term, index: index as LogIndex, kind: "configuration", data },
});

/** A state that remembers what it applied, and events in order. */
class World {
  readonly events: string[] = [];
  readonly fatal: Error[] = [];
  readonly turn: (() => void)[] = [];
  failAt = -1;
  /** Runs while a slice is published. */
  onApplied: () => void = () => undefined;
  veto = false;
  readonly queue: ApplyQueue;

  constructor() {
    const apply = (entries: readonly MachineEntry[]): Applied => {
      if (entries.some(({ index }) => index === this.failAt)) throw new Error("disk");
      this.events.push(`apply ${entries.map(({ index }) => index).join(",")}`);
      return { entries: [], mutations: [], events: [], leaseChanges: [] };
    };
    const applyConfiguration: CellState["applyConfiguration"] = (index, decoded, step): ChangeOutcome => {
      const refused = decoded === undefined || this.veto;
      if (refused) return { accepted: false, reason: "malformed-plan", detail: "" };
      step(decoded);
      return { accepted: true, configurationIndex: index };
    };
    this.queue = new ApplyQueue({
      state: { apply, applyConfiguration } as unknown as CellState,
      step: (index) => {
        this.events.push(`step ${index}`);
        return { refused: "" };
      },
      wantEvents: () => true,
      refuse: (index) => void this.events.push(`refuse ${index}`),
      onApplied: () => this.onApplied(),
      onConfiguration: (entry, outcome) =>
        void this.events.push(`changed ${entry.index} ${outcome.accepted ? "yes" : "no"}`),
      onSlice: (last) => void this.events.push(`done ${last.index}`),
      schedule: (task) => void this.turn.push(task),
      begin: (slice) => slice(),
      now: () => 0,
      measure: () => undefined,
      fatal: (error) => void this.fatal.push(error),
    });
  }

  endTurn(): void {
    for (const task of this.turn.splice(0)) task();
  }
}

describe("the apply queue", () => {
  it("applies what is handed to it at once, in order, and tells afterwards", () => {
    const world = new World();
    world.queue.push([command(1), command(2)]);
    assert.deepEqual(world.events, ["apply 1,2", "done 2"]);
    assert.equal(world.queue.length, 0);
  });

  it("R57: a lot of work is cut into slices with turns between them", () => {
    const world = new World();
    world.queue.push([1, 2, 3, 4, 5].map((index) => command(index, 100 * 1024)));
    assert.deepEqual(world.events, ["apply 1,2,3", "done 3"]);
    world.queue.push([command(6)]);
    assert.deepEqual(world.events.length, 2, "what comes meanwhile waits its turn");
    world.endTurn();
    assert.deepEqual(world.events.slice(2), ["apply 4,5,6", "done 6"]);
  });

  it("what is handed over while a slice is published stands behind it", () => {
    const world = new World();
    world.onApplied = () => {
      world.onApplied = () => undefined;
      world.queue.push([command(2)]);
    };
    world.queue.push([command(1)]);
    assert.deepEqual(world.events, ["apply 1", "done 1"]);
    world.endTurn();
    assert.deepEqual(world.events.slice(2), ["apply 2", "done 2"]);
  });

  it("a configuration entry is a slice of its own, settled in the core before it counts as applied", () => {
    const world = new World();
    world.queue.push([command(1), configuration(2), command(3)]);
    world.endTurn();
    world.endTurn();
    assert.deepEqual(world.events, [
      ...["apply 1", "done 1"],
      ...["step 2", "changed 2 yes", "done 2"],
      ...["apply 3", "done 3"],
    ]);
  });

  it("R36: what the membership refuses, and what is no change at all, is refused in the core too", () => {
    const world = new World();
    world.veto = true;
    world.queue.push([configuration(1)]);
    world.veto = false;
    world.queue.push([configuration(2, new Uint8Array([255]))]);
    world.endTurn();
    assert.deepEqual(world.events, [
      ...["refuse 1", "changed 1 no", "done 1"],
      ...["refuse 2", "changed 2 no", "done 2"],
    ]);
  });

  it("a slice ends where members compare their digests", () => {
    const world = new World();
    world.queue.push([-1, 0, 1].map((offset) => command(DIGEST_INTERVAL + offset)));
    assert.deepEqual(world.events.at(-1), `done ${DIGEST_INTERVAL}`);
  });

  it("W14: nothing is applied while a state is installed, and what it covers never is", () => {
    const world = new World();
    world.queue.push([1, 2, 3, 4].map((index) => command(index, 100 * 1024)));
    world.queue.pause();
    world.endTurn();
    world.queue.push([command(5), command(6)]);
    world.endTurn();
    assert.deepEqual(world.events, ["apply 1,2,3", "done 3"]);
    world.queue.resume(5 as LogIndex);
    world.endTurn();
    assert.deepEqual(world.events.slice(2), ["apply 6", "done 6"]);
  });

  it("a pause from within a slice holds the next", () => {
    const world = new World();
    world.onApplied = () => world.queue.pause();
    world.queue.push([1, 2, 3, 4].map((index) => command(index, 100 * 1024)));
    world.endTurn();
    assert.deepEqual(world.events, ["apply 1,2,3", "done 3"]);
  });

  it("R58: a failure to apply is fatal, and nothing is told or applied after it", () => {
    const world = new World();
    world.failAt = 2;
    world.queue.push([command(1), command(2)]);
    world.endTurn();
    assert.equal(world.fatal.length, 1);
    assert.deepEqual(world.events, []);
  });
});
