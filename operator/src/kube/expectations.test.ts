import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createKubeClient } from "./client.ts";
import { Expectations, expectingClient } from "./expectations.ts";
import { createInformer } from "./informer.ts";
import type { Informer } from "./informer.ts";
import { Rest } from "./rest.ts";
import { FakeApiServer, ManualRuntime, fakeTransport, settle } from "./testing/index.ts";
import { WIDGETS, widget } from "./testing/widgets.ts";
import type { Widget } from "./testing/widgets.ts";
import type { KubeClient } from "./types.ts";

interface Setting {
  readonly runtime: ManualRuntime;
  readonly server: FakeApiServer;
  readonly informer: Informer<Widget>;
  readonly expectations: Expectations;
  readonly client: KubeClient;
}

async function setting(): Promise<Setting> {
  const runtime = new ManualRuntime();
  const server = new FakeApiServer({ runtime, kinds: [{ kind: WIDGETS }] });
  const rest = new Rest({ transport: fakeTransport(server), runtime });
  const informer = createInformer(WIDGETS, { rest });
  informer.start();
  await informer.whenSynced();
  await settle();
  const expectations = new Expectations({ runtime });
  const client = expectingClient({
    client: createKubeClient({ rest, fieldManager: "test" }),
    expectations,
    owner: "owner",
    cacheOf: (kind) => (kind.plural === WIDGETS.plural ? informer : undefined),
  });
  return { runtime, server, informer, expectations, client };
}

describe("expectations", () => {
  it("a cache that lags is not believed until it shows what was written", async () => {
    const { server, informer, expectations, client, runtime } = await setting();
    let silent = true;
    server.streamFault = () => (silent ? "silence" : undefined);
    const made = await client.create(WIDGETS, widget("a"));
    assert.equal(expectations.check("owner").kind, "waiting");
    assert.equal(expectations.check("other").kind, "met");
    silent = false;
    server.resetWatches();
    await runtime.advance(3_000);
    assert.equal(expectations.check("owner").kind, "met");
    await client.mergePatch(WIDGETS, made.metadata, { metadata: { finalizers: ["example.com/x"] } });
    await client.delete(WIDGETS, made.metadata, { uid: made.metadata.uid ?? "" });
    await settle();
    assert.equal(expectations.check("owner").kind, "met");
    assert.notEqual(informer.get(made.metadata)?.metadata.deletionTimestamp, undefined);
    await informer.stop();
  });

  it("an object that came and went before the cache saw it is not waited for", async () => {
    const { server, informer, expectations, client, runtime } = await setting();
    server.resetWatches();
    const made = await client.create(WIDGETS, widget("a"));
    server.store.delete(WIDGETS, made.metadata);
    server.compact();
    assert.equal(expectations.check("owner").kind, "waiting");
    await runtime.advance(5_000);
    assert.equal(informer.get(made.metadata), undefined);
    assert.equal(expectations.check("owner").kind, "met");
    await informer.stop();
  });

  it("what is not seen in time, and a write whose answer was lost, ask for live reads", async () => {
    const { server, informer, expectations, client, runtime } = await setting();
    server.streamFault = () => "silence";
    await client.create(WIDGETS, widget("a"));
    await runtime.advance(30_000);
    assert.equal(expectations.check("owner").kind, "unsure");
    expectations.forget("owner");
    assert.equal(expectations.check("owner").kind, "met");
    server.fault = (call) => (call.watch ? undefined : { kind: "reset", acts: true });
    await assert.rejects(client.create(WIDGETS, widget("b")), { reason: "unavailable" });
    const checked = expectations.check("owner");
    assert.match(checked.kind === "unsure" ? checked.what : "", /create Widget b/);
    await informer.stop();
  });

  it("a controller with a cache that lags makes its one object once", async () => {
    const { server, informer, expectations, client, runtime } = await setting();
    server.streamFault = () => "silence";
    let made = 0;
    const pass = async (): Promise<void> => {
      if (expectations.check("owner").kind !== "met" || informer.list().length > 0) return;
      made += 1;
      await client.create(WIDGETS, widget(`random-${made}`));
    };
    for (let ms = 0; ms < 25_000; ms += 1_000) {
      await pass();
      await runtime.advance(1_000);
    }
    server.streamFault = undefined;
    server.resetWatches();
    await runtime.advance(3_000);
    await pass();
    assert.equal(made, 1);
    await informer.stop();
  });
});
