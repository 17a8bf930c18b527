import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { Load, type LoadReport } from "./load.ts";
import type { Timing } from "./pace.ts";
import { FakeStore, type Fault, type Lie } from "./testing/fake-store.ts";
import type { ViolationKind } from "./violations.ts";

const OPTIONS = {
  instance: "test",
  writers: 3,
  keysPerWriter: 4,
  writesPerSecond: 300,
  lockers: 3,
  locksPerSecond: 60,
  watchRenewMs: 200,
};

/** The load's clocks run faster than ours: half a minute of waiting is no time for a test. */
const SPEED = 50;

function fastTiming(seed: number): Timing {
  let state = seed;
  return {
    now: () => performance.now() * SPEED,
    wallNow: () => Date.now(),
    delay: async (ms) => {
      await delay(ms / SPEED);
    },
    random: () => {
      state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
      return state / 2_147_483_648;
    },
  };
}

interface Rig {
  readonly store: FakeStore;
  readonly load: Load;
  /** Waits until the load reports what is asked for; fails after five seconds. */
  readonly until: (what: string, condition: (report: LoadReport) => boolean) => Promise<void>;
}

async function withLoad(run: (rig: Rig) => Promise<void>): Promise<void> {
  const store = new FakeStore("/load/test/");
  const load = new Load({ writes: store, locks: store, watch: store }, OPTIONS, fastTiming(7));
  const until: Rig["until"] = async (what, condition) => {
    const deadline = performance.now() + 5_000;
    while (!condition(load.report())) {
      if (performance.now() > deadline) assert.fail(`${what}: ${JSON.stringify(load.report(), null, 1)}`);
      await delay(2);
    }
  };
  await load.start();
  try {
    await run({ store, load, until });
  } finally {
    await load.stop();
  }
}

/** What is counted because of a fault. */
const SHOWS = {
  "unknown-applied": ({ total, resolved }: LoadReport) => total.unknown > 0 && resolved > 0,
  "unknown-not-applied": ({ total, retiredKeys }: LoadReport) => total.unknown > 0 && retiredKeys > 0,
  refuse: ({ total }: LoadReport) => total.failed > 0,
  "break-watch": () => true,
} satisfies Partial<Record<Fault, (report: LoadReport) => boolean>>;

const kindsOf = (report: LoadReport): readonly ViolationKind[] =>
  report.violations.kept.map(({ kind }) => kind);

describe("a load on an honest cell", () => {
  it("finds nothing, and everything is there", async () => {
    await withLoad(async ({ load, until }) => {
      assert.equal(load.isReady, false);
      await until("writes and locks", ({ total, locks }) => total.acknowledged > 200 && locks.acquired > 20);
      assert.equal(load.isReady, true);
      const { complete, keys, past } = await load.verify();
      const report = load.report();
      assert.deepEqual(report.violations, { count: 0, kept: [] });
      assert.ok(complete);
      // The guarded register is a key too.
      assert.equal(keys, report.keys + 1);
      assert.equal(past, 200);
      assert.ok(report.watch.resumed > 0, "the watch was resumed");
      assert.ok(report.watch.events > 200);
      assert.equal(report.watch.awaited, 0);
      const before = report.total.acknowledged;
      await until("it goes on after a verification", ({ total }) => total.acknowledged > before + 20);
    });
  });

  for (const fault of Object.keys(SHOWS) as (keyof typeof SHOWS)[])
    it(`${fault}: an outcome that nobody promised is no violation`, async () => {
      await withLoad(async ({ store, load, until }) => {
        await until("writes", ({ total }) => total.acknowledged > 30);
        store.play(...Array.from({ length: 20 }, () => fault));
        await until("faults", () => store.played === 20);
        const { acknowledged } = load.report().total;
        await until("writes go on", ({ total }) => total.acknowledged > acknowledged + 100);
        const { complete } = await load.verify();
        assert.deepEqual(load.report().violations.kept, []);
        assert.ok(complete);
        // Which writes the first faults met is chance: more of them until one was of the kind that shows.
        let asked = 20;
        await until("the faults show", (report) => {
          if (SHOWS[fault](report)) return true;
          if (store.played === asked) {
            store.play(fault);
            asked += 1;
          }
          return false;
        });
      });
    });

  it("a place that the cell has forgotten is looked for anew, and counted", async () => {
    await withLoad(async ({ store, load, until }) => {
      await until("writes", ({ total }) => total.acknowledged > 30);
      store.play("break-watch", "compact", "break-watch", "compact");
      await until("a new place", ({ watch }) => watch.restarted > 0);
      await load.verify();
      assert.deepEqual(load.report().violations.kept, []);
    });
  });

  it("a mark begins a phase, and a verification is no write gap", async () => {
    await withLoad(async ({ load, until }) => {
      await until("writes", ({ total }) => total.acknowledged > 20);
      load.mark("quiet");
      await load.verify();
      const { current, finished, total } = load.report();
      assert.equal(current.name, "quiet");
      assert.deepEqual(
        finished.map(({ name }) => name),
        ["start"],
      );
      assert.equal((finished[0]?.acknowledged ?? 0) + current.acknowledged, total.acknowledged);
    });
  });

  it("a cell that does not answer makes a verification incomplete, not a violation", async () => {
    await withLoad(async ({ store, load, until }) => {
      await until("writes", ({ total }) => total.acknowledged > 20);
      store.play(...Array.from({ length: 200 }, () => "refuse" as const));
      const { complete, reason } = await load.verify();
      assert.equal(complete, false);
      assert.match(reason, /no write was acknowledged: overloaded/);
      assert.deepEqual(load.report().violations.kept, []);
    });
  });
});

describe("a lie is found", () => {
  const cases: readonly (readonly [Lie, ViolationKind])[] = [
    ["lose-write", "lost-write"],
    ["write-twice", "phantom-write"],
    ["write-refused", "phantom-write"],
    ["old-revision", "revision-order"],
    ["stale-read", "lost-write"],
    ["lose-key", "lost-write"],
    ["foreign-write", "phantom-write"],
    ["repeat-token", "token-order"],
    ["give-held-lock", "two-holders"],
    ["drop-event", "watch-gap"],
    ["drop-last-event", "watch-gap"],
    ["repeat-event", "watch-duplicate"],
    ["swap-events", "watch-order"],
    ["forge-event", "phantom-write"],
  ];
  for (const [lie, kind] of cases)
    it(`${lie}: ${kind}`, async () => {
      await withLoad(async ({ store, load, until }) => {
        await until("writes", ({ total }) => total.acknowledged > 50);
        assert.deepEqual(kindsOf(load.report()), []);
        store.tell(lie);
        if (lie !== "drop-last-event") await until("the lie is told", () => store.lies === 1);
        await load.verify();
        assert.equal(store.lies, 1);
        assert.ok(kindsOf(load.report()).includes(kind), JSON.stringify(load.report().violations, null, 1));
      });
    });
});
