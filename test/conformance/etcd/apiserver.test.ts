// kube-apiserver with three members as its only store: load, restarts and killed leaders, and nothing lost.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "../../support/until.ts";
import type { ApiClient, ApiList } from "./apiserver/api.ts";
import { Follower } from "./apiserver/follower.ts";
import { configMaps, leases, Load, type Kind } from "./apiserver/load.ts";
import { ApiServer } from "./apiserver/server.ts";
import { Ctl } from "./etcdctl/ctl.ts";
import { startTarget, type Target } from "./target.ts";
import { etcdPrograms } from "./tools.ts";

const nightly = process.env["LOCKSTEP_TEST_DEPTH"] === "nightly";
/** Objects of each kind. */
const OBJECTS = nightly ? 5_000 : 600;
const ROUNDS = nightly ? 20 : 3;
const PAGE = 500;

const namesOf = (count: number): readonly string[] =>
  Array.from({ length: count }, (_, index) => `object-${String(index).padStart(5, "0")}`);

/** Lists in pages, all at the revision of the first one. */
async function listed(client: ApiClient, kind: Kind): Promise<ReadonlyMap<string, number>> {
  const found = new Map<string, number>();
  let from = "";
  do {
    const query = `limit=${String(PAGE)}${from === "" ? "" : `&continue=${encodeURIComponent(from)}`}`;
    const page = await client.get<ApiList>(`${kind.path}?${query}`);
    for (const { metadata } of page.items) found.set(metadata.name, Number(metadata.resourceVersion));
    from = page.metadata.continue ?? "";
  } while (from !== "");
  return found;
}

interface StatusAnswer {
  readonly Endpoint: string;
  readonly Status: { readonly leader: number; readonly header: { readonly member_id: number } };
}

/** The number of the member that leads, once one does. */
function leaderOf(ctl: Ctl, endpoints: readonly string[]): Promise<number> {
  return until("a leader", async () => {
    const statuses = await ctl.json<readonly StatusAnswer[]>("endpoint", "status");
    const leading = statuses.find((one) => one.Status.leader === one.Status.header.member_id);
    return leading === undefined ? undefined : endpoints.indexOf(leading.Endpoint);
  });
}

/** The sum of a counter's series whose labels match. */
function counter(metrics: string, name: string, labels: RegExp): number {
  return metrics
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`) && labels.test(line))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}

describe("kube-apiserver", { timeout: nightly ? 3_600_000 : 900_000 }, () => {
  let target: Target;
  let server: ApiServer;
  let client: ApiClient;
  let ctl: Ctl;
  before(async () => {
    target = await startTarget();
    ctl = new Ctl((await etcdPrograms()).etcdctl, target.endpoints);
    server = await ApiServer.start(target.endpoints, (line) => process.stderr.write(`${line}\n`));
    client = server.client();
  });
  after(async () => {
    client.close();
    await server.stop();
    await target.stop();
  });

  async function namespace(name: string): Promise<void> {
    const body = { apiVersion: "v1", kind: "Namespace", metadata: { name } };
    const { status, text } = await client.send("POST", "/api/v1/namespaces", body);
    assert.equal(status, 201, text);
  }

  async function following(kind: Kind): Promise<Follower> {
    const { metadata } = await client.get<ApiList>(kind.path);
    const follower = new Follower(() => server.client(), kind.path, metadata.resourceVersion);
    follower.start();
    return follower;
  }

  /** Every acknowledged change was seen once, in order, and what is left is what the list says. */
  async function agree(kind: Kind, load: Load, follower: Follower): Promise<void> {
    const last = await listed(client, kind);
    await until("the watch has seen all of it", () => {
      const present = follower.present();
      const same = [...last].every(([name, revision]) => present.get(name) === revision);
      return (same && present.size === last.size) || undefined;
    });
    assert.deepEqual(follower.faults, []);
    const unseen = load.acknowledged.revisions.filter((revision) => !follower.saw(revision));
    assert.deepEqual(unseen, [], "acknowledged and not seen");
    assert.equal(new Set(load.acknowledged.revisions).size, load.acknowledged.revisions.length);
  }

  for (const make of [configMaps, leases])
    it(`${make.name}: created, patched and deleted by the hundred, and the watch sees each change once`, async () => {
      const space = `calm-${make.name.toLowerCase()}`;
      await namespace(space);
      const kind = make(space);
      const follower = await following(kind);
      const load = new Load(() => server.client(), kind);
      const names = namesOf(OBJECTS);
      await load.create(names);
      await load.patch(names, 1);
      await load.remove(names.filter((_, index) => index % 3 === 0));
      await load.create(names.filter((_, index) => index % 6 === 0));
      await agree(kind, load, follower);
      assert.equal(load.acknowledged.repeated, 0, "nothing had to be tried again");
      await follower.stop();
    });

  it("a read without a resourceVersion sees the write before it, from the apiserver's own cache", async () => {
    await namespace("consistent");
    const kind = configMaps("consistent");
    for (let index = 0; index < 100; index += 1) {
      const name = `object-${String(index)}`;
      const created = await client.send("POST", kind.path, kind.make(name));
      assert.equal(created.status, 201, created.text);
      const { items } = await client.get<ApiList>(kind.path);
      assert.equal(items.length, index + 1);
    }
    const metrics = await client.text("/metrics");
    const reads = "apiserver_watch_cache_consistent_read_total";
    const served = counter(metrics, reads, /resource="configmaps".*success="true"/);
    const fallen = counter(metrics, reads, /resource="configmaps".*success="false"/);
    assert.ok(served >= 100, `${String(served)} consistent reads from the cache`);
    assert.equal(fallen, 0, "consistent reads that had to go to the store after all");
  });

  it("everything is there after the apiserver was killed and started again", async () => {
    await namespace("restart");
    const kind = configMaps("restart");
    const load = new Load(() => server.client(), kind);
    const follower = await following(kind);
    const names = namesOf(OBJECTS);
    await load.create(names);
    const before = await listed(client, kind);
    await server.end("SIGKILL");
    await server.start();
    client.close(); // Its connections ended with the process.
    client = server.client();
    assert.deepEqual(await listed(client, kind), before);
    await load.patch(names.slice(0, 100), 1);
    await agree(kind, load, follower);
    assert.ok(follower.opened >= 2, "the watch was opened again");
    await follower.stop();
  });

  it("a killed leader under load loses nothing, and no watch has a gap or a duplicate", async (t) => {
    await namespace("chaos");
    const kind = configMaps("chaos");
    const load = new Load(() => server.client(), kind);
    const follower = await following(kind);
    const names = namesOf(OBJECTS);
    await load.create(names);
    for (let round = 1; round <= ROUNDS; round += 1) {
      const patching = load.patch(names, round);
      await delay(300); // In the middle of the load.
      const leader = await leaderOf(ctl, target.endpoints);
      await target.kill(leader);
      await delay(1_500); // Longer than an election.
      await target.start(leader);
      await patching;
    }
    await load.remove(names.filter((_, index) => index % 2 === 0));
    await agree(kind, load, follower);
    t.diagnostic(
      `${String(load.acknowledged.revisions.length)} writes acknowledged, ${String(load.acknowledged.repeated)} attempts repeated, ` +
        `the watch was opened ${String(follower.opened)} times`,
    );
    await follower.stop();
  });
});
