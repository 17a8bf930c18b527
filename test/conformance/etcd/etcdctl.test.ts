// etcdctl's everyday commands against three real members. What it prints is asserted to the letter where it is stable.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { run } from "../../support/run.ts";
import { until } from "../../support/until.ts";
import { Ctl, decoded, type Header, type RangeAnswer } from "./etcdctl/ctl.ts";
import { startTarget, targetKind, type Target } from "./target.ts";
import { etcdPrograms, type EtcdPrograms } from "./tools.ts";

interface StatusAnswer {
  readonly Endpoint: string;
  readonly Status: {
    readonly header: Header;
    readonly version: string;
    readonly leader: number;
    readonly dbSize: number;
    readonly raftTerm: number;
  };
}

describe("etcdctl", { timeout: 600_000 }, () => {
  const programs: Promise<EtcdPrograms> = etcdPrograms();
  let target: Target;
  let ctl: Ctl;
  let scratch: string;
  before(async () => {
    target = await startTarget();
    ctl = new Ctl((await programs).etcdctl, target.endpoints);
    scratch = mkdtempSync(join(tmpdir(), "lockstep-etcdctl-"));
  });
  after(async () => {
    rmSync(scratch, { recursive: true, force: true });
    await target.stop();
  });

  it("put and get: value, key and value, from standard input, and nothing for an absent key", async () => {
    assert.equal(await ctl.text("put", "/a/one", "1"), "OK\n");
    assert.equal(await ctl.text("get", "/a/one"), "/a/one\n1\n");
    assert.equal(await ctl.text("get", "/a/one", "--print-value-only"), "1\n");
    assert.equal(await ctl.text("put", "--prev-kv", "/a/one", "2"), "OK\n/a/one\n1\n");
    const piped = await ctl.run(["put", "/a/piped"], "from standard input");
    assert.equal(piped.out, "OK\n");
    assert.equal(await ctl.text("get", "/a/piped", "--print-value-only"), "from standard input\n");
    assert.equal(await ctl.text("get", "/a/absent"), "");
    assert.equal(await ctl.text("put", "--ignore-value", "/a/one"), "OK\n");
    assert.equal(await ctl.text("get", "/a/one", "--print-value-only"), "2\n");
    assert.match(await ctl.fails("put", "--ignore-value", "/a/absent"), /etcdserver: key not found/);
    assert.match(await ctl.fails("put", "", "x"), /etcdserver: key is not provided/);
  });

  it("get --prefix, ranges, --from-key, --limit and --keys-only", async () => {
    for (const name of ["a", "b", "c", "d"]) await ctl.text("put", `/range/${name}`, `v${name}`);
    assert.equal(
      await ctl.text("get", "/range/", "--prefix"),
      "/range/a\nva\n/range/b\nvb\n/range/c\nvc\n/range/d\nvd\n",
    );
    assert.equal(await ctl.text("get", "/range/b", "/range/d"), "/range/b\nvb\n/range/c\nvc\n");
    assert.equal(
      await ctl.text("get", "/range/", "--prefix", "--limit", "2", "--keys-only"),
      "/range/a\n\n/range/b\n\n",
    );
    const from = await ctl.text("get", "/range/c", "--from-key", "--limit", "2", "--print-value-only");
    assert.equal(from, "vc\nvd\n");
    const counted = await ctl.fields("get", "/range/", "--prefix", "--count-only");
    assert.equal(counted.get("Count"), "4");
    const limited = await ctl.json<RangeAnswer>("get", "/range/", "--prefix", "--limit", "3");
    assert.deepEqual([limited.count, limited.more, limited.kvs?.length], [4, true, 3]);
  });

  it("get --order and --sort-by", async () => {
    for (const [name, value] of [
      ["c", "1"],
      ["a", "3"],
      ["b", "2"],
      ["a", "3"],
    ] as const)
      await ctl.text("put", `/sort/${name}`, value);
    const keys = async (...flags: string[]): Promise<string> =>
      (await ctl.text("get", "/sort/", "--prefix", "--keys-only", ...flags)).replaceAll(/\/sort\/|\n/g, "");
    assert.equal(await keys("--order", "ASCEND"), "abc");
    assert.equal(await keys("--order", "DESCEND"), "cba");
    assert.equal(await keys("--sort-by", "CREATE", "--order", "ASCEND"), "cab");
    assert.equal(await keys("--sort-by", "MODIFY", "--order", "ASCEND"), "cba");
    assert.equal(await keys("--sort-by", "VALUE", "--order", "DESCEND"), "abc");
    assert.equal(await keys("--sort-by", "VERSION", "--order", "DESCEND", "--limit", "1"), "a");
    assert.equal(await keys("--sort-by", "CREATE"), "cab");
    assert.match(await ctl.fails("get", "/sort/", "--prefix", "--order", "SIDEWAYS"), /bad sort order/);
  });

  it("get --rev reads the past, and a future revision is an error", async () => {
    await ctl.text("put", "/rev/a", "old");
    const { header } = await ctl.json<RangeAnswer>("get", "/rev/a");
    await ctl.text("put", "/rev/a", "new");
    assert.equal(await ctl.text("get", "/rev/a", "--rev", String(header.revision)), "/rev/a\nold\n");
    const future = await ctl.fails("get", "/rev/a", "--rev", String(header.revision + 1_000_000));
    assert.match(future, /etcdserver: mvcc: required revision is a future revision/);
    assert.equal(await ctl.text("get", "/rev/a", "--consistency", "s", "--print-value-only"), "new\n");
  });

  it("get -w json and -w fields name the revisions, the version and the lease", async () => {
    await ctl.text("put", "/out/a", "1");
    await ctl.text("put", "/out/a", "2");
    const { kvs, header, count } = await ctl.json<RangeAnswer>("get", "/out/a");
    const [kv] = kvs ?? [];
    assert.ok(kv);
    assert.deepEqual([decoded(kv.key), decoded(kv.value), kv.version, count], ["/out/a", "2", 2, 1]);
    assert.ok(kv.create_revision < kv.mod_revision && kv.mod_revision <= header.revision);
    assert.ok(header.cluster_id > 0 && header.member_id > 0 && header.raft_term > 0);
    const fields = await ctl.fields("get", "/out/a");
    assert.equal(fields.get("Key"), '"/out/a"');
    assert.equal(fields.get("Value"), '"2"');
    assert.equal(fields.get("Version"), "2");
    assert.equal(fields.get("CreateRevision"), String(kv.create_revision));
    assert.equal(fields.get("ModRevision"), String(kv.mod_revision));
    assert.equal(fields.get("Lease"), "0");
    assert.equal(fields.get("More"), "false");
    assert.match(await ctl.text("get", "/out/a", "--hex"), /^\\x2f\\x6f\\x75\\x74\\x2f\\x61\n\\x32\n$/);
  });

  it("del: one, a prefix, a range, with what was there", async () => {
    for (const name of ["a", "b", "c", "d", "e"]) await ctl.text("put", `/del/${name}`, `v${name}`);
    assert.equal(await ctl.text("del", "/del/a", "--prev-kv"), "1\n/del/a\nva\n");
    assert.equal(await ctl.text("del", "/del/a"), "0\n");
    assert.equal(await ctl.text("del", "/del/b", "/del/d", "--prev-kv"), "2\n/del/b\nvb\n/del/c\nvc\n");
    assert.equal(await ctl.text("del", "/del/", "--prefix"), "2\n");
    assert.equal(await ctl.text("get", "/del/", "--prefix"), "");
  });

  it("txn reads compares and both branches from standard input", async () => {
    await ctl.text("put", "/txn/a", "1");
    const lines = (...list: string[]): string => `${list.join("\n")}\n`;
    const won = await ctl.run(
      ["txn"],
      lines(
        'value("/txn/a") = "1"',
        'ver("/txn/absent") = "0"',
        "",
        "put /txn/a 2",
        "get /txn/a",
        "",
        "put /txn/lost x",
        "",
      ),
    );
    assert.equal(won.code, 0, won.err);
    assert.equal(won.out, "SUCCESS\n\nOK\n\n/txn/a\n2\n");
    const lost = await ctl.run(
      ["txn"],
      lines('mod("/txn/a") = "1"', "", "put /txn/lost x", "", "get /txn/a", "del /txn/a", ""),
    );
    assert.equal(lost.out, "FAILURE\n\n/txn/a\n2\n\n1\n");
    assert.equal(await ctl.text("get", "/txn/", "--prefix"), "");
    const duplicate = await ctl.run(["txn"], lines("", "put /txn/a 1", "put /txn/a 2", "", ""));
    assert.match(duplicate.err, /etcdserver: duplicate key given in txn request/);
    const interactive = await ctl.run(["txn", "--interactive"], lines("", "put /txn/i 1", "", ""));
    assert.match(interactive.out, /^compares:\nsuccess requests \(get, put, del\):\n/);
    assert.match(interactive.out, /SUCCESS\n\nOK\n$/);
  });

  it("watch prints changes as they come, of a key, a prefix and an old revision", async () => {
    const { header } = await ctl.json<RangeAnswer>("get", "/watch/a");
    await ctl.text("put", "/watch/a", "1");
    await ctl.text("put", "/watch/b", "1");
    await ctl.text("del", "/watch/a");
    const watching = ctl.start(
      "watch",
      "/watch/",
      "--prefix",
      "--rev",
      String(header.revision + 1),
      "--prev-kv",
    );
    await watching.says(/DELETE/);
    await ctl.text("put", "/watch/b", "2");
    await watching.says(
      /^PUT\n\/watch\/a\n1\nPUT\n\/watch\/b\n1\nDELETE\n\/watch\/a\n1\n\/watch\/a\n\nPUT\n\/watch\/b\n1\n\/watch\/b\n2\n$/,
    );
    await watching.end();
    const one = ctl.start("watch", "/watch/c", "-w", "json");
    await until("the watch is there", async () => {
      await ctl.text("put", "/watch/c", "x");
      return one.out.includes("mod_revision") || undefined;
    });
    const [line = ""] = one.out.split("\n");
    const answer = JSON.parse(line) as {
      readonly Events: readonly { readonly kv: { readonly key: string } }[];
    };
    assert.equal(decoded(answer.Events[0]?.kv.key), "/watch/c");
    await one.end();
  });

  it("watch --progress-notify tells an idle watch the revision, and runs a command for each event", async () => {
    const idle = ctl.start("watch", "/watch/idle", "--progress-notify");
    const [, revision = ""] = await idle.says(/^progress notify: (\d+)$/m);
    assert.ok(Number(revision) > 0);
    await idle.end();
    const { header } = await ctl.json<RangeAnswer>("get", "/watch/x");
    const running = ctl.start(
      ...["watch", "/watch/x", "--rev", String(header.revision + 1), "--", "sh", "-c"],
      "echo seen $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY",
    );
    await ctl.text("put", "/watch/x", "1");
    await running.says(/seen "PUT" "\/watch\/x"/);
    await running.end();
    const interactive = ctl.start("watch", "--interactive");
    interactive.write("watch /watch/i\n");
    await until("the watch is there", async () => {
      await ctl.text("put", "/watch/i", "1");
      return interactive.out.includes("PUT\n/watch/i\n1\n") || undefined;
    });
    interactive.write("progress\n");
    await interactive.says(/progress notify: \d+/);
    await interactive.end();
  });

  it("lease grant, timetolive --keys, keep-alive --once, list and revoke", async () => {
    const granted = await ctl.text("lease", "grant", "60");
    const [, id = ""] = /^lease ([0-9a-f]+) granted with TTL\(60s\)\n$/.exec(granted) ?? [];
    assert.notEqual(id, "", granted);
    assert.equal(await ctl.text("put", "/lease/a", "x", "--lease", id), "OK\n");
    assert.match(
      await ctl.text("lease", "timetolive", id, "--keys"),
      new RegExp(
        `^lease ${id} granted with TTL\\(60s\\), remaining\\((59|60|5\\d)s\\), attached keys\\(\\[/lease/a\\]\\)\n$`,
      ),
    );
    assert.equal(
      await ctl.text("lease", "keep-alive", id, "--once"),
      `lease ${id} keepalived with TTL(60)\n`,
    );
    const listed = (await ctl.text("lease", "list")).split("\n");
    assert.match(listed[0] ?? "", /^found \d+ leases$/);
    assert.ok(listed.includes(id));
    assert.equal(await ctl.text("lease", "revoke", id), `lease ${id} revoked\n`);
    assert.equal(await ctl.text("get", "/lease/a"), "");
    assert.equal(await ctl.text("lease", "timetolive", id), `lease ${id} already expired\n`);
    assert.match(await ctl.fails("lease", "revoke", id), /etcdserver: requested lease not found/);
    assert.match(
      await ctl.fails("put", "/lease/a", "x", "--lease", id),
      /etcdserver: requested lease not found/,
    );
    const alive = ctl.start("lease", "keep-alive", id);
    await alive.says(new RegExp(`lease ${id} expired or revoked\\.`));
    await alive.end();
  });

  it("lock runs a command while it holds, and the next one waits", async () => {
    const held = ctl.start("lock", "/lock/a");
    const [, key = ""] = await held.says(/^(\/lock\/a\/[0-9a-f]+)\n/);
    assert.equal((await ctl.json<RangeAnswer>("get", key)).count, 1);
    const second = ctl.start(
      "lock",
      "/lock/a",
      "--",
      "sh",
      "-c",
      "echo $ETCD_LOCK_KEY $ETCD_LOCK_REV; exit 7",
    );
    await until(
      "the second one waits",
      async () => (await ctl.json<RangeAnswer>("get", "/lock/a/", "--prefix")).count === 2 || undefined,
    );
    assert.equal(second.out, "");
    await held.end();
    const [, , revision = ""] = await second.says(/^(\/lock\/a\/[0-9a-f]+) (\d+)\n/);
    assert.ok(Number(revision) > 0);
    assert.equal(await second.exited(), 7);
    assert.equal(await ctl.text("get", "/lock/a/", "--prefix"), "");
  });

  it("elect campaigns, observes, and hands over", async () => {
    const first = ctl.start("elect", "/elect/a", "one");
    await first.says(/^\/elect\/a\/[0-9a-f]+\none\n/);
    const observer = ctl.start("elect", "--listen", "/elect/a");
    await observer.says(/\/elect\/a\/[0-9a-f]+\none\n/);
    const second = ctl.start("elect", "/elect/a", "two");
    await until(
      "the second one waits",
      async () => (await ctl.json<RangeAnswer>("get", "/elect/a/", "--prefix")).count === 2 || undefined,
    );
    await first.end();
    await second.says(/^\/elect\/a\/[0-9a-f]+\ntwo\n/);
    await observer.says(/two\n/);
    await second.end();
    await observer.end("SIGKILL");
  });

  it("member list in its forms", async () => {
    const lines = (await ctl.text("member", "list")).trim().split("\n");
    assert.equal(lines.length, 3);
    const endpoints = lines.map((line) => {
      const [, url = ""] =
        /^[0-9a-f]+, started, [^,]+, https?:\/\/[^,]+, (https?:\/\/[^,]+), false$/.exec(line) ?? [];
      assert.notEqual(url, "", line);
      return url;
    });
    assert.deepEqual(endpoints.map((url) => new URL(url).host).sort(), target.endpoints.toSorted());
    const table = await ctl.text("member", "list", "-w", "table");
    assert.match(
      table,
      /\|\s+ID\s+\|\s+STATUS\s+\|\s+NAME\s+\|\s+PEER ADDRS\s+\|\s+CLIENT ADDRS\s+\|\s+IS LEARNER\s+\|/,
    );
    assert.match(await ctl.fails("member", "remove", "abc123"), /etcdserver: member not found/);
  });

  it("endpoint health, status and hashkv", async () => {
    const healthy = await ctl.run(["endpoint", "health"]);
    assert.equal(healthy.code, 0, healthy.err);
    for (const endpoint of target.endpoints)
      assert.ok(
        `${healthy.out}${healthy.err}`.includes(
          `${endpoint} is healthy: successfully committed proposal: took = `,
        ),
      );
    const listed = await ctl.json<readonly { readonly endpoint: string; readonly health: boolean }[]>(
      ...["endpoint", "health", "--cluster"],
    );
    assert.deepEqual(
      listed.map((one) => one.health),
      [true, true, true],
    );
    const statuses = await ctl.json<readonly StatusAnswer[]>("endpoint", "status");
    assert.equal(new Set(statuses.map((one) => one.Status.leader)).size, 1);
    assert.equal(new Set(statuses.map((one) => one.Status.header.member_id)).size, 3);
    for (const one of statuses) {
      assert.match(one.Status.version, /^3\.6\.\d+$/);
      assert.ok(one.Status.dbSize > 0 && one.Status.raftTerm > 0);
    }
    const table = await ctl.text("endpoint", "status", "-w", "table");
    for (const endpoint of target.endpoints) assert.ok(table.includes(endpoint), table);
    const hashes = (await ctl.text("endpoint", "hashkv")).trim().split("\n");
    assert.equal(hashes.length, 3);
    for (const line of hashes) assert.match(line, /^127\.0\.0\.1:\d+, \d+, \d+$/);
    assert.equal(new Set(hashes.map((line) => line.split(", ")[1])).size, 1);
  });

  it("alarm list is empty, and disarming nothing is fine", async () => {
    assert.equal(await ctl.text("alarm", "list"), "");
    assert.equal(await ctl.text("alarm", "disarm"), "");
  });

  it("compaction cuts the past", async () => {
    await ctl.text("put", "/compact/a", "old");
    const { header } = await ctl.json<RangeAnswer>("get", "/compact/a");
    await ctl.text("put", "/compact/a", "new");
    const point = String(header.revision + 1);
    assert.equal(await ctl.text("compaction", point), `compacted revision ${point}\n`);
    const past = await ctl.fails("get", "/compact/a", "--rev", String(header.revision));
    assert.match(past, /etcdserver: mvcc: required revision has been compacted/);
    assert.match(
      await ctl.fails("compaction", point),
      /etcdserver: mvcc: required revision has been compacted/,
    );
    assert.match(
      await ctl.fails("compaction", "1000000000"),
      /etcdserver: mvcc: required revision is a future revision/,
    );
    const watching = await ctl.run(["watch", "/compact/a", "--rev", "1"]);
    assert.match(
      watching.err,
      new RegExp(`watch was canceled \\(etcdserver: mvcc: required revision has been compacted\\)`),
    );
    await ctl.text("put", "/compact/b", "1");
    const { header: now } = await ctl.json<RangeAnswer>("get", "/compact/b");
    assert.equal(
      await ctl.text("compaction", String(now.revision), "--physical"),
      `compacted revision ${String(now.revision)}\n`,
    );
  });

  it("defrag of each member", async () => {
    const said = await ctl.text("defrag");
    for (const endpoint of target.endpoints)
      assert.ok(said.includes(`Finished defragmenting etcd member[${endpoint}]`), said);
  });

  it("snapshot save writes a file with its sum", async () => {
    await ctl.text("put", "/snapshot/a", "1");
    const file = join(scratch, "snapshot.db");
    const one = new Ctl((await programs).etcdctl, target.endpoints.slice(0, 1));
    assert.match(await one.text("snapshot", "save", file), new RegExp(`Snapshot saved at ${file}\n`));
    assert.equal(statSync(file).size % 512, 32);
    if (targetKind === "lockstep") return; // A cell's snapshot is restored by Lockstep's own commands.
    const status = await run((await programs).etcdutl, ["snapshot", "status", file, "-w", "json"]);
    assert.equal(status.code, 0, status.err);
    const { revision, totalKey } = JSON.parse(status.out) as {
      readonly revision: number;
      readonly totalKey: number;
    };
    assert.ok(revision > 0 && totalKey > 0);
  });

  it("move-leader gives leadership to a named member", async () => {
    const statuses = await ctl.json<readonly StatusAnswer[]>("endpoint", "status");
    const hexIds = new Map(
      (await ctl.text("endpoint", "status", "-w", "simple"))
        .trim()
        .split("\n")
        .map((line) => line.split(", ") as [string, string]),
    );
    const leading = statuses.find((one) => one.Status.leader === one.Status.header.member_id);
    assert.ok(leading);
    const other = target.endpoints.find((endpoint) => endpoint !== leading.Endpoint) ?? "";
    const [from = "", to = ""] = [hexIds.get(leading.Endpoint), hexIds.get(other)];
    assert.equal(await ctl.text("move-leader", to), `Leadership transferred from ${from} to ${to}\n`);
    assert.equal(await ctl.text("put", "/moved", "1"), "OK\n");
  });

  it("make-mirror copies what is there and what comes", async () => {
    for (let n = 0; n < 10; n += 1) await ctl.text("put", `/source/${String(n)}`, String(n));
    const [destination = ""] = target.endpoints.slice(-1);
    const mirroring = ctl.start(
      "make-mirror",
      "--prefix",
      "/source/",
      "--dest-prefix",
      "/copy/",
      destination,
    );
    const copied = (count: number): Promise<true> =>
      until(`${String(count)} copies`, async () => {
        const { count: now = 0 } = await ctl.json<RangeAnswer>("get", "/copy/", "--prefix");
        return now === count || undefined;
      });
    await copied(10);
    await ctl.text("put", "/source/new", "later");
    await ctl.text("del", "/source/0");
    await until("the last change", async () => (await ctl.text("get", "/copy/0")) === "" || undefined);
    assert.equal(await ctl.text("get", "/copy/new", "--print-value-only"), "later\n");
    await copied(10);
    await mirroring.end("SIGKILL");
  });

  it("auth status says that there is none", async () => {
    assert.match(await ctl.text("auth", "status"), /^Authentication Status: false\nAuthRevision: \d+\n$/);
    if (targetKind === "lockstep")
      assert.match(await ctl.fails("auth", "enable"), /authentication is not enabled/);
  });
});
