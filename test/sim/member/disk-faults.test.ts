import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { SeededDice } from "../kernel/dice.ts";
import { ManualProcess, ManualScheduler } from "../network/testing.ts";
import { DiskFaults } from "./disk-faults.ts";

const SPEED = { latencyUsMin: 100, latencyUsMax: 200 };
const STALL_US = 30_000_000;

class Bench {
  readonly scheduler: ManualScheduler = new ManualScheduler();
  readonly process: ManualProcess = new ManualProcess(this.scheduler, "m1");
  readonly faults: DiskFaults = new DiskFaults(
    new SeededDice(3857),
    {
      violation: (law, text) => assert.fail(`${law}: ${text}`),
      count: () => undefined,
      trace: () => undefined,
    },
    SPEED,
  );
  readonly completedAtUs: number[] = [];

  operate(): void {
    this.faults.operate(this.process, this.scheduler.nowUs, () =>
      this.completedAtUs.push(this.scheduler.nowUs),
    );
  }
}

describe("a disk that stalls", () => {
  it("holds what began meanwhile longer than the stall itself lasts", async () => {
    const bench = new Bench();
    bench.faults.stall(1_000, STALL_US);
    for (let count = 0; count < 20; count += 1) bench.operate();
    await bench.scheduler.pass(2_000);
    bench.operate();
    await bench.scheduler.pass(SPEED.latencyUsMax);
    assert.equal(bench.completedAtUs.length, 1, "what began after it is not held");
    await bench.scheduler.pass(STALL_US + SPEED.latencyUsMax);
    assert.equal(bench.completedAtUs.length, 21);
    assert.ok((bench.completedAtUs.at(-1) ?? 0) > STALL_US / 2);
  });

  it("holds nothing any more once it is mended, and completes everything once", async () => {
    const bench = new Bench();
    bench.faults.stall(STALL_US, STALL_US);
    for (let count = 0; count < 20; count += 1) bench.operate();
    await bench.scheduler.pass(5_000_000);
    const before = bench.completedAtUs.length;
    assert.ok(before < 20);
    bench.faults.mend();
    bench.operate();
    await bench.scheduler.pass(SPEED.latencyUsMax);
    assert.equal(bench.completedAtUs.length, 21);
    await bench.scheduler.pass(2 * STALL_US);
    assert.equal(bench.completedAtUs.length, 21);
  });

  it("answers a paused process once it goes on", async () => {
    const bench = new Bench();
    bench.faults.stall(1_000, STALL_US);
    bench.operate();
    bench.process.paused = true;
    await bench.scheduler.pass(STALL_US + SPEED.latencyUsMax);
    bench.faults.mend();
    await bench.scheduler.pass(STALL_US);
    assert.deepEqual(bench.completedAtUs, []);
    bench.process.resume();
    await bench.scheduler.pass(SPEED.latencyUsMax);
    assert.equal(bench.completedAtUs.length, 1);
  });
});
