import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Revision } from "@lockstep/gateway/coordinator";
import { Sink, World, prefix } from "./testing/world.ts";

function start(revision: number) {
  return { startRevision: revision as Revision };
}

describe("registration", () => {
  it("is atomic with the revision: the next change is the first delivered", () => {
    const world = new World();
    world.put("a");
    const sink = world.watch("a");
    assert.equal(sink.handle!.createdRevision, 2);
    world.put("a");
    assert.deepEqual(sink.texts, ["put a@3"]);
    assert.deepEqual(
      sink.calls.map((call) => call.revision),
      [3],
    );
  });

  it("between apply and publication does not get what was applied before it", () => {
    const world = new World();
    world.apply(1, [{ kind: "put", key: "a" }]);
    const sink = world.watch("a");
    assert.equal(sink.handle!.createdRevision, 2);
    world.publish();
    assert.deepEqual(sink.texts, []);
    world.put("a");
    assert.deepEqual(sink.texts, ["put a@3"]);
  });

  it("beyond watchesMax is refused, and a cancelled watch makes room", () => {
    const world = new World({ watchesMax: 1 });
    const sink = world.watch("a");
    const request = { namespaceId: 1, range: prefix("b"), returnPrevious: false };
    assert.equal(world.hub.watch(request, new Sink()), undefined);
    sink.handle!.cancel();
    assert.equal(world.hub.watchers, 0);
    assert.notEqual(world.hub.watch(request, new Sink()), undefined);
  });

  it("with a future start gets neither events nor progress below it (B10)", () => {
    const world = new World();
    const sink = world.watch("a", start(4));
    sink.handle!.requestProgress();
    world.put("a");
    world.settle();
    world.put("a");
    world.settle();
    assert.deepEqual(sink.order, []);
    world.put("a");
    assert.deepEqual(sink.order, ["events 4", "progress 4"]);
  });

  it("below the compaction point ends compacted, after watch() returned", () => {
    const world = new World();
    for (let i = 0; i < 5; i++) world.put("a");
    world.compact(4);
    const late = world.watch("a", start(3));
    const kept = world.watch("a", start(4));
    assert.deepEqual(late.order, []);
    world.settle();
    assert.deepEqual(late.ends, [{ kind: "compacted", compactRevision: 4 }]);
    assert.deepEqual(kept.texts, ["put a@4", "put a@5", "put a@6"]);
    assert.equal(world.hub.watchers, 1);
  });
});

describe("delivery", () => {
  it("is atomic for each revision, in operation order, and covers a whole publication at once", () => {
    const world = new World();
    const sink = world.watch(prefix("a", "b"));
    world.apply(1, [
      { kind: "put", key: "a2" },
      { kind: "put", key: "b" },
      { kind: "put", key: "a1" },
    ]);
    world.apply(1, [{ kind: "delete", key: "a2" }]);
    world.publish();
    assert.equal(sink.calls.length, 1);
    assert.deepEqual(sink.texts, ["put a2@2", "put a1@2", "delete a2@3"]);
    assert.equal(sink.calls[0]!.revision, 3);
  });

  it("reaches only the namespace, the key and the range asked for", () => {
    const world = new World();
    const sinks = {
      exact: world.watch("k"),
      range: world.watch(prefix("k", "m")),
      from: world.watch(prefix("l")),
      none: world.watch(prefix("m", "k")),
      other: world.watch("k", { namespaceId: 2 }),
    };
    world.put("k");
    world.put("l\u00ff");
    world.put("m");
    world.put("k", "v", 2);
    const texts = Object.fromEntries(Object.entries(sinks).map(([name, sink]) => [name, sink.texts]));
    assert.deepEqual(texts, {
      exact: ["put k@2"],
      range: ["put k@2", "put l\u00ff@3"],
      from: ["put l\u00ff@3", "put m@4"],
      none: [],
      other: ["put k@5"],
    });
  });

  it("leaves out what the watch omits, in step and catching up", () => {
    const world = new World();
    world.put("a");
    world.delete("a");
    const puts = world.watch("a", { omit: "delete", ...start(1) });
    const deletes = world.watch("a", { omit: "put", ...start(1) });
    world.settle();
    world.put("a");
    world.delete("a");
    assert.deepEqual(puts.texts, ["put a@2", "put a@4"]);
    assert.deepEqual(deletes.texts, ["delete a@3", "delete a@5"]);
  });

  it("shares the event objects, and looks a previous state up once", () => {
    const world = new World();
    world.put("a", "old");
    const plain = [world.watch("a"), world.watch(prefix("a"))];
    const previous = [
      world.watch("a", { returnPrevious: true }),
      world.watch(prefix(""), { returnPrevious: true }),
    ];
    world.put("a", "new");
    assert.equal(plain[0]!.received[0], plain[1]!.received[0]);
    assert.equal(previous[0]!.received[0], previous[1]!.received[0]);
    assert.equal(plain[0]!.received[0]!.previous, undefined);
    assert.equal(Buffer.from(previous[0]!.received[0]!.previous!.value).toString(), "old");
    assert.equal(world.stateLookups, 1);
    const late = world.watch("a", { returnPrevious: true, ...start(3) });
    world.settle();
    assert.equal(late.received[0], previous[0]!.received[0]);
    assert.equal(world.stateLookups, 1);
  });

  it("has no previous state for a new key and one that is compacted away", () => {
    const world = new World();
    world.put("a", "1");
    world.put("a", "2");
    world.put("a", "3");
    world.compact(3);
    world.hub.reset();
    const sink = world.watch("a", { returnPrevious: true, ...start(3) });
    const fresh = world.watch("b", { returnPrevious: true });
    world.settle();
    world.put("b");
    assert.deepEqual(
      sink.received.map((event) => event.previous && Buffer.from(event.previous.value).toString()),
      [undefined, "2"],
    );
    assert.equal(fresh.received[0]!.previous, undefined);
  });

  it("stops when the watch is cancelled, even by another sink in the same turn", () => {
    const world = new World();
    const first = world.watch("a");
    const second = world.watch("a");
    first.onEvents = () => second.handle!.cancel();
    second.onEvents = () => first.handle!.cancel();
    world.put("a");
    world.put("a");
    const calls = [first.calls.length, second.calls.length].sort();
    assert.deepEqual(calls, [0, 2]);
    assert.deepEqual([first.ends, second.ends], [[], []]);
    assert.equal(world.hub.watchers, 1);
  });

  it("to a sink that throws ends that watch and no other", () => {
    const world = new World();
    const bad = world.watch("a");
    const good = world.watch("a");
    bad.onEvents = () => {
      throw new Error("broken pipe");
    };
    world.put("a");
    assert.deepEqual(good.texts, ["put a@2"]);
    const [end] = bad.ends;
    assert.ok(end?.kind === "cancelled");
    assert.equal(end.failure.code, "internal");
    assert.match(end.failure.message, /broken pipe/);
    world.put("a");
    assert.equal(bad.calls.length, 1);
  });
});

describe("catching up", () => {
  it("comes from the ring when it covers the start, else from history", () => {
    const world = new World({ ringBytesMax: 3_000 });
    world.watch("elsewhere");
    for (let i = 0; i < 100; i++) world.put("a");
    const reads = (): number => world.historyReads;
    const recent = world.watch("a", start(100));
    world.settle();
    assert.equal(reads(), 0);
    assert.deepEqual(recent.texts, ["put a@100", "put a@101"]);
    const old = world.watch("a", start(2));
    world.settle();
    assert.ok(reads() > 0);
    assert.equal(old.received.length, 100);
    world.put("a");
    assert.equal(old.received.length, 101);
    assert.equal(recent.received.length, 3);
  });

  it("reads history for what passed by while nobody watched: such events are not kept", () => {
    const world = new World();
    for (let i = 0; i < 10; i++) world.put("a");
    const late = world.watch("a", start(2));
    world.settle();
    assert.ok(world.historyReads > 0);
    assert.equal(late.received.length, 10);
    world.put("a");
    assert.equal(late.received.length, 11);
  });

  it("is sliced, and changes meanwhile are neither lost nor doubled", () => {
    const world = new World({ ringBytesMax: 1_000 });
    for (let i = 0; i < 2_000; i++) world.put(i % 2 === 0 ? "a" : "b");
    const sink = world.watch("a", start(1));
    let slices = 0;
    while (world.slice()) {
      slices += 1;
      world.put("a");
    }
    assert.ok(slices > 2);
    world.put("a");
    const expected = world.log.filter((one) => Buffer.from(one.events[0]!.kv.key).toString() === "a");
    assert.deepEqual(
      sink.received.map((event) => event.kv.modRevision),
      expected.map((one) => one.revision),
    );
  });

  it("of many watchers reads history once for all that stand together", () => {
    const world = new World({ ringBytesMax: 0 });
    for (let i = 0; i < 50; i++) world.put(`k${i}`);
    const sinks = Array.from({ length: 500 }, (_, i) => world.watch(`k${i % 50}`, start(1)));
    world.settle();
    assert.ok(world.historyReads < 10, String(world.historyReads));
    sinks.forEach((sink, i) => assert.deepEqual(sink.texts, [`put k${i % 50}@${2 + (i % 50)}`]));
  });

  it("without a match still ends in step (#17507)", () => {
    const world = new World();
    for (let i = 0; i < 10; i++) world.put("other");
    const sink = world.watch("a", start(1));
    sink.handle!.requestProgress();
    world.settle();
    assert.deepEqual(sink.order, ["progress 11"]);
  });

  it("that is overtaken by compaction ends compacted, unless the ring still has it", () => {
    const world = new World();
    world.watch("elsewhere");
    for (let i = 0; i < 5; i++) world.put("a");
    const inRing = world.watch("a", start(2));
    world.compact(5);
    world.settle();
    assert.equal(inRing.received.length, 5);

    const small = new World({ ringBytesMax: 0 });
    for (let i = 0; i < 5; i++) small.put("a");
    const gone = small.watch("a", start(2));
    small.compact(5);
    assert.deepEqual(gone.order, ["end compacted"]);
    small.settle();
    assert.deepEqual(gone.ends, [{ kind: "compacted", compactRevision: 5 }]);
  });
});

describe("a full sink", () => {
  it("gets nothing until it resumes, then all of it in order", () => {
    const world = new World();
    const sink = world.watch("a");
    sink.full = true;
    for (let i = 0; i < 5; i++) world.put("a");
    assert.equal(sink.calls.length, 1);
    assert.ok(world.hub.pendingBytes > 0);
    sink.handle!.requestProgress();
    world.settle();
    assert.deepEqual(sink.progressed, []);
    sink.drain();
    assert.deepEqual(
      sink.received.map((event) => event.kv.modRevision),
      [2, 3, 4, 5, 6],
    );
    assert.equal(world.hub.pendingBytes, 0);
    world.settle();
    assert.equal(sink.order.at(-1), "progress 6");
  });

  it("that fills again while it drains keeps the rest owed", () => {
    const world = new World();
    const sink = world.watch("a");
    sink.full = true;
    for (let i = 0; i < 5; i++) world.put("a");
    for (let i = 2; i <= 5; i++) {
      sink.handle!.resume();
      assert.equal(sink.calls.length, i);
    }
    world.put("a");
    assert.equal(sink.calls.length, 5);
    sink.drain();
    assert.deepEqual(
      sink.received.map((event) => event.kv.modRevision),
      [2, 3, 4, 5, 6, 7],
    );
  });

  it("beyond its bound ends as a slow consumer with the first undelivered revision, others unharmed", () => {
    const world = new World({ pendingBytesMax: 10_000 });
    const slow = world.watch(prefix(""));
    const quick = world.watch(prefix(""));
    slow.full = true;
    world.put("a", "x".repeat(1_000));
    world.put("a");
    while (slow.ends.length === 0) world.put("a", "x".repeat(1_000));
    assert.deepEqual(slow.ends, [{ kind: "slow-consumer", resumeRevision: 3 }]);
    assert.equal(world.hub.slowConsumerCuts, 1);
    assert.equal(world.hub.pendingBytes, 0);
    assert.equal(quick.received.length, world.log.length);
    slow.drain();
    assert.equal(slow.calls.length, 1);
    const resumed = world.watch(prefix(""), start(3));
    world.settle();
    assert.equal(resumed.received.length, world.log.length - 1);
  });

  it("is cut first when it is the largest and the total bound is reached", () => {
    const world = new World({ totalPendingBytesMax: 20_000 });
    const small = world.watch("small");
    const large = world.watch(prefix(""));
    small.full = true;
    large.full = true;
    world.put("small");
    world.put("small");
    while (large.ends.length === 0) world.put("large", "x".repeat(2_000));
    assert.deepEqual(small.ends, []);
    assert.ok(world.hub.pendingBytes <= 20_000);
    small.drain();
    assert.equal(small.received.length, 2);
  });

  it("while catching up holds no memory and goes on where it was, or ends compacted (B8)", () => {
    for (const compaction of [false, true]) {
      const world = new World({ ringBytesMax: 0 });
      for (let i = 0; i < 2_000; i++) world.put("a");
      const sink = world.watch("a", start(2));
      sink.full = true;
      world.settle();
      const before = sink.received.length;
      assert.ok(before > 0 && before < 2_000);
      for (let i = 0; i < 2_000; i++) world.put("a");
      assert.equal(world.hub.pendingBytes, 0);
      if (compaction) world.compact(3_000);
      sink.drain();
      world.settle();
      if (compaction) assert.deepEqual(sink.ends, [{ kind: "compacted", compactRevision: 3_000 }]);
      else
        assert.deepEqual(
          sink.received.map((e) => e.kv.modRevision),
          world.log.map((one) => one.revision),
        );
    }
  });
});

describe("progress", () => {
  it("comes after every event up to its revision (B6)", () => {
    const world = new World();
    for (let i = 0; i < 100; i++) world.put("a");
    const sink = world.watch("a", start(1));
    sink.handle!.requestProgress();
    world.put("a");
    world.settle();
    assert.equal(sink.order.at(-1), "progress 102");
    assert.equal(sink.received.length, 101);
    sink.handle!.requestProgress();
    sink.handle!.requestProgress();
    assert.equal(sink.progressed.length, 1, "not within the request");
    world.settle();
    assert.deepEqual(sink.progressed, [102, 102]);
  });
});

describe("a snapshot that replaced the state", () => {
  it("lets every watch go on from its own next revision, once each (B7)", () => {
    const world = new World();
    const all = world.watch(prefix(""));
    const future = world.watch("a", start(9));
    const full = world.watch("a");
    full.full = true;
    world.put("a");
    world.put("a");
    for (let i = 0; i < 5; i++) world.apply(1, [{ kind: "put", key: "a" }]);
    world.installSnapshot();
    world.settle();
    world.put("a");
    full.drain();
    world.settle();
    const revisions = (sink: Sink) => sink.received.map((event) => event.kv.modRevision);
    assert.deepEqual(revisions(all), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert.deepEqual(revisions(full), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert.deepEqual(revisions(future), [9]);
  });

  it("ends a watch whose next revision it compacted away", () => {
    const world = new World();
    const sink = world.watch("a");
    world.put("a");
    for (let i = 0; i < 5; i++) world.apply(1, [{ kind: "put", key: "a" }]);
    world.compact(5);
    world.installSnapshot();
    world.settle();
    assert.deepEqual(sink.ends, [{ kind: "compacted", compactRevision: 5 }]);
    assert.deepEqual(sink.texts, ["put a@2"]);
  });
});

describe("closing", () => {
  it("ends every watch once, whatever it is doing", () => {
    const world = new World({ ringBytesMax: 0 });
    world.put("a");
    const sinks = [world.watch("a"), world.watch("a", start(1)), world.watch("a")];
    sinks[2]!.full = true;
    world.put("a");
    world.put("a");
    world.hub.close("stopping");
    world.settle();
    for (const sink of sinks) {
      assert.equal(sink.ends.length, 1);
      assert.equal(sink.ends[0]!.kind, "cancelled");
    }
    assert.equal(world.hub.watchers, 0);
    assert.equal(world.hub.pendingBytes, 0);
  });
});

describe("fan-out", () => {
  it("costs only the watchers that match", () => {
    const world = new World();
    for (let i = 0; i < 20_000; i++) world.watch(i % 2 === 0 ? `other/${i}` : prefix(`p${i}/`, `p${i}0`));
    const one = world.watch("hot");
    const many = 300;
    const begin = performance.now();
    for (let i = 0; i < many; i++) world.put(`hot`);
    const each = (performance.now() - begin) / many;
    assert.equal(one.received.length, many);
    assert.ok(each < 2, `${each} ms a publication`);
  });
});

describe("a namespace that is deleted", () => {
  it("cancels its watches in slices, whatever state they are in, and reads nothing for them any more", () => {
    const world = new World();
    for (let i = 0; i < 3; i++) world.put("a", "v", 2);
    const synced = world.watch("a", { namespaceId: 2 });
    const lagging = world.watch(prefix("a"), { ...start(2), namespaceId: 2 });
    const full = world.watch("a", { namespaceId: 2 });
    full.full = true;
    world.put("a", "v", 2);
    const other = world.watch("a");
    const many = Array.from({ length: 1_500 }, () => world.watch("b", { namespaceId: 2 }));
    const reads = world.historyReads;
    world.hub.deleted(2, "team");
    assert.ok([synced, lagging, full].every(({ ends }) => ends.length === 0));
    full.handle!.resume();
    world.settle();
    const failure = {
      code: "namespace-not-found",
      outcome: "not-applied",
      message: 'The namespace "team" was deleted.',
    };
    for (const sink of [synced, lagging, full, ...many]) {
      assert.deepEqual(sink.ends, [{ kind: "cancelled", failure }]);
    }
    assert.equal(world.historyReads, reads);
    assert.equal(world.hub.watchers, 1);
    world.put("a");
    assert.equal(other.texts.length, 1);
  });
});
