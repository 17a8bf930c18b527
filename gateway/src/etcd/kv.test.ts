import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { etcd } from "@lockstep/proto/etcd";
import { LIMITS } from "../coordinator/index.ts";
import type { LeaseId } from "../coordinator/index.ts";
import type { EtcdBench } from "../testing/etcd-client.ts";
import { ask, bytes, op, openEtcdBench, put, range, refusal, remove } from "../testing/etcd-client.ts";

const { SortOrder, SortTarget } = {
  SortOrder: etcd.RangeRequest_SortOrder,
  SortTarget: etcd.RangeRequest_SortTarget,
};
const { CompareResult, CompareTarget } = {
  CompareResult: etcd.Compare_CompareResult,
  CompareTarget: etcd.Compare_CompareTarget,
};
const ALL = Buffer.from([0]);

describe("etcdserverpb.KV", () => {
  let bench: EtcdBench;
  before(async () => {
    // Small pages: ranges are read in many slices.
    bench = await openEtcdBench({ doorLimits: { rangePageKeys: 3, rangeAnswerBytesMax: 64 * 1024 } });
  });
  after(() => bench.close());

  const kv = (): etcd.KVClient => bench.clients.kv;
  const doPut = (request: etcd.PutRequest): Promise<etcd.PutResponse> =>
    ask(kv(), etcd.KVService.put, request);
  const doRange = (request: etcd.RangeRequest): Promise<etcd.RangeResponse> =>
    ask(kv(), etcd.KVService.range, request);
  const doRemove = (request: etcd.DeleteRangeRequest): Promise<etcd.DeleteRangeResponse> =>
    ask(kv(), etcd.KVService.deleteRange, request);
  const doTxn = (request: Partial<etcd.TxnRequest>): Promise<etcd.TxnResponse> =>
    ask(kv(), etcd.KVService.txn, { compare: [], success: [], failure: [], ...request });
  const keys = (answer: etcd.RangeResponse): string => answer.kvs.map((one) => String(one.key)).join(" ");

  it("a put answers with the state before it when asked, and each header says who answers", async () => {
    const first = await doPut(put("put/a", "1", { prevKv: true }));
    assert.equal(first.prevKv, undefined);
    const second = await doPut(put("put/a", "2", { prevKv: true }));
    assert.equal(String(second.prevKv?.value), "1");
    assert.equal(second.header?.revision, (first.header?.revision ?? 0) + 1);
    const { memberId, term } = bench.coordinator.info();
    assert.deepEqual([second.header.memberId, second.header.raftTerm], [memberId, term]);
    assert.notEqual(second.header.clusterId, 0);
  });

  it("a range longer than a slice comes whole, in both directions, with what it counts", async () => {
    for (let i = 0; i < 10; i += 1) await doPut(put(`long/${i}`, `v${i}`));
    const rangeEnd = bytes("long0");
    const all = await doRange(range("long/", { rangeEnd }));
    assert.equal(keys(all), Array.from({ length: 10 }, (_, i) => `long/${i}`).join(" "));
    assert.deepEqual([all.count, all.more], [10, false]);
    assert.equal(String(all.kvs[7]?.value), "v7");
    const back = await doRange(range("long/", { rangeEnd, sortOrder: SortOrder.DESCEND, limit: 5 }));
    assert.equal(keys(back), "long/9 long/8 long/7 long/6 long/5");
    assert.deepEqual([back.count, back.more], [10, true]);
    const exact = await doRange(range("long/", { rangeEnd, limit: 10 }));
    assert.deepEqual([exact.kvs.length, exact.more], [10, false]);
    const bare = await doRange(range("long/", { rangeEnd, keysOnly: true }));
    assert.deepEqual([bare.kvs.length, bare.kvs[9]?.value.length], [10, 0]);
    const counted = await doRange(range("long/", { rangeEnd, countOnly: true }));
    assert.deepEqual([counted.count, counted.kvs.length, counted.more], [10, 0, false]);
  });

  it("all slices of an answer are of one revision, whatever is written meanwhile", async () => {
    for (let i = 0; i < 9; i += 1) await doPut(put(`pinned/${i}`, "old"));
    bench.coordinator.hold();
    const reading = doRange(range("pinned/", { rangeEnd: bytes("pinned0") }));
    const writing = Array.from({ length: 9 }, (_, i) => doPut(put(`pinned/${i}`, "new")));
    bench.coordinator.release();
    const answer = await reading;
    await Promise.all(writing);
    const values = new Set(answer.kvs.map((one) => String(one.value)));
    assert.equal(answer.kvs.length, 9);
    assert.equal(values.size, 1, [...values].join(" "));
    const revision = answer.header?.revision ?? 0;
    assert.ok(answer.kvs.every((one) => one.modRevision <= revision));
  });

  it("an answer beyond its bound is refused, not half given", async () => {
    for (let i = 0; i < 5; i += 1) await doPut(put(`huge/${i}`, "x".repeat(20_000)));
    const refused = await refusal(doRange(range("huge/", { rangeEnd: bytes("huge0") })));
    assert.deepEqual(refused, {
      code: status.RESOURCE_EXHAUSTED,
      details: "etcdserver: too many requests",
    });
    // What was held for it is free again.
    assert.equal((await doRange(range("huge/0"))).kvs.length, 1);
  });

  it("A3: sorts by every target, filters, and then cuts", async () => {
    for (const [key, value] of ["c1", "a3", "b2"].map((text) => [text[0], text[1]])) {
      await doPut(put(`sort/${key}`, value ?? ""));
    }
    await doPut(put("sort/c", "0"));
    const rangeEnd = bytes("sort0");
    const sorted = async (more: Partial<etcd.RangeRequest>): Promise<string> =>
      keys(await doRange(range("sort/", { rangeEnd, ...more }))).replaceAll("sort/", "");
    const { ASCEND, DESCEND } = SortOrder;
    assert.equal(await sorted({ sortTarget: SortTarget.CREATE, sortOrder: ASCEND }), "c a b");
    assert.equal(await sorted({ sortTarget: SortTarget.MOD, sortOrder: DESCEND, limit: 2 }), "c b");
    assert.equal(await sorted({ sortTarget: SortTarget.VERSION, sortOrder: DESCEND, limit: 1 }), "c");
    assert.equal(await sorted({ sortTarget: SortTarget.VALUE, sortOrder: ASCEND }), "c b a");
    // Without a direction a target ascends.
    assert.equal(await sorted({ sortTarget: SortTarget.CREATE }), "c a b");
    const [first] = (await doRange(range("sort/", { rangeEnd, sortTarget: SortTarget.CREATE, limit: 1 })))
      .kvs;
    const maxCreateRevision = first?.createRevision ?? 0;
    assert.equal(await sorted({ maxCreateRevision }), "c");
    assert.equal(await sorted({ minCreateRevision: maxCreateRevision + 1 }), "a b");
  });

  it("A3: what the coordinator finds too large to sort or filter is sorted and filtered here", async () => {
    for (let i = 0; i < 8; i += 1) await doPut(put(`large/${i}`, `v${7 - i}`));
    const rangeEnd = bytes("large0");
    const refuse = (): void =>
      bench.coordinator.failNext({ code: "too-many-keys", outcome: "not-applied", message: "too many" });
    refuse();
    const { DESCEND } = SortOrder;
    const sorted = await doRange(
      range("large/", { rangeEnd, sortTarget: SortTarget.MOD, sortOrder: DESCEND, limit: 2, keysOnly: true }),
    );
    assert.equal(keys(sorted), "large/7 large/6");
    assert.deepEqual([sorted.more, sorted.count, sorted.kvs[0]?.value.length], [true, 8, 0]);
    refuse();
    const filtered = await doRange(
      range("large/", { rangeEnd, sortOrder: DESCEND, minModRevision: sorted.kvs[1]?.modRevision ?? 0 }),
    );
    assert.equal(keys(filtered), "large/7 large/6");
    assert.deepEqual([filtered.more, filtered.count], [false, 8]);
  });

  it("the errors of a request have etcd's codes and words", async () => {
    const { INVALID_ARGUMENT, OUT_OF_RANGE, NOT_FOUND } = status;
    const is = async (call: Promise<unknown>, code: status, text: string): Promise<void> =>
      assert.deepEqual(await refusal(call), { code, details: `etcdserver: ${text}` });
    await is(doPut(put("", "x")), INVALID_ARGUMENT, "key is not provided");
    await is(doRange(range("", { rangeEnd: ALL })), INVALID_ARGUMENT, "key is not provided");
    await is(doRemove(remove("")), INVALID_ARGUMENT, "key is not provided");
    await is(doPut(put("e", "x", { ignoreValue: true })), INVALID_ARGUMENT, "value is provided");
    await is(doPut(put("e", "", { ignoreLease: true, lease: "7" })), INVALID_ARGUMENT, "lease is provided");
    await is(doPut(put("absent", "", { ignoreValue: true })), INVALID_ARGUMENT, "key not found");
    await is(doPut(put("e", "x", { lease: "77" })), NOT_FOUND, "requested lease not found");
    await is(doPut(put("e", "x", { lease: "-7" })), NOT_FOUND, "requested lease not found");
    await is(doPut(put("k".repeat(LIMITS.keyBytesMax + 1), "")), INVALID_ARGUMENT, "request is too large");
    await is(
      doRange(range("e", { revision: 1_000_000 })),
      OUT_OF_RANGE,
      "mvcc: required revision is a future revision",
    );
    await is(doRange(range("e", { sortTarget: 9 as 0 })), INVALID_ARGUMENT, "invalid sort option");
    await is(doTxn({ success: [{ request: undefined }] }), INVALID_ARGUMENT, "key not found");
    const many = Array.from({ length: LIMITS.txnOperationsMax + 1 }, () => op.range(range("a")));
    await is(doTxn({ success: many }), INVALID_ARGUMENT, "too many operations in txn request");
    const twice = [op.put(put("a", "1")), op.put(put("a", "2"))];
    await is(doTxn({ failure: twice }), INVALID_ARGUMENT, "duplicate key given in txn request");
    const compact = { revision: 0, physical: true };
    await is(
      ask(kv(), etcd.KVService.compact, compact),
      OUT_OF_RANGE,
      "mvcc: required revision has been compacted",
    );
  });

  it("an outcome that nobody knows is UNAVAILABLE, a refusal is what it is", async () => {
    const outcomeOf = async (
      code: "leader-changed" | "deadline-exceeded" | "quota-exceeded",
      unknown: boolean,
    ) => {
      bench.coordinator.failNext({ code, outcome: unknown ? "unknown" : "not-applied", message: "x" });
      return (await refusal(doPut(put("o", "")))).details;
    };
    assert.equal(
      await outcomeOf("leader-changed", true),
      "etcdserver: request timed out, possibly due to previous leader failure",
    );
    assert.equal(await outcomeOf("leader-changed", false), "etcdserver: leader changed");
    assert.equal(await outcomeOf("deadline-exceeded", false), "etcdserver: request timed out");
    assert.equal(await outcomeOf("quota-exceeded", false), "etcdserver: mvcc: database space exceeded");
  });

  it("a delete of nothing changes nothing; a delete answers with what it removed", async () => {
    const { header } = await doRange(range("none"));
    const nothing = await doRemove(remove("none"));
    assert.deepEqual([nothing.deleted, nothing.header?.revision], [0, header?.revision]);
    for (const key of ["del/b", "del/a"]) await doPut(put(key, key));
    const removed = await doRemove(remove("del/", { rangeEnd: bytes("del0"), prevKv: true }));
    assert.equal(removed.deleted, 2);
    assert.deepEqual(
      removed.prevKvs.map((one) => String(one.value)),
      ["del/a", "del/b"],
    );
  });

  it("a transaction decides once, answers in order, and names its own revision inside", async () => {
    await doPut(put("txn/a", "1"));
    const compare = (more: Partial<etcd.Compare>): etcd.Compare => ({
      result: CompareResult.EQUAL,
      target: CompareTarget.VALUE,
      key: bytes("txn/a"),
      targetUnion: { $case: "value", value: bytes("1") },
      rangeEnd: Buffer.alloc(0),
      ...more,
    });
    const done = await doTxn({
      compare: [compare({})],
      success: [
        op.put(put("txn/b", "2", { prevKv: true })),
        op.range(range("txn/", { rangeEnd: bytes("txn0") })),
        op.txn({ compare: [compare({ key: bytes("txn/b") })], failure: [op.remove(remove("txn/a"))] }),
      ],
    });
    assert.equal(done.succeeded, true);
    const revision = done.header?.revision;
    const [first, second, third] = done.responses.map((one) => one.response);
    assert.ok(first?.$case === "responsePut" && second?.$case === "responseRange");
    assert.deepEqual([first.value.header?.revision, first.value.header?.memberId], [revision, 0]);
    assert.equal(keys(second.value), "txn/a txn/b");
    assert.ok(third?.$case === "responseTxn");
    assert.equal(third.value.succeeded, false);
    assert.equal(third.value.responses[0]?.response?.$case, "responseDeleteRange");
    // The operand of another target counts as none, which for a version is 0.
    const operand = { $case: "modRevision", value: 99 } as const;
    const versionZero = compare({
      target: CompareTarget.VERSION,
      key: bytes("absent"),
      targetUnion: operand,
    });
    assert.equal((await doTxn({ compare: [versionZero] })).succeeded, true);
    const everything = compare({
      key: bytes("txn/"),
      rangeEnd: bytes("txn0"),
      result: CompareResult.NOT_EQUAL,
    });
    assert.equal((await doTxn({ compare: [everything] })).succeeded, true);
  });

  it("a range in a transaction that was cut is read on at the transaction's revision", async () => {
    for (let i = 0; i < 8; i += 1) await doPut(put(`cut/${i}`, "v"));
    bench.coordinator.cutRangesAfter = 2;
    try {
      const done = await doTxn({
        success: [op.range(range("cut/", { rangeEnd: bytes("cut0") })), op.put(put("other", "x"))],
      });
      const response = done.responses[0]?.response;
      assert.ok(response?.$case === "responseRange");
      assert.deepEqual([response.value.kvs.length, response.value.more], [8, false]);
    } finally {
      bench.coordinator.cutRangesAfter = undefined;
    }
  });

  it("a compacted revision is refused with etcd's words, and compaction answers with a revision", async () => {
    const { header } = await doPut(put("compact/a", "1"));
    await doPut(put("compact/a", "2"));
    const revision = (header?.revision ?? 0) + 1;
    const done = await ask(kv(), etcd.KVService.compact, { revision, physical: true });
    assert.equal(done.header?.revision, revision);
    assert.deepEqual(await refusal(doRange(range("compact/a", { revision: revision - 1 }))), {
      code: status.OUT_OF_RANGE,
      details: "etcdserver: mvcc: required revision has been compacted",
    });
    assert.equal(String((await doRange(range("compact/a", { revision }))).kvs[0]?.value), "2");
  });

  it("acts in the namespace that the metadata names, and refuses a name that is none", async () => {
    const other = { "lockstep-namespace": "absent" };
    const refused = await refusal(ask(kv(), etcd.KVService.put, put("a", "1"), other));
    assert.equal(refused.code, status.FAILED_PRECONDITION);
    assert.match(refused.details, /there is no namespace absent/);
    const malformed = await refusal(
      ask(kv(), etcd.KVService.put, put("a", "1"), { "lockstep-namespace": "A/B" }),
    );
    assert.equal(malformed.code, status.INVALID_ARGUMENT);
  });

  it("bytes that are no request are told apart from a bad request", async () => {
    const call = new Promise((resolve, reject) => {
      kv().makeUnaryRequest(
        "/etcdserverpb.KV/Put",
        () => Buffer.from([0x0a, 0xff]),
        (answer: Buffer) => answer,
        {},
        (error, answer) => {
          if (error === null) resolve(answer);
          else reject(error);
        },
      );
    });
    const refused = await refusal(call);
    assert.equal(refused.code, status.INTERNAL);
    assert.match(refused.details, /^grpc: error unmarshalling request: /);
  });

  it("leases are attached, kept and detached by puts", async () => {
    const lease = bench.clients.lease;
    const { ID } = await ask(lease, etcd.LeaseService.leaseGrant, { TTL: 60, ID: "0" });
    await doPut(put("leased", "1", { lease: ID }));
    await doPut(put("leased", "2", { ignoreLease: true }));
    assert.equal((await doRange(range("leased"))).kvs[0]?.lease, ID satisfies string as LeaseId);
    await doPut(put("leased", "", { ignoreValue: true }));
    const [kept] = (await doRange(range("leased"))).kvs;
    assert.deepEqual([String(kept?.value), kept?.lease], ["2", "0"]);
  });
});

describe("calls without an answer", () => {
  it("are bounded, and free their place when they are answered", async () => {
    const bench = await openEtcdBench({ doorLimits: { unaryInFlightMax: 2 } });
    const { kv } = bench.clients;
    bench.coordinator.hold();
    const first = [ask(kv, etcd.KVService.put, put("a", "1")), ask(kv, etcd.KVService.put, put("b", "1"))];
    // Behind them on the same connection, so it comes after they were taken in.
    const refused = await refusal(ask(kv, etcd.KVService.put, put("c", "1")));
    assert.equal(refused.details, "etcdserver: too many requests");
    assert.equal(bench.door.stats().unaryInFlight, 2);
    bench.coordinator.release();
    await Promise.all(first);
    await ask(kv, etcd.KVService.put, put("c", "1"));
    assert.equal(bench.door.stats().unaryInFlight, 0);
    await bench.close();
  });
});

describe("the namespace in a client's authority", () => {
  it("is what stands in front of a host name of the cell", async () => {
    const bench = await openEtcdBench(
      { hostSuffixes: ["cells.example"] },
      { namespaces: ["default", "orders.team"] },
    );
    const { kv } = bench.clients;
    const putAs = (authority: string): Promise<unknown> =>
      new Promise((resolve, reject) => {
        kv.makeUnaryRequest(
          "/etcdserverpb.KV/Put",
          (request: etcd.PutRequest) => Buffer.from(etcd.PutRequest.encode(request).finish()),
          (answer: Buffer) => etcd.PutResponse.decode(answer),
          put("where", authority),
          { host: authority },
          (error, answer) => {
            if (error === null) resolve(answer);
            else reject(error);
          },
        );
      });
    await putAs("orders.team.cells.example:2379");
    await putAs("cells.example:2379");
    await putAs("somewhere.else");
    const read = async (namespace: string): Promise<string> => {
      const answer: etcd.RangeResponse = await ask(kv, etcd.KVService.range, range("where"), {
        "lockstep-namespace": namespace,
      });
      return String(answer.kvs[0]?.value);
    };
    assert.equal(await read("orders.team"), "orders.team.cells.example:2379");
    assert.equal(await read("default"), "somewhere.else");
    await bench.close();
  });
});
