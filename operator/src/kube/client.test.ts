import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createKubeClient } from "./client.ts";
import { classify } from "./errors.ts";
import { Fence } from "./fence.ts";
import { Rest } from "./rest.ts";
import type { RestOptions } from "./rest.ts";
import { FakeApiServer, ManualRuntime, fakeTransport, settle } from "./testing/index.ts";
import { WIDGETS, widget } from "./testing/widgets.ts";
import type { Widget } from "./testing/widgets.ts";
import { TokenBucket } from "./token-bucket.ts";
import type { KubeClient, ResourceKind } from "./types.ts";

interface Setting {
  readonly runtime: ManualRuntime;
  readonly server: FakeApiServer;
  readonly client: KubeClient;
  readonly other: KubeClient;
}

function setting(options: (runtime: ManualRuntime) => Partial<RestOptions> = () => ({})): Setting {
  const runtime = new ManualRuntime();
  const server = new FakeApiServer({ runtime, kinds: [{ kind: WIDGETS }] });
  const transport = fakeTransport(server);
  const rest = new Rest({ transport, runtime, ...options(runtime) });
  const client = createKubeClient({ rest, fieldManager: "tested" });
  const other = createKubeClient({ rest: new Rest({ transport, runtime }), fieldManager: "other" });
  return { runtime, server, client, other };
}

const REF = { namespace: "shop", name: "a" };

describe("a KubeClient", () => {
  it("answers undefined for an absent object, but not for a kind that the apiserver lacks", async () => {
    const { client } = setting();
    assert.equal(await client.get(WIDGETS, REF), undefined);
    const missing: ResourceKind = {
      apiVersion: "example.com/v2",
      kind: "Gadget",
      plural: "gadgets",
      namespaced: true,
    };
    await assert.rejects(client.get(missing, REF), {
      reason: "not-found",
      status: 404,
      absentName: undefined,
    });
    await assert.rejects(client.delete(missing, REF, { uid: "x" }), { reason: "not-found" });
  });

  it("reads all pages of a list as of one moment and says the kind of each item", async () => {
    const { client, server } = setting();
    for (let index = 0; index < 1_201; index += 1) {
      server.store.create(WIDGETS, widget(`w${String(index).padStart(5, "0")}`), { manager: "test" });
    }
    let lists = 0;
    server.fault = () => {
      lists += 1;
      // In the middle of the reading: it must not show.
      if (lists === 2) server.store.create(WIDGETS, widget("a"), { manager: "test" });
      return undefined;
    };
    const all = await client.list(WIDGETS);
    assert.equal(all.length, 1_201);
    assert.equal(lists, 3);
    assert.deepEqual([all[0]?.kind, all[0]?.apiVersion], ["Widget", "example.com/v1"]);
  });

  it("starts a list again when its position expires between two pages, and gives up at the third time", async () => {
    const { client, server } = setting();
    for (let index = 0; index < 600; index += 1) {
      server.store.create(WIDGETS, widget(`w${index}`), { manager: "test" });
    }
    let expirations = 1;
    server.fault = (call) => {
      if (call.query.get("continue") === null || expirations === 0) return undefined;
      expirations -= 1;
      return { kind: "status", status: 410, reason: "Expired" };
    };
    assert.equal((await client.list(WIDGETS)).length, 600);
    expirations = 3;
    await assert.rejects(client.list(WIDGETS), { reason: "expired" });
  });

  it("tells an object that exists already from one that moved on", async () => {
    const { client } = setting();
    const made = await client.create(WIDGETS, widget("a", { size: 1 }));
    assert.equal(made.metadata.generation, 1);
    await assert.rejects(client.create(WIDGETS, widget("a")), { reason: "already-exists", status: 409 });
    const { resourceVersion = "" } = made.metadata;
    const patched = await client.mergePatch(WIDGETS, REF, { spec: { size: 2 } }, { resourceVersion });
    assert.equal(patched.spec?.size, 2);
    await assert.rejects(client.mergePatch(WIDGETS, REF, { spec: { size: 3 } }, { resourceVersion }), {
      reason: "conflict",
    });
  });

  it("applies its own fields, removes those that it no longer names, and leaves other managers' alone", async () => {
    const { client, other } = setting();
    await client.apply(WIDGETS, widget("a", { size: 1, color: "red" }));
    await other.mergePatch(WIDGETS, REF, {
      metadata: { annotations: { by: "other" } },
      unknown: { field: 1 },
    });
    const applied = await client.apply(WIDGETS, widget("a", { size: 2 }));
    assert.deepEqual(applied.spec, { size: 2 });
    assert.deepEqual(applied.metadata.annotations, { by: "other" });
    assert.deepEqual((applied as Widget & { unknown: unknown }).unknown, { field: 1 });
    await assert.rejects(other.apply(WIDGETS, widget("a", { size: 9 }), { force: false }), {
      reason: "conflict",
    });
    assert.equal((await other.apply(WIDGETS, widget("a", { size: 9 }))).spec?.size, 9);
  });

  it("writes the status apart from the rest", async () => {
    const { client } = setting();
    await client.create(WIDGETS, { ...widget("a", { size: 1 }), status: { ready: true } });
    assert.equal((await client.get(WIDGETS, REF))?.status, undefined);
    const answered = await client.applyStatus(WIDGETS, {
      ...widget("a", { size: 7 }),
      status: { ready: true },
    });
    assert.deepEqual([answered.spec, answered.status], [{ size: 1 }, { ready: true }]);
    await assert.rejects(client.applyStatus(WIDGETS, widget("absent")), { reason: "not-found" });
  });

  it("deletes one incarnation only, succeeds for what is gone, and waits for finalizers", async () => {
    const { client, server } = setting();
    const first = await client.create(WIDGETS, widget("a"));
    await client.delete(WIDGETS, REF, { uid: first.metadata.uid ?? "" });
    await client.delete(WIDGETS, REF, { uid: first.metadata.uid ?? "" });
    const second = await client.create(WIDGETS, widget("a"));
    await assert.rejects(client.delete(WIDGETS, REF, { uid: first.metadata.uid ?? "" }), {
      reason: "conflict",
    });
    const { uid = "" } = second.metadata;
    const stale = { uid, resourceVersion: "1" };
    await assert.rejects(client.delete(WIDGETS, REF, stale), { reason: "conflict" });
    await client.mergePatch(WIDGETS, REF, { metadata: { finalizers: ["example.com/guard"] } });
    await client.delete(WIDGETS, REF, { uid });
    assert.notEqual(server.store.get(WIDGETS, REF)?.metadata.deletionTimestamp, undefined);
    await client.mergePatch(WIDGETS, REF, { metadata: { finalizers: null } });
    assert.equal(server.store.get(WIDGETS, REF), undefined);
  });

  it("says what each refusal means, and how long the server asks to wait", async () => {
    const { client, server } = setting();
    for (const [status, reason, expected] of [
      [400, "BadRequest", "invalid"],
      [401, "Unauthorized", "forbidden"],
      [403, "Forbidden", "forbidden"],
      [409, "Conflict", "conflict"],
      [410, "Gone", "expired"],
      [422, "Invalid", "invalid"],
      [429, "TooManyRequests", "throttled"],
      [500, "InternalError", "unavailable"],
      [504, "Timeout", "unavailable"],
    ] as const) {
      server.fault = () => ({ kind: "status", status, reason, retryAfterSeconds: 7 });
      await assert.rejects(client.list(WIDGETS), {
        name: "KubeError",
        reason: expected,
        status,
        retryAfterMs: 7_000,
      });
    }
    server.fault = () => ({ kind: "reset" });
    await assert.rejects(client.list(WIDGETS), { reason: "unavailable", status: 0 });
    const message =
      "failed to create typed patch object (shop/a; example.com/v1, Kind=Widget): .spec.size: expected numeric";
    assert.equal(classify({ status: 500, body: { message }, what: "PATCH" }).reason, "invalid");
  });

  it("gives a call up at its deadline, and tells that it may have happened", async () => {
    const { client, server, runtime } = setting();
    server.fault = () => ({ kind: "hang", acts: true });
    const failed = assert.rejects(client.create(WIDGETS, widget("a")), { reason: "unavailable", status: 0 });
    await runtime.advance(15_000);
    await failed;
    assert.notEqual(server.store.get(WIDGETS, REF), undefined);
    assert.equal(runtime.pending, 0);
  });

  it("sends no more than its bucket allows, and nothing while the server asks for quiet", async () => {
    const { client, server, runtime } = setting((clock) => ({
      bucket: new TokenBucket({ runtime: clock, rate: 1, burst: 2 }),
    }));
    const calls = [1, 2, 3, 4].map(() => client.get(WIDGETS, REF));
    await settle();
    assert.equal(server.calls.length, 2);
    await runtime.advance(1_000);
    assert.equal(server.calls.length, 3);
    await runtime.advance(1_000);
    await Promise.all(calls);
    await runtime.advance(10_000);
    server.fault = () => ({ kind: "status", status: 429, retryAfterSeconds: 9 });
    await assert.rejects(client.get(WIDGETS, REF), { reason: "throttled" });
    server.fault = undefined;
    const late = client.get(WIDGETS, REF);
    await runtime.advance(8_999);
    assert.equal(server.calls.length, 5);
    await runtime.advance(1);
    await late;
  });

  it("writes nothing once the right to write ended, reads go on, and a write under way is broken off", async () => {
    let fence: Fence | undefined;
    const { client, server, runtime } = setting((clock) => {
      fence = new Fence(clock, () => undefined);
      return { gate: fence };
    });
    await assert.rejects(client.create(WIDGETS, widget("a")), { reason: "fenced" });
    assert.equal(server.calls.length, 0);
    fence?.extend({ monotonicMs: runtime.monotonicMs(), wallMs: runtime.wallMs() }, 10_000);
    await client.create(WIDGETS, widget("a"));
    server.fault = (call) => (call.method === "PATCH" ? { kind: "hang" } : undefined);
    const broken = assert.rejects(client.mergePatch(WIDGETS, REF, {}), { reason: "fenced" });
    await runtime.advance(10_000);
    await broken;
    assert.notEqual(await client.get(WIDGETS, REF), undefined);
    await assert.rejects(client.delete(WIDGETS, REF, { uid: "x" }), { reason: "fenced" });
  });
});
