import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createInformer } from "./informer.ts";
import type { Informer, InformerOptions } from "./informer.ts";
import type { Change } from "./object-store.ts";
import { Rest } from "./rest.ts";
import { FakeApiServer, ManualRuntime, fakeTransport, settle } from "./testing/index.ts";
import type { StreamFault } from "./testing/index.ts";
import { WIDGETS, widget } from "./testing/widgets.ts";
import type { Widget } from "./testing/widgets.ts";

interface Setting {
  readonly runtime: ManualRuntime;
  readonly server: FakeApiServer;
  readonly informer: Informer<Widget>;
  readonly told: string[];
  readonly reports: string[];
}

function setting(options: Partial<InformerOptions<Widget>> = {}): Setting {
  const runtime = new ManualRuntime();
  const server = new FakeApiServer({ runtime, kinds: [{ kind: WIDGETS }] });
  const reports: string[] = [];
  const rest = new Rest({ transport: fakeTransport(server), runtime });
  const informer = createInformer(WIDGETS, {
    rest,
    report: (message, error) => reports.push(`${message}: ${error.message}`),
    ...options,
  });
  const told: string[] = [];
  informer.subscribe((change: Change<Widget>) => told.push(`${change.kind} ${change.object.metadata.name}`));
  return { runtime, server, informer, told, reports };
}

const make = (server: FakeApiServer, name: string, size = 1): Widget =>
  server.store.create(WIDGETS, widget(name, { size }), { manager: "test" });
const resize = (server: FakeApiServer, name: string, size: number): Widget =>
  server.store.patch(WIDGETS, { namespace: "shop", name }, { spec: { size } }, { manager: "test" });
const remove = (server: FakeApiServer, name: string): void => {
  server.store.delete(WIDGETS, { namespace: "shop", name });
};
const lists = (server: FakeApiServer): number => server.calls.filter((call) => !call.watch).length;
const watches = (server: FakeApiServer): number => server.calls.filter((call) => call.watch).length;

async function started(options: Partial<InformerOptions<Widget>> = {}): Promise<Setting> {
  const all = setting(options);
  make(all.server, "a");
  all.informer.start();
  await all.informer.whenSynced();
  await settle();
  all.told.length = 0;
  return all;
}

describe("an informer", () => {
  it("lists, then follows; objects are frozen, of one kind, and without managedFields", async () => {
    const { server, informer, told } = setting({ limits: { pageSize: 2 } });
    for (const name of ["a", "b", "c"]) make(server, name);
    const synced = (): boolean => informer.synced;
    assert.equal(synced(), false);
    informer.start();
    await informer.whenSynced();
    assert.equal(synced(), true);
    await settle();
    assert.deepEqual(told, ["added a", "added b", "added c"]);
    make(server, "d");
    resize(server, "d", 2);
    remove(server, "a");
    await settle();
    assert.deepEqual(told.slice(3), ["added d", "updated d", "deleted a"]);
    const held = informer.get({ namespace: "shop", name: "d" });
    assert.ok(held !== undefined);
    assert.equal(held.kind, "Widget");
    assert.ok(Object.isFrozen(held) && Object.isFrozen(held.spec));
    assert.ok(!("managedFields" in held.metadata));
    await informer.stop();
  });

  it("finds objects by namespace, label and index, also after they changed", async () => {
    const { server, informer } = await started({ indexes: { color: ({ spec }) => [spec?.color ?? "none"] } });
    server.store.create(WIDGETS, widget("b", { color: "red" }, { cell: "x" }), { manager: "test" });
    await settle();
    const names = (found: readonly Widget[]): string[] => found.map(({ metadata }) => metadata.name);
    assert.deepEqual(names(informer.byLabel("cell", "x")), ["b"]);
    assert.deepEqual(names(informer.byIndex("color", "red")), ["b"]);
    assert.deepEqual(names(informer.list("shop")), ["a", "b"]);
    assert.deepEqual(names(informer.list("other")), []);
    const ref = { namespace: "shop", name: "b" };
    const patch = { metadata: { labels: { cell: "y" } }, spec: { color: "blue" } };
    server.store.patch(WIDGETS, ref, patch, { manager: "test" });
    await settle();
    assert.deepEqual(names(informer.byLabel("cell", "x")), []);
    assert.deepEqual(names(informer.byLabel("cell", "y")), ["b"]);
    assert.deepEqual(names(informer.byIndex("color", "red")), []);
    assert.throws(() => informer.byIndex("size", "1"), TypeError);
    await informer.stop();
  });

  it("follows only the namespaces and labels that it was told to", async () => {
    const { server, informer, told } = await started({ namespaces: ["shop", "mall"], labelSelector: "on=1" });
    const add = (namespace: string, name: string, on: string): void => {
      const made = widget(name, {}, { on });
      server.store.create(
        WIDGETS,
        { ...made, metadata: { ...made.metadata, namespace } },
        { manager: "test" },
      );
    };
    add("shop", "b", "1");
    add("mall", "b", "1");
    add("else", "b", "1");
    add("shop", "c", "0");
    await settle();
    assert.deepEqual(told, ["added b", "added b"]);
    const off = { metadata: { labels: { on: "0" } } };
    server.store.patch(WIDGETS, { namespace: "shop", name: "b" }, off, { manager: "test" });
    await settle();
    assert.deepEqual(told.slice(2), ["deleted b"]);
    await informer.stop();
  });

  it("goes on from where it was when a watch ends or breaks, without listing again", async () => {
    const { server, informer, told, runtime } = await started();
    for (let round = 0; round < 5; round += 1) {
      server.resetWatches();
      resize(server, "a", round + 10);
      await runtime.advance(40_000);
    }
    // Past the time after which the apiserver ends a watch.
    await runtime.advance(400_000);
    assert.equal(lists(server), 1);
    assert.ok(watches(server) >= 7);
    assert.deepEqual(told, Array(5).fill("updated a"));
    assert.equal(informer.problem(), undefined);
    await informer.stop();
  });

  it("lists again after 410, be it an answer or an event, and tells only the difference", async () => {
    const { server, informer, told, runtime } = await started();
    make(server, "b");
    await settle();
    server.resetWatches();
    remove(server, "a");
    resize(server, "b", 5);
    make(server, "c");
    server.compact();
    await runtime.advance(5_000);
    assert.equal(lists(server), 2);
    assert.deepEqual(told, ["added b", "deleted a", "updated b", "added c"]);
    await informer.stop();
  });

  it("survives a list and a watch that are refused, as long as it takes, and honours Retry-After", async () => {
    const { server, informer, runtime, told } = setting();
    make(server, "a");
    server.fault = () => ({ kind: "status", status: 429, retryAfterSeconds: 100 });
    informer.start();
    await runtime.advance(99_000);
    assert.equal(server.calls.length, 1);
    server.fault = (call) => (call.watch ? { kind: "status", status: 500 } : { kind: "status", status: 403 });
    await runtime.advance(3_600_000);
    assert.match(informer.problem() ?? "", /widgets: list failed/);
    // Back-off: at most one call in 5 s.
    assert.ok(server.calls.length < 3_600 / 5 + 20, String(server.calls.length));
    server.fault = (call) => (call.watch ? { kind: "status", status: 500 } : undefined);
    await runtime.advance(600_000);
    assert.equal(informer.synced, true);
    server.fault = undefined;
    resize(server, "a", 2);
    await runtime.advance(60_000);
    assert.deepEqual(told, ["added a", "updated a"]);
    assert.equal(informer.problem(), undefined);
    await informer.stop();
  });

  it("notices a connection that is half open by the bookmarks that do not come", async () => {
    const { server, informer, runtime, told } = await started();
    let silent = true;
    server.streamFault = () => (silent ? "silence" : undefined);
    resize(server, "a", 2);
    await runtime.advance(89_000);
    assert.deepEqual(told, []);
    silent = false;
    await runtime.advance(5_000);
    assert.deepEqual(told, ["updated a"]);
    assert.equal(lists(server), 1);
    await runtime.advance(1_000_000);
    assert.ok((informer.ageMs() ?? Infinity) <= 60_000);
    await informer.stop();
  });

  it("gives up a watch whose answer never begins", async () => {
    const { server, informer, runtime, told } = await started();
    let hangs = 1;
    server.fault = (call) => (call.watch && hangs-- > 0 ? { kind: "hang" } : undefined);
    server.resetWatches();
    resize(server, "a", 2);
    await runtime.advance(40_000);
    assert.deepEqual(told, ["updated a"]);
    await informer.stop();
  });

  for (const fault of ["malformed", "huge", "error", "gone", "reset"] as StreamFault[]) {
    it(`does not lose an event to a watch that says something "${fault}", even when it always does`, async () => {
      const { server, informer, runtime, told } = await started({ limits: { lineBytesMax: 512 * 1024 } });
      let faults = 1;
      server.streamFault = () => (faults-- > 0 ? fault : undefined);
      resize(server, "a", 2);
      await runtime.advance(5_000);
      assert.deepEqual(told, ["updated a"]);
      // A position that cannot be passed by watching is passed by listing.
      faults = Infinity;
      resize(server, "a", 3);
      await runtime.advance(200_000);
      assert.deepEqual(told, ["updated a", "updated a"]);
      assert.equal(informer.get({ namespace: "shop", name: "a" })?.spec?.size, 3);
      await informer.stop();
    });
  }

  it("heals lost events by the periodic list, and ignores repeated ones", async () => {
    const { server, informer, runtime, told } = await started();
    server.streamFault = (_call, type) => (type === "BOOKMARK" ? undefined : "drop");
    resize(server, "a", 2);
    make(server, "b");
    await runtime.advance(60_000);
    server.streamFault = (_call, type) => (type === "BOOKMARK" ? undefined : "duplicate");
    make(server, "c");
    await settle();
    assert.deepEqual(told, ["added c"]);
    await runtime.advance(660_000);
    assert.deepEqual(told, ["added c", "updated a", "added b"]);
    await informer.stop();
  });

  it("never goes back in time: a list from an apiserver that lags is refused, and the watch goes on meanwhile", async () => {
    const { server, informer, runtime, told, reports } = await started();
    resize(server, "a", 2);
    remove(server, "a");
    make(server, "b");
    await settle();
    assert.deepEqual(told, ["updated a", "deleted a", "added b"]);
    let lag = true;
    server.fault = (call) => (lag && !call.watch ? { kind: "lag", revisions: 2 } : undefined);
    await runtime.advance(700_000);
    assert.equal(told.length, 3);
    assert.ok(reports.some((report) => report.includes("already seen")));
    make(server, "c");
    await runtime.advance(10);
    assert.deepEqual(told.slice(3), ["added c"]);
    // Without a position there is nothing to go on from: it waits.
    server.resetWatches();
    server.compact();
    await runtime.advance(120_000);
    assert.equal(informer.get({ namespace: "shop", name: "a" }), undefined);
    lag = false;
    make(server, "d");
    await runtime.advance(60_000);
    assert.deepEqual(told.slice(4), ["added d"]);
    await informer.stop();
  });

  it("does not raise the dead: an old event that comes again is older than what the watch has shown", async () => {
    const { server, informer, told } = await started();
    resize(server, "a", 2);
    server.streamFault = () => "replay";
    remove(server, "a");
    await settle();
    assert.deepEqual(told, ["updated a", "deleted a"]);
    await informer.stop();
  });

  it("tells another incarnation of a name as a deletion and an addition", async () => {
    const { server, informer, runtime, told } = await started();
    const before = informer.get({ namespace: "shop", name: "a" });
    server.resetWatches();
    remove(server, "a");
    make(server, "a");
    server.compact();
    await runtime.advance(5_000);
    assert.deepEqual(told, ["deleted a", "added a"]);
    assert.notEqual(informer.get({ namespace: "shop", name: "a" })?.metadata.uid, before?.metadata.uid);
    await informer.stop();
  });

  it("contains and reports what a handler throws; the other handlers still hear", async () => {
    const { server, informer, told, reports } = await started();
    informer.subscribe(() => {
      throw new Error("a bug");
    });
    const late: string[] = [];
    informer.subscribe(({ object }) => late.push(object.metadata.name));
    make(server, "b");
    await settle();
    assert.deepEqual(told, ["added b"]);
    assert.deepEqual(late, ["a", "b"]);
    assert.ok(reports.some((report) => report.includes("a handler threw: a bug")));
    await informer.stop();
  });

  it("leaves nothing running after stop, whatever it was doing", async () => {
    for (const fault of ["none", "hang", "status"] as const) {
      const { server, informer, runtime, told } = await started();
      if (fault === "hang") server.fault = () => ({ kind: "hang" });
      if (fault === "status") server.fault = () => ({ kind: "status", status: 500 });
      if (fault !== "none") server.resetWatches();
      await runtime.advance(2_000);
      await informer.stop();
      await settle();
      make(server, "late");
      await settle();
      assert.deepEqual([told, runtime.pending, server.openWatches], [[], 0, 0], fault);
    }
  });

  it("knows whether it is as new as an answer of the apiserver", async () => {
    const { server, informer } = await started();
    const made = make(server, "b");
    assert.equal(informer.reflects(made), false);
    await settle();
    assert.equal(informer.reflects(made), true);
    await informer.stop();
  });
});
