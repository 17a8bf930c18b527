// The npm client `etcd3` against three real members.
import {
  Etcd3,
  EtcdError,
  EtcdLeaseInvalidError,
  EtcdLockFailedError,
  GRPCInvalidArgumentError,
  GRPCOutOfRangeError,
  type IKeyValue,
  type Watcher,
} from "etcd3";
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { until } from "../../../support/until.ts";
import { startTarget, type Target } from "../target.ts";

/** What a watcher told, as `+value` and `-`. */
function record(watcher: Watcher): string[] {
  const told: string[] = [];
  watcher.on("put", (kv: IKeyValue) => told.push(`+${kv.value.toString()}`));
  watcher.on("delete", () => told.push("-"));
  return told;
}

describe("the npm client etcd3", { timeout: 600_000 }, () => {
  let target: Target;
  let client: Etcd3;
  let prefix: string;
  const key = (name: string): string => prefix + name;
  const told = (watched: readonly string[], count: number): Promise<true> =>
    until(`${String(count)} events in ${watched.join(" ")}`, () => watched.length >= count || undefined);

  before(async () => {
    target = await startTarget();
  });
  after(() => target.stop());
  beforeEach(() => {
    prefix = `/npm/${randomBytes(6).toString("hex")}/`;
    client = new Etcd3({ hosts: target.endpoints.map((endpoint) => `http://${endpoint}`) });
  });
  afterEach(() => client.close());

  it("puts, gets, touches and deletes", async () => {
    await client.put(key("a")).value("1");
    assert.equal(await client.get(key("a")).string(), "1");
    assert.equal(await client.get(key("a")).number(), 1);
    assert.equal(await client.get(key("absent")).string(), null);
    assert.equal(await client.get(key("a")).exists(), true);
    const previous = await client.put(key("a")).value("2").getPrevious();
    assert.equal(previous.value.toString(), "1");
    await client.put(key("a")).touch();
    assert.equal(await client.get(key("a")).string(), "2");
    const { deleted } = await client.delete().key(key("a"));
    assert.equal(deleted, "1");
    assert.equal((await client.delete().key(key("a"))).deleted, "0");
  });

  it("lists with sort, limit, count, keys and at a revision", async () => {
    for (const [name, value] of [
      ["c", "1"],
      ["a", "3"],
      ["b", "2"],
    ] as const)
      await client.put(key(name)).value(value);
    assert.deepEqual(await client.getAll().prefix(prefix).strings(), {
      [key("a")]: "3",
      [key("b")]: "2",
      [key("c")]: "1",
    });
    assert.deepEqual(
      await client.getAll().prefix(prefix).sort("Key", "Descend").keys(),
      ["c", "b", "a"].map(key),
    );
    assert.deepEqual(
      await client.getAll().prefix(prefix).sort("Value", "Ascend").keys(),
      ["c", "b", "a"].map(key),
    );
    assert.deepEqual(
      await client.getAll().prefix(prefix).sort("Create", "Ascend").limit(2).keys(),
      ["c", "a"].map(key),
    );
    assert.equal(await client.getAll().prefix(prefix).count(), 3);
    const { header } = await client.getAll().prefix(prefix).exec();
    await client.delete().prefix(prefix);
    assert.equal(await client.getAll().prefix(prefix).count(), 0);
    assert.equal(await client.getAll().prefix(prefix).revision(header.revision).count(), 3);
    assert.deepEqual(
      await client
        .getAll()
        .inRange({ start: key("a"), end: key("c") })
        .keys(),
      [],
    );
  });

  it("transactions take one branch", async () => {
    await client.put(key("a")).value("1");
    const won = await client
      .if(key("a"), "Value", "==", "1")
      .and(key("absent"), "Version", "==", 0)
      .then(client.put(key("a")).value("2"), client.get(key("a")))
      .else(client.delete().key(key("a")))
      .commit();
    assert.equal(won.succeeded, true);
    assert.equal(await client.get(key("a")).string(), "2");
    const lost = await client
      .if(key("a"), "Value", "==", "1")
      .then(client.put(key("a")).value("3"))
      .else(client.delete().key(key("a")))
      .commit();
    assert.equal(lost.succeeded, false);
    assert.equal(await client.get(key("a")).string(), null);
  });

  it("watches keys and prefixes, many on one stream", async () => {
    const watchers = [
      await client.watch().key(key("a")).create(),
      await client.watch().prefix(prefix).create(),
    ] as const;
    const [one, all] = [record(watchers[0]), record(watchers[1])];
    const deletes = await client.watch().prefix(prefix).only("delete").withPreviousKV().create();
    const gone: string[] = [];
    deletes.on("delete", (_kv: IKeyValue, previous?: IKeyValue) => gone.push(String(previous?.value)));
    await client.put(key("a")).value("1");
    await client.put(key("b")).value("2");
    await client.delete().key(key("a"));
    await told(all, 3);
    await told(one, 2);
    await told(gone, 1);
    assert.deepEqual([one, all, gone], [["+1", "-"], ["+1", "+2", "-"], ["1"]]);
    // One that is left would be tried again for ever, and keep this process.
    for (const watcher of [...watchers, deletes]) await watcher.cancel();
  });

  it("a watcher goes on after its member was killed, without a gap or a duplicate", async () => {
    const watcher = await client.watch().key(key("a")).create();
    const seen = record(watcher);
    const want: string[] = [];
    let reconnected = 0;
    watcher.on("connected", () => (reconnected += 1));
    for (let member = 0; member < target.endpoints.length; member += 1) {
      await target.kill(member);
      for (let n = 0; n < 5; n += 1) {
        const value = `${String(member)}.${String(n)}`;
        // A write whose outcome is unknown is written again: its value then comes twice, in two versions.
        await until("the write", () =>
          client
            .put(key("a"))
            .value(value)
            .then(() => true as const),
        );
        want.push(`+${value}`);
      }
      await target.start(member);
      await until("all three serve", async () => {
        const alone = new Etcd3({ hosts: `http://${target.endpoints[member] ?? ""}` });
        try {
          await alone.get(key("a")).string();
          return true as const;
        } finally {
          alone.close();
        }
      });
    }
    await until("the last one", () => seen.at(-1) === want.at(-1) || undefined);
    assert.deepEqual(
      seen.filter((value, index) => value !== seen[index - 1]),
      want,
    );
    const { kvs } = await client.get(key("a")).exec();
    assert.equal(seen.length, Number(kvs[0]?.version), "each version once");
    assert.ok(reconnected > 0, "its member was among the killed");
    await watcher.cancel();
  });

  it("leases keep their keys, end with revoke, and are lost when somebody else revokes them", async () => {
    const lease = client.lease(5);
    const id = await lease.grant();
    await lease.put(key("a")).value("1");
    assert.equal((await lease.keepaliveOnce()).TTL, "5");
    const { keys } = await client.leaseClient.leaseTimeToLive({ ID: id, keys: true });
    assert.deepEqual(keys.map(String), [key("a")]);
    await lease.revoke();
    assert.equal(await client.get(key("a")).string(), null);
    const other = client.lease(3);
    const lost = once(other, "lost");
    await client.leaseClient.leaseRevoke({ ID: await other.grant() });
    const [error] = (await lost) as [unknown];
    assert.ok(error instanceof EtcdLeaseInvalidError);
    assert.equal(other.revoked(), true);
  });

  it("locks exclude each other", async () => {
    const held = await client.lock(key("lock")).ttl(10).acquire();
    await assert.rejects(client.lock(key("lock")).acquire(), EtcdLockFailedError);
    await held.release();
    const result = await client.lock(key("lock")).do(() => 7);
    assert.equal(result, 7);
    assert.equal(await client.getAll().prefix(key("lock")).count(), 0);
  });

  it("an election has one leader, and the next one after it resigns", async () => {
    const first = client.election(key("election"), 10);
    const second = new Etcd3({ hosts: target.endpoints.map((endpoint) => `http://${endpoint}`) });
    const observer = await first.observe();
    const one = first.campaign("one");
    await one.wait();
    await until("the observer knows", () => observer.leader() === "one" || undefined);
    const two = second.election(key("election"), 10).campaign("two");
    await until(
      "the second one waits",
      async () =>
        (await client
          .getAll()
          .prefix(`election/${key("election")}`)
          .count()) === 2 || undefined,
    );
    assert.equal(await first.leader(), "one");
    await one.resign();
    await two.wait();
    await until("the observer knows", () => observer.leader() === "two" || undefined);
    await two.resign();
    await observer.cancel();
    second.close();
  });

  // Serializable and repeatable reads. The client's third level, a serializable snapshot, never commits when its keys
  // were written at different revisions: it compares all of them with the earliest. It reads serializably at the
  // revision of its first read, so all its calls go to one member: another may not have that revision yet.
  for (const isolation of [1, 2] as const)
    it(`software transactions keep a sum, isolation ${String(isolation)}`, async () => {
      const one = new Etcd3({ hosts: `http://${target.endpoints[0] ?? ""}` });
      await one.put(key("a")).value(100);
      await one.put(key("b")).value(100);
      const transfer = (from: string, to: string): Promise<unknown> =>
        // The enumeration is one of those that only its own compiler can read.
        one.stm({ retries: 1_000, ...({ isolation } as object) }).transact(async (tx) => {
          const [have, gets] = [Number(await tx.get(from)), Number(await tx.get(to))];
          await tx.put(from).value(have - 1);
          await tx.put(to).value(gets + 1);
        });
      await Promise.all(
        Array.from({ length: 12 }, (_, n) =>
          n % 3 === 0 ? transfer(key("b"), key("a")) : transfer(key("a"), key("b")),
        ),
      );
      assert.deepEqual(await one.getAll().prefix(prefix).numbers(), { [key("a")]: 96, [key("b")]: 104 });
      one.close();
    });

  it("namespaces put their prefix in front", async () => {
    const space = client.namespace(prefix);
    await space.put("a").value("1");
    assert.equal(await client.get(key("a")).string(), "1");
    assert.deepEqual(await space.getAll().all().keys(), ["a"]);
  });

  it("errors have the classes that the client makes of code and text", async () => {
    await assert.rejects(client.put(key("a")).value("x").lease(987_654_321).exec(), EtcdLeaseInvalidError);
    await assert.rejects(client.put(key("a")).touch(), (error: unknown) => {
      assert.ok(error instanceof EtcdError || error instanceof GRPCInvalidArgumentError);
      return /etcdserver: key not found/.test(error.message);
    });
    await assert.rejects(client.get(key("a")).revision(1_000_000_000).exec(), (error: unknown) => {
      assert.ok(error instanceof EtcdError || error instanceof GRPCOutOfRangeError);
      return /required revision is a future revision/.test(error.message);
    });
  });

  it("maintenance and cluster answer", async () => {
    const { members } = await client.cluster.memberList({});
    assert.equal(members.length, target.endpoints.length);
    const status = await client.maintenance.status();
    assert.match(status.version, /^3\.6\.\d+$/);
  });
});
