import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createCommandEncoder } from "../../../cell/src/machine/index.ts";
import type { Command, CommandOutcome, LeaseChange } from "../../../cell/src/machine/types.ts";
import type { Entry } from "../../../cell/src/raft/types.ts";
import { Cluster } from "../../../cell/src/replica/testing/cluster.ts";
import type { WriteOperation } from "@lockstep/gateway/coordinator";
import { RememberingReporter } from "./testing/watched-cluster.ts";
import { CellTruth } from "./truth.ts";
import { Twin } from "./twin.ts";

const bytes = (text: string): Uint8Array => Buffer.from(text);
const leaseId = "7" as never;

/** The truth alone, fed by hand. */
class TruthWorld {
  readonly reporter = new RememberingReporter();
  readonly clock = { nowUs: 0 };
  readonly truth = new CellTruth(this.reporter, this.clock);
  #index = 1;

  constructor() {
    const { state } = new Cluster().member(1);
    this.truth.begin({ store: state.store, membership: state.membership });
  }

  entry(...operations: WriteOperation[]): Entry {
    this.#index += 1;
    return entryOf(this.#index, operations);
  }

  feed(...operations: WriteOperation[]): void {
    this.clock.nowUs += 1_000;
    this.truth.feed(this.entry(...operations));
  }
}

function entryOf(index: number, operations: readonly WriteOperation[]): Entry {
  const encoder = createCommandEncoder();
  for (const operation of operations) encoder.add(commandOf(operation));
  const data = encoder.finish(index);
  return { index, term: 1, kind: "normal", data } as unknown as Entry;
}

function commandOf(operation: WriteOperation): Command {
  return { kind: "client", namespaceId: 1, epoch: 0, identity: { kind: "none" }, operation };
}

const put = (key: string, value: string, more: object = {}): WriteOperation => ({
  ...{ kind: "put", key: bytes(key), value: bytes(value) },
  ...more,
});

describe("the truth", () => {
  it("knows every state of every key, whatever was compacted", () => {
    const { truth, feed } = bound(new TruthWorld());
    feed(put("a", "1"), put("b", "2"));
    feed({ kind: "delete", range: { key: bytes("a") } });
    feed({ kind: "compact", revision: 4 as never });
    feed(put("a", "3"));
    assert.equal(truth.revision, 5);
    assert.equal(truth.stateAt("a", 3)?.value, "1");
    assert.equal(truth.stateAt("a", 4), undefined);
    assert.deepEqual(truth.stateAt("a", 5), {
      ...{ key: "a", value: "3", leaseId: "0" },
      ...{ createRevision: 5, modRevision: 5, version: 1 },
    });
    assert.deepEqual(
      truth.rangeAt("", 4).map(({ key }) => key),
      ["b"],
    );
    assert.equal(truth.at(4)?.events[0]?.kind, "delete");
    assert.equal(truth.at(4)?.atUs, 2_000);
    assert.equal(truth.at(6), undefined);
    assert.equal(truth.entry(2)?.outcomes.length, 2);
  });

  it("tells when a lease ends, once its keys are gone, though the id is granted anew in the same entry", () => {
    const { truth, feed } = bound(new TruthWorld());
    const ended: string[] = [];
    truth.onLeaseEnd((id, cause, atUs) => {
      ended.push(`${id} ${cause} ${String(atUs)} ${truth.stateAt("k", truth.revision)?.value ?? "gone"}`);
    });
    feed({ kind: "lease-grant", leaseId, ttlMs: 60_000 }, put("k", "first", { leaseId }));
    assert.equal(truth.lease("7")?.ttlMs, 60_000);
    feed(
      { kind: "lease-revoke", leaseId },
      { kind: "lease-grant", leaseId, ttlMs: 60_000 },
      put("k", "second", { leaseId }),
    );
    assert.deepEqual(ended, ["7 lease-revoked 2000 second"]);
    feed({ kind: "lease-revoke", leaseId });
    assert.equal(ended[1], "7 lease-revoked 3000 gone");
    assert.equal(truth.lease("7")?.end?.index, 4);
  });

  it("takes each entry once, in order, and misses none", () => {
    const world = new TruthWorld();
    const first = world.entry(put("a", "1"));
    world.truth.feed(first);
    world.truth.feed(first);
    assert.equal(world.truth.revision, 2);
    world.entry(put("b", "1"));
    assert.throws(() => world.truth.feed(world.entry(put("c", "1"))), /I2-gap/);
  });

  it("I10: a lease that leaves a key behind, or ends twice", () => {
    const stray: LeaseChange = {
      ...{ kind: "ended", namespaceId: 1, leaseId, cause: "lease-expired" },
      revision: 9 as never,
    };
    const world = new TruthWorld();
    const { machine } = world.truth.shadow ?? assert.fail();
    const apply = machine.apply.bind(machine);
    world.feed({ kind: "lease-grant", leaseId, ttlMs: 60_000 }, put("k", "v", { leaseId }));
    machine.apply = (...given) => ({ ...apply(...given), leaseChanges: [stray] });
    assert.throws(() => world.feed(put("other", "v")), /I10-atomic: lease 7 ended at 3 and left \["k"\]/);
    const twice = new TruthWorld();
    twice.feed({ kind: "lease-grant", leaseId, ttlMs: 60_000 });
    twice.feed({ kind: "lease-revoke", leaseId });
    const other = twice.truth.shadow?.machine ?? assert.fail();
    const applyThere = other.apply.bind(other);
    other.apply = (...given) => ({ ...applyThere(...given), leaseChanges: [stray] });
    assert.throws(() => twice.feed(put("other", "v")), /I10-once/);
  });

  it("revisions that leave one out", () => {
    const world = new TruthWorld();
    const { machine } = world.truth.shadow ?? assert.fail();
    const apply = machine.apply.bind(machine);
    machine.apply = (...given) => ({ ...apply(...given), events: [] });
    assert.throws(() => world.feed(put("k", "v")), /truth-revisions/);
  });
});

describe("the twin", () => {
  const ok = (key: string, revision: number): CommandOutcome =>
    ({
      ...{ ok: true, replayed: false },
      result: { kind: "put", revision, key: bytes(key), createRevision: revision, version: 1 },
    }) as unknown as CommandOutcome;
  const event = (key: string, revision: number): never =>
    ({
      ...{ namespaceId: 1, revision },
      events: [{ kind: "put", cause: "client", kv: { key: bytes(key) } }],
    }) as never;

  it("comes to the same outcomes and changes by itself, or says what differs", () => {
    const twin = new Twin(100);
    const { data } = entryOf(2, [put("k", "v")]);
    const step = { index: 2, term: 1, data, outcomes: [ok("k", 2)], events: [event("k", 2)], revision: 2 };
    assert.equal(twin.apply(step), undefined);
    const again = { ...step, data: entryOf(3, [put("l", "v")]).data, outcomes: [ok("l", 2)] };
    assert.match(twin.apply(again) ?? "", /command 0 \(put\): .*its twin says/);
    const other = { ...step, data: entryOf(4, [put("m", "v")]).data, outcomes: [ok("m", 4)], events: [] };
    assert.match(twin.apply(other) ?? "", /^changes \[\], its twin says \[\[4,"m","put","client"\]\]/);
    assert.equal(twin.ended, false);
  });

  it("ends with what it does not cover, and after so many changes", () => {
    const { data } = entryOf(2, [put("k", "v")]);
    const step = { index: 2, term: 1, data, outcomes: [ok("k", 2)], events: [event("k", 2)], revision: 2 };
    const short = new Twin(1);
    assert.equal(short.apply(step), undefined);
    assert.ok(short.ended);
    const refused = { ok: false, failure: { code: "invalid-argument" } } as unknown as CommandOutcome;
    const narrow = new Twin(100);
    assert.equal(narrow.apply({ ...step, outcomes: [refused], events: [] }), undefined);
    assert.ok(narrow.ended);
  });
});

/** Methods that may be taken out of the object. */
function bound(world: TruthWorld): { truth: CellTruth; feed: (...operations: WriteOperation[]) => void } {
  return { truth: world.truth, feed: (...operations) => world.feed(...operations) };
}
