import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { KeyRange, Revision, WatchEnd, WatchEvent } from "@lockstep/gateway/coordinator";
import type { HubWatchRequest } from "./types.ts";
import { Sink, World, describe as text } from "./testing/world.ts";

const KEYS = ["", "a", "ab", "b", "b\u00ff", "c"];

const key = fc.constantFrom(...KEYS);
const namespaceId = fc.constantFrom(1, 1, 1, 2);
const change = fc.record({
  kind: fc.constantFrom("put" as const, "put" as const, "delete" as const),
  key,
  value: fc.constantFrom("", "v", "x".repeat(200)),
});
const changes = fc.uniqueArray(change, { minLength: 1, maxLength: 4, selector: (one) => one.key });
const range = fc.record({ key, end: fc.option(key, { nil: undefined }) });

const step = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant("write" as const), namespaceId, changes }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("publish" as const) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("burst" as const), namespaceId, changes }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("watch" as const),
      namespaceId,
      range,
      offset: fc.option(fc.integer({ min: -12, max: 4 }), { nil: undefined }),
      returnPrevious: fc.boolean(),
      omit: fc.constantFrom(undefined, undefined, "put" as const, "delete" as const),
    }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("slice" as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("full" as const), pick: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("trickle" as const), pick: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("drain" as const), pick: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("progress" as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("cancel" as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("snapshot" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("compact" as const), namespaceId, back: fc.nat(8) }) },
);

function matches(request: HubWatchRequest, keyBytes: Uint8Array): boolean {
  const { key: start, rangeEnd } = request.range;
  if (rangeEnd === undefined) return Buffer.compare(keyBytes, start) === 0;
  if (Buffer.compare(keyBytes, start) < 0) return false;
  return rangeEnd.length === 0 || Buffer.compare(keyBytes, rangeEnd) < 0;
}

/** A sink that holds every call against the whole history: the dumb twin of the hub. */
class Judge extends Sink {
  readonly request: HubWatchRequest;
  readonly #world: World;
  readonly #created: Revision;
  cancelled = false;
  delivered = 0;

  constructor(world: World, request: HubWatchRequest) {
    super();
    this.#world = world;
    this.request = request;
    this.#created = world.revision();
  }

  get first(): number {
    return this.request.startRevision ?? this.#created + 1;
  }

  expected(): WatchEvent[] {
    return this.#world.log
      .filter((one) => one.namespaceId === this.request.namespaceId && one.revision >= this.first)
      .flatMap((one) => one.events)
      .filter((event) => event.kind !== this.request.omit && matches(this.request, event.kv.key));
  }

  override events(events: readonly WatchEvent[], revision: Revision): boolean {
    this.#alive();
    assert.ok(events.length > 0);
    const expected = this.expected().filter((event) => event.kv.modRevision <= revision);
    // Ordered, unique, without a gap, whole revisions: exactly what is covered and was not delivered yet.
    assert.deepEqual(events.map(text), expected.slice(this.delivered).map(text));
    for (const event of events) this.#checkPrevious(event);
    this.delivered += events.length;
    return super.events(events, revision);
  }

  override progress(revision: Revision): void {
    this.#alive();
    assert.ok(revision >= (this.request.startRevision ?? this.#created));
    assert.equal(this.delivered, this.expected().filter((e) => e.kv.modRevision <= revision).length);
    super.progress(revision);
  }

  override end(end: WatchEnd): void {
    this.#alive();
    const left = this.expected().slice(this.delivered);
    if (end.kind === "slow-consumer") {
      assert.ok(this.full, "a consumer that drains is not slow");
      assert.equal(end.resumeRevision, left[0]?.kv.modRevision);
    } else {
      assert.ok(end.kind === "compacted");
      assert.equal(end.compactRevision, this.#world.compactRevision(this.request.namespaceId));
      const coveredAll = this.calls.at(-1)?.revision ?? 0;
      assert.ok(coveredAll + 1 < end.compactRevision, "nothing was missing");
    }
    super.end(end);
  }

  get over(): boolean {
    return this.cancelled || this.ends.length > 0;
  }

  #alive(): void {
    assert.ok(!this.over, "a delivery after the end");
  }

  #checkPrevious(event: WatchEvent): void {
    if (!this.request.returnPrevious) assert.equal(event.previous, undefined);
    if (event.previous === undefined) return;
    const before = this.#world.log
      .filter((one) => one.namespaceId === this.request.namespaceId && one.revision < event.kv.modRevision)
      .flatMap((one) => one.events)
      .findLast((one) => Buffer.compare(one.kv.key, event.kv.key) === 0);
    assert.equal(before?.kind, "put");
    assert.equal(event.previous.modRevision, before.kv.modRevision);
  }
}

function rangeOf(one: { key: string; end: string | undefined }): KeyRange {
  const bytes = Buffer.from(one.key, "latin1");
  return one.end === undefined ? { key: bytes } : { key: bytes, rangeEnd: Buffer.from(one.end, "latin1") };
}

const bounds = fc.record({
  ringBytesMax: fc.constantFrom(0, 1_000, 1 << 20),
  pendingBytesMax: fc.constantFrom(600, 5_000, 1 << 20),
  totalPendingBytesMax: fc.constantFrom(3_000, 1 << 20),
  fanoutSlice: fc.constantFrom(1, 2, 8_192),
  fanoutBacklogMax: fc.constantFrom(0, 5, 1_000_000),
});

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

function perform(world: World, judges: Judge[], one: Step): void {
  // The newest few, so that several steps meet one watch.
  const judge = "pick" in one ? judges.at(-1 - (one.pick % 3)) : undefined;
  switch (one.do) {
    case "write":
      world.apply(one.namespaceId, one.changes);
      return;
    case "publish":
      world.publish();
      return;
    case "burst":
      for (let i = 0; i < 3; i++) {
        world.apply(one.namespaceId, one.changes);
        world.publish();
      }
      return;
    case "slice":
      world.slice();
      return;
    case "snapshot":
      world.installSnapshot();
      return;
    case "compact": {
      const point = world.revision() - one.back;
      if (point > world.compactRevision(one.namespaceId)) world.compact(point, one.namespaceId);
      return;
    }
    case "watch": {
      const revision = world.revision();
      const start = one.offset === undefined ? undefined : Math.max(1, revision + one.offset);
      const request: HubWatchRequest = {
        namespaceId: one.namespaceId,
        range: rangeOf(one.range),
        returnPrevious: one.returnPrevious,
        ...(start === undefined ? {} : { startRevision: start as Revision }),
        ...(one.omit === undefined ? {} : { omit: one.omit }),
      };
      const made = new Judge(world, request);
      judges.push(made);
      world.watch(request.range, request, made);
      return;
    }
    case "full":
      if (judge !== undefined) judge.full = true;
      return;
    case "trickle":
      judge?.handle?.resume();
      return;
    case "drain":
      judge?.drain();
      return;
    case "progress":
      judge?.handle?.requestProgress();
      return;
    case "cancel":
      if (judge === undefined) return;
      judge.handle?.cancel();
      judge.cancelled = true;
      return;
  }
}

describe("under any schedule of writes, full sinks, snapshots and compactions", () => {
  it("every watch is ordered, unique, atomic, complete and progress-sound, or ends with a reason", () => {
    fc.assert(
      fc.property(bounds, fc.array(step, { minLength: 20, maxLength: 120 }), (limits, steps) => {
        const world = new World(limits);
        const judges: Judge[] = [];
        for (const one of steps) {
          perform(world, judges, one);
          assert.ok(world.hub.pendingBytes <= limits.totalPendingBytesMax);
          assert.equal(world.hub.watchers, judges.filter((judge) => !judge.over).length);
        }
        world.publish();
        for (const judge of judges) judge.handle?.requestProgress();
        for (const judge of judges) judge.drain();
        world.settle();
        for (const judge of judges) {
          if (judge.over) continue;
          assert.equal(judge.delivered, judge.expected().length, "complete");
          const due = world.revision() >= judge.first || judge.request.startRevision === undefined;
          assert.equal(judge.progressed.at(-1), due ? world.revision() : undefined);
        }
        assert.equal(world.hub.pendingBytes, 0);
      }),
      { numRuns: 500 },
    );
  });
});
