import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { KeyValue, type Cause, type WatchBatch, type WatchEvent } from "@lockstep/client";
import type { TrueEvent, TrueState } from "../contract.ts";
import { LatchedReporter } from "../workload/testing/latched-reporter.ts";
import { ManualTruth } from "../workload/testing/manual-truth.ts";
import { CompactionLedger } from "./compactions.ts";
import { WatchChecker, type WatchedSpec } from "./watch.ts";

function keyValue(state: TrueState): KeyValue {
  return new KeyValue({ ...state, key: Buffer.from(state.key), value: Buffer.from(state.value) });
}

/** The event as a right watch with previous states delivers it. */
function delivered(event: TrueEvent, revision: number): WatchEvent {
  const { kind, key, state, previous, cause } = event;
  const gone = { key, value: "", createRevision: 0, modRevision: revision, version: 0, leaseId: "0" };
  return {
    kind,
    kv: keyValue(state ?? gone),
    cause: cause as Cause,
    ...(previous === undefined ? {} : { previous: keyValue(previous) }),
  };
}

interface SetUp {
  readonly truth: ManualTruth;
  readonly compactions: CompactionLedger;
  /** The batch of one revision. */
  readonly batch: (revision: number) => WatchBatch;
  readonly checker: (spec?: Partial<WatchedSpec>) => WatchChecker;
}

/** Revision 2 puts a and b, 3 puts a, 4 puts x (elsewhere), 5 deletes a and b by expiry, 6 puts a. */
function setUp(): SetUp {
  const truth = new ManualTruth();
  const compactions = new CompactionLedger();
  truth.put({ key: "w/a", value: "1" }, { key: "w/b", value: "2" });
  truth.put({ key: "w/a", value: "3" });
  truth.put({ key: "x", value: "4" });
  truth.delete(["w/a", "w/b"], "lease-expired");
  truth.put({ key: "w/a", value: "6" });
  return {
    truth,
    compactions,
    batch: (revision) => ({
      revision,
      events: (truth.at(revision)?.events ?? []).map((event) => delivered(event, revision)),
    }),
    checker: (spec = {}) =>
      new WatchChecker(
        { truth, compactions, reporter: new LatchedReporter() },
        { name: "watch1", host: "c1" },
        {
          range: { key: "w/", isPrefix: true },
          startRevision: 2,
          returnPrevious: true,
          omit: undefined,
          ...spec,
        },
      ),
  };
}

describe("the checker of watches", () => {
  it("accepts what is complete, in order and in whole revisions, also merged", () => {
    const { checker, batch } = setUp();
    const watch = checker();
    watch.batch({ revision: 3, events: [...batch(2).events, ...batch(3).events] });
    watch.progress(4);
    watch.batch(batch(5));
    watch.batch(batch(6));
    assert.equal(watch.nextRevision, 7);
    watch.expectCaughtUp();
  });

  it("accepts a resume from where the last one stopped, and a start in the future", () => {
    const { checker, batch, truth } = setUp();
    checker({ startRevision: 5 }).batch(batch(5));
    const future = checker({ startRevision: 8 });
    truth.put({ key: "w/a", value: "7" });
    truth.put({ key: "w/a", value: "8" });
    future.batch(batch(8));
  });

  it("catches a revision left out, at the start and in the middle", () => {
    const { checker, batch } = setUp();
    assert.throws(() => checker().batch(batch(3)), /I9-complete/);
    const watch = checker();
    watch.batch(batch(2));
    assert.throws(() => watch.batch(batch(5)), /I9-complete/);
  });

  it("catches a revision that is told in parts", () => {
    const { checker, batch } = setUp();
    const { revision, events } = batch(2);
    assert.throws(() => checker().batch({ revision, events: events.slice(0, 1) }), /I9-complete/);
    assert.throws(() => checker().batch({ revision, events: events.slice(1) }), /I9/);
  });

  it("catches a duplicate, a revision before the start, and events in the wrong order", () => {
    const { checker, batch } = setUp();
    const watch = checker();
    watch.batch(batch(2));
    assert.throws(() => watch.batch(batch(2)), /I9-unique.*again/);
    assert.throws(() => checker({ startRevision: 3 }).batch(batch(2)), /I9-unique.*before its start/);
    const { revision, events } = batch(2);
    assert.throws(() => checker().batch({ revision, events: [...events].reverse() }), /I9-ordered/);
    assert.throws(() => checker().batch({ revision, events: [...events, ...events] }), /I9-unique/);
  });

  it("catches an event of another key, of the omitted kind, and one that never was", () => {
    const { checker, batch } = setUp();
    assert.throws(() => checker({ startRevision: 4 }).batch(batch(4)), /I9-unique/);
    assert.throws(() => checker({ omit: "put" }).batch(batch(2)), /I9-unique/);
    assert.throws(() => checker({ startRevision: 7 }).batch({ revision: 7, events: [] }), /I9-uncommitted/);
  });

  it("catches progress beyond what was delivered, beyond what is committed, and before the start", () => {
    const { checker, batch } = setUp();
    const watch = checker();
    watch.batch(batch(2));
    assert.throws(() => watch.progress(3), /I9-progress/);
    assert.throws(() => checker({ startRevision: 7 }).progress(7), /I9-progress/);
    assert.throws(() => checker({ startRevision: 90 }).notice(6), /I9-progress/);
    const quiet = checker({ startRevision: 4 });
    quiet.progress(4);
    assert.equal(quiet.nextRevision, 5);
  });

  it("catches a wrong value, cause or previous state", () => {
    const { checker, batch } = setUp();
    const { revision, events } = batch(3);
    const [event] = events;
    assert.ok(event !== undefined);
    const start = { startRevision: 3 };
    const wrong = (change: Partial<WatchEvent>): WatchBatch => ({
      revision,
      events: [{ ...event, ...change }],
    });
    const stale = batch(2).events[1]?.kv;
    assert.ok(stale !== undefined);
    assert.throws(() => checker(start).batch(wrong({ cause: "lease-expired" })), /I9-cause/);
    assert.throws(() => checker(start).batch(wrong({ previous: stale })), /I9-previous/);
    const { kv } = event;
    const { key, createRevision, modRevision, version, leaseId } = kv;
    const other = new KeyValue({
      ...{ key, createRevision, modRevision, version, leaseId },
      value: Buffer.from("?"),
    });
    assert.throws(() => checker(start).batch(wrong({ kv: other })), /I9-value/);
    assert.throws(() => checker({ ...start, returnPrevious: false }).batch(batch(3)), /I9-previous/);
  });

  it("lets a previous state be absent when it may be compacted, and only then", () => {
    const { checker, compactions } = setUp();
    const bare = setUp()
      .batch(3)
      .events.map(({ kind, kv, cause }) => ({ kind, kv, cause }));
    assert.throws(() => checker({ startRevision: 3 }).batch({ revision: 3, events: bare }), /I9-previous/);
    compactions.attempt(3);
    checker({ startRevision: 3 }).batch({ revision: 3, events: bare });
  });

  it("catches an end as compacted that no compaction explains", () => {
    const { checker, compactions } = setUp();
    assert.throws(() => checker().compacted(4), /I9-compacted.*nobody asked/);
    compactions.attempt(4);
    checker().compacted(4);
    assert.throws(() => checker({ startRevision: 4 }).compacted(4), /I9-compacted.*still there/);
    assert.throws(() => checker().compacted(undefined), /I9-compacted/);
  });

  it("tells how far it is behind, and complains when it should not be", () => {
    const { checker, batch } = setUp();
    const watch = checker();
    watch.batch(batch(2));
    assert.equal(watch.behind(9), 4);
    assert.throws(() => watch.expectCaughtUp(), /I9-late/);
  });
});
