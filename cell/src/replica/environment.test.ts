import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pauseIn } from "./environment.ts";
import type { Environment } from "./environment.ts";

/** An event loop whose other work takes `othersMs` of every turn. */
class Loop {
  nowMs = 0;
  othersMs = 0;
  turns = 0;
  workedMs = 0;
  /** The longest that slices held up one turn. */
  heldMsMax = 0;
  readonly #turnStarts: number[] = [0];
  readonly pause: ReturnType<typeof pauseIn>;

  constructor() {
    const environment: Pick<Environment, "clock" | "schedule" | "after"> = {
      clock: { monotonicMs: () => this.nowMs, wallMs: () => 0 },
      schedule: (task) => {
        this.heldMsMax = Math.max(this.heldMsMax, this.nowMs - (this.#turnStarts.at(-1) ?? 0));
        this.turns += 1;
        this.nowMs += this.othersMs;
        this.#turnStarts.push(this.nowMs);
        setImmediate(task);
      },
      after: (delayMs, task) => {
        this.nowMs += delayMs;
        setImmediate(task);
        return () => undefined;
      },
    };
    this.pause = pauseIn(environment as Environment);
  }

  async slices(count: number, sliceMs: number): Promise<void> {
    for (let slice = 0; slice < count; slice += 1) {
      this.nowMs += sliceMs;
      this.workedMs += sliceMs;
      await this.pause("turn");
    }
  }
}

describe("work in slices", () => {
  it("takes about a millisecond of each turn of an idle loop", async () => {
    const loop = new Loop();
    await loop.slices(100, 0.5);
    assert.ok(loop.heldMsMax <= 1, `${String(loop.heldMsMax)} ms at once`);
    assert.equal(loop.turns, 50);
  });

  it("on a busy loop takes a quarter of the time, whatever a turn takes, and never more than four milliseconds at once", async () => {
    for (const othersMs of [3, 6, 9, 12]) {
      const loop = new Loop();
      loop.othersMs = othersMs;
      await loop.slices(1_000, 0.5);
      const share = loop.workedMs / loop.nowMs;
      assert.ok(share > 0.22 && share < 0.3, `${String(share)} beside ${String(othersMs)} ms`);
      assert.ok(loop.heldMsMax <= 4, `${String(loop.heldMsMax)} ms at once`);
    }
    const overloaded = new Loop();
    overloaded.othersMs = 100;
    await overloaded.slices(1_000, 0.1);
    assert.ok(overloaded.heldMsMax < 1, "eight slices");
  });

  it("gives others their turn where the clock stands still within one", async () => {
    const loop = new Loop();
    await loop.slices(80, 0);
    assert.equal(loop.turns, 10);
  });

  it("waits before it looks again whether the store nears its stall no longer", async () => {
    const loop = new Loop();
    await loop.pause("stalled");
    assert.equal(loop.nowMs, 20);
  });
});
