import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EventLoop } from "../kernel/event-loop.ts";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { ManualTruth } from "../workload/testing/manual-truth.ts";
import { ClaimLedger } from "./claims.ts";
import { prefixOf, type Recipe, type Resource } from "./resources.ts";
import { WaiterLedger } from "./waiters.ts";

const SECOND_US = 1_000_000;
/** Longer than anybody may take to learn of a turn. */
const TOO_LONG_S = 40;

function setUp(recipe: Recipe, permits = 1) {
  const truth = new ManualTruth();
  const reporter = new LatchedReporter();
  const loop = new EventLoop();
  const resource: Resource = { recipe, name: "x", permits };
  const claims = new ClaimLedger(truth, reporter, [resource]);
  const waiters = new WaiterLedger(truth, claims, reporter, loop);
  const key = (rest: string): string => `${prefixOf(resource)}${rest}`;
  return {
    ...{ truth, waiters, reporter },
    put: (leaseId: string, rest = "") => {
      truth.put({ key: key(rest), leaseId });
    },
    free: (rest = "") => {
      truth.delete([key(rest)]);
    },
    begin: (leaseId: string) => waiters.begin({ resources: [resource], host: `c${leaseId}`, leaseId }),
    pass: (seconds: number) => {
      const endUs = loop.nowUs + seconds * SECOND_US;
      loop.in(seconds * SECOND_US, () => undefined);
      return loop.run(() => loop.nowUs >= endUs || reporter.first !== undefined);
    },
  };
}

describe("who waits", () => {
  it("for what is held may wait for ever; for what is free, no longer than the bound once the cell is well", async () => {
    const { waiters, put, free, begin, pass, reporter } = setUp("lock");
    put("1");
    begin("2");
    await pass(TOO_LONG_S);
    waiters.healed();
    await pass(TOO_LONG_S);
    free();
    await pass(20);
    assert.equal(reporter.first, undefined);
    await assert.rejects(pass(20), /I11-waits/);
  });

  it("is not judged while there are faults, and not when it was told in time", async () => {
    const { waiters, begin, pass, reporter } = setUp("lock");
    const late = begin("1");
    await pass(TOO_LONG_S);
    late();
    const told = begin("2");
    waiters.healed();
    await pass(20);
    told();
    await pass(TOO_LONG_S);
    assert.equal(reporter.first, undefined);
  });

  it("is forgotten when its process dies", async () => {
    const { waiters, begin, pass, reporter } = setUp("lock");
    begin("1");
    waiters.processKilled("c1");
    waiters.healed();
    await pass(TOO_LONG_S);
    assert.equal(reporter.first, undefined);
  });

  it("in a queue is due when those before are gone, by its last place", async () => {
    const { waiters, put, free, begin, pass } = setUp("fair-lock");
    put("1", "01");
    // What an earlier attempt of the same session left is in nobody's way but its own.
    put("2", "02");
    begin("2");
    put("2", "03");
    waiters.healed();
    free("01");
    await pass(TOO_LONG_S);
    free("02");
    await assert.rejects(pass(TOO_LONG_S), /I11-waits/);
  });

  it("for a permit is due when it is the first and a slot is free", async () => {
    const { waiters, put, free, begin, pass, reporter } = setUp("semaphore", 2);
    put("1", "slots/0000");
    put("2", "slots/0001");
    put("3", "queue/03");
    put("4", "queue/04");
    begin("4");
    waiters.healed();
    free("slots/0000");
    await pass(TOO_LONG_S);
    put("3", "slots/0000");
    free("queue/03");
    await pass(TOO_LONG_S);
    assert.equal(reporter.first, undefined);
    free("slots/0001");
    await assert.rejects(pass(TOO_LONG_S), /I11-waits/);
  });
});
