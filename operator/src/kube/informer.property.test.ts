import assert from "node:assert/strict";
import { test } from "node:test";
import { createInformer } from "./informer.ts";
import type { Change } from "./object-store.ts";
import { Rest } from "./rest.ts";
import { FakeApiServer, ManualRuntime, fakeTransport, mulberry32, settle } from "./testing/index.ts";
import type { Fault, StreamFault } from "./testing/index.ts";
import { WIDGETS, widget } from "./testing/widgets.ts";
import type { Widget } from "./testing/widgets.ts";

const NAMES = ["a", "b", "c", "d", "e"];
const STREAM_FAULTS: StreamFault[] = [
  "drop",
  "duplicate",
  "replay",
  "reset",
  "malformed",
  "gone",
  "error",
  "silence",
];
const STEPS = 120;

/** Holds every change against the law: for each name, versions only grow, and an incarnation that is gone is gone. */
class Law {
  private readonly newest = new Map<string, number>();
  private readonly held = new Map<string, string>();
  private readonly gone = new Set<string>();

  check(change: Change<Widget>): void {
    const { name, uid = "", resourceVersion } = change.object.metadata;
    const version = Number(resourceVersion);
    const newest = this.newest.get(name) ?? 0;
    assert.ok(!this.gone.has(uid), `${change.kind} ${name}: ${uid} was deleted`);
    switch (change.kind) {
      case "added":
        assert.equal(this.held.get(name), undefined, `added ${name} twice`);
        assert.ok(version > newest, `added ${name} at ${version} after ${newest}`);
        this.held.set(name, uid);
        break;
      case "updated":
        assert.equal(this.held.get(name), uid, `updated ${name}, which is not held`);
        assert.ok(version > newest, `updated ${name} to ${version} after ${newest}`);
        break;
      case "deleted":
        assert.equal(this.held.get(name), uid, `deleted ${name}, which is not held`);
        assert.ok(version >= newest, `deleted ${name} at ${version} after ${newest}`);
        this.held.delete(name);
        this.gone.add(uid);
    }
    this.newest.set(name, Math.max(newest, version));
  }
}

function write(server: FakeApiServer, random: () => number): void {
  const name = NAMES[Math.floor(random() * NAMES.length)] ?? "a";
  const ref = { namespace: "shop", name };
  const exists = server.store.get(WIDGETS, ref) !== undefined;
  const size = Math.floor(random() * 1_000);
  if (!exists) server.store.create(WIDGETS, widget(name, { size }), { manager: "test" });
  else if (random() < 0.4) server.store.delete(WIDGETS, ref);
  else server.store.patch(WIDGETS, ref, { spec: { size } }, { manager: "test" });
}

function drawFault(random: () => number): Fault {
  const kinds: Fault[] = [
    { kind: "status", status: 500 },
    { kind: "status", status: 410, reason: "Expired" },
    { kind: "status", status: 429, retryAfterSeconds: 3 },
    { kind: "reset" },
    { kind: "hang" },
    { kind: "slow", delayMs: 20_000 * random() },
    { kind: "lag", revisions: 1 + Math.floor(random() * 10) },
  ];
  return kinds[Math.floor(random() * kinds.length)] ?? { kind: "reset" };
}

async function history(seed: number): Promise<void> {
  const random = mulberry32(seed);
  const runtime = new ManualRuntime(seed);
  const server = new FakeApiServer({ runtime, kinds: [{ kind: WIDGETS }] });
  // Some seeds never lose an event, some always break.
  const [requestFaults, streamFaults] = [random() * 0.5, random() * 0.3];
  server.fault = () => (random() < requestFaults ? drawFault(random) : undefined);
  server.streamFault = () =>
    random() < streamFaults ? STREAM_FAULTS[Math.floor(random() * STREAM_FAULTS.length)] : undefined;
  const rest = new Rest({ transport: fakeTransport(server), runtime });
  const informer = createInformer(WIDGETS, { rest, limits: { pageSize: 2 } });
  const law = new Law();
  const broken: unknown[] = [];
  informer.subscribe((change) => {
    try {
      law.check(change);
    } catch (error) {
      broken.push(error);
    }
  });
  informer.start();
  for (let step = 0; step < STEPS; step += 1) {
    const act = random();
    if (act < 0.7) write(server, random);
    else if (act < 0.75) server.compact();
    else if (act < 0.8) server.resetWatches();
    if (random() < 0.5) await runtime.advance(random() * 30_000);
    else await settle();
  }
  server.fault = undefined;
  server.streamFault = undefined;
  // The longest back-off, a silent watch and a periodic list.
  await runtime.advance(30_000 + 90_000 + 11 * 60_000);
  const shown = (objects: readonly Widget[]): unknown =>
    objects
      .map(({ metadata, spec }) => [metadata.name, metadata.uid, metadata.resourceVersion, spec?.size])
      .sort();
  assert.deepEqual(broken, []);
  assert.deepEqual(shown(informer.list()), shown(server.store.list(WIDGETS)));
  await informer.stop();
  assert.equal(runtime.pending, 0);
}

test("under any faults the cache never goes back, and shows the server's state once they end", async () => {
  const only = process.env["INFORMER_SEED"];
  const count = Number(process.env["INFORMER_SEEDS"] ?? 50);
  const seeds = only === undefined ? Array.from({ length: count }, (_, index) => index + 1) : [Number(only)];
  for (const seed of seeds) {
    await history(seed).catch((cause: unknown) => {
      const replay = `INFORMER_SEED=${seed} node --test operator/src/kube/informer.property.test.ts`;
      throw new Error(`seed ${seed}; replay: ${replay}\n${String(cause)}`, { cause });
    });
  }
});
