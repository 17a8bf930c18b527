// Namespaces as their users meet them: created with the command, used over the native client and HTTP, deleted.
import { connect, LockstepError, Session } from "@lockstep/client";
import type { Client } from "@lockstep/client";
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import type { MemberProcess } from "../support/cell.ts";
import { run } from "../support/run.ts";
import { until } from "../support/until.ts";

const LOCKSTEP = new URL("../../cli/bin/lockstep.mjs", import.meta.url).pathname;
const SESSION = { ttlMs: 30_000, owner: "worker" };

type Json = Readonly<Record<string, unknown>>;

describe("namespaces", { timeout: 120_000 }, () => {
  let cell: TestCell;
  let follower: MemberProcess;
  const clients: Client[] = [];
  before(async () => {
    cell = await TestCell.start(3);
    const leader = await cell.leader();
    const other = cell.members.find((member) => member !== leader);
    assert.ok(other !== undefined);
    follower = other;
  });
  after(async () => {
    // Also those of a test that failed: a client that is open keeps the process alive.
    for (const each of clients) each.close();
    await cell.stop();
  });

  async function lockstep(...args: string[]): Promise<Json> {
    const endpoints = cell.members.map((member) => member.address(3)).join(",");
    const env = { ...process.env, LOCKSTEP_ADMIN_ENDPOINTS: endpoints };
    const ran = await run(process.execPath, [LOCKSTEP, ...args, "-o", "json"], { env });
    assert.equal(ran.code, 0, `lockstep ${args.join(" ")}: ${ran.err}`);
    return JSON.parse(ran.out) as Json;
  }

  function http(namespace: string, path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    headers.set("lockstep-namespace", namespace);
    return fetch(follower.http + path, { ...init, headers });
  }

  /** Through a member that does not lead: everything is forwarded or served where it came in. */
  async function client(namespace: string): Promise<Client> {
    const opened = await connect({ endpoints: [follower.address(0)], namespace });
    clients.push(opened);
    return opened;
  }

  it("know nothing of each other's keys, leases, watches and request ids, over the client and HTTP", async () => {
    for (const name of ["one", "two.prod"]) await lockstep("namespace", "create", name);
    const [one, two] = await Promise.all([client("one"), client("two.prod")]);
    const watched: string[] = [];
    const watch = two.watch({ prefix: "" });
    const watching = (async () => {
      for await (const { kv } of watch) {
        watched.push(kv.text());
        if (kv.text() === "end") break;
      }
    })();
    const first = await one.put("/key", "of one");
    assert.equal(await two.get("/key"), undefined);
    assert.equal((await http("two.prod", "/v1/kv/key")).status, 404);
    assert.equal((await http("one", "/v1/kv/key")).status, 200);
    assert.equal((await http("default", "/v1/kv/key")).status, 404);

    const session = await Session.open(one, SESSION);
    await assert.rejects(two.put("held", "x", { leaseId: session.leaseId }), {
      code: "lease-not-found",
    });
    const put = (namespace: string): Promise<Response> =>
      http(namespace, "/v1/kv/once", { method: "PUT", body: "v", headers: { "Request-ID": "only-once" } });
    const revisions: number[] = [];
    for (const namespace of ["one", "two.prod", "one"]) {
      const answer = (await (await put(namespace)).json()) as { readonly revision: number };
      revisions.push(answer.revision);
    }
    assert.equal(revisions[2], revisions[0], "the same id in the same namespace is a retry");
    assert.ok((revisions[1] ?? 0) > (revisions[0] ?? 0), "in another it is another request");
    assert.ok((revisions[0] ?? 0) > first.revision, "all namespaces of a cell count in one order");

    await two.put("/key", "end");
    await watching;
    assert.deepEqual(watched, ["v", "end"]);
    const listed = (await lockstep("namespace", "list"))["namespaces"] as readonly Json[];
    assert.deepEqual(
      listed.map(({ name, keys }) => [name, keys]),
      [
        ["default", 0],
        ["one", 2],
        ["two.prod", 2],
      ],
    );
    await session.close();
  });

  it("deleted: unknown at once to everybody, watches are cancelled, sessions told, and the others go on", async () => {
    await lockstep("namespace", "create", "doomed", "--uid", "first");
    const [doomed, other] = await Promise.all([client("doomed"), client("one")]);
    await doomed.put("key", "old");
    const session = await Session.open(doomed, SESSION);
    const kept = await Session.open(other, SESSION);
    await doomed.put("lock", "held", { leaseId: session.leaseId });
    const lost = new Promise<unknown>((resolve) => {
      session.lost.addEventListener("abort", () => resolve(session.lost.reason));
    });
    const watch = doomed.watch({ prefix: "" });
    await watch.created;
    const cancelled = (async () => {
      for await (const { kv } of watch) assert.fail(`a deletion is no event, but ${kv.text()} was told`);
    })();
    cancelled.catch(() => undefined);

    assert.equal((await lockstep("namespace", "delete", "doomed"))["deleted"], true);
    await assert.rejects(cancelled, (error) => {
      assert.ok(error instanceof LockstepError && error.code === "namespace-not-found", String(error));
      assert.match(error.message, /"doomed" was deleted/);
      return true;
    });
    const reason = await lost;
    assert.ok(reason instanceof LockstepError && reason.code === "session-lost");
    assert.match(reason.message, /forced/);
    await assert.rejects(doomed.get("key"), { code: "namespace-not-found" });
    await assert.rejects(doomed.put("key", "x"), { code: "namespace-not-found" });
    const problem = (await (await http("doomed", "/v1/kv/key")).json()) as Json;
    assert.equal(problem["code"], "namespace-not-found");
    assert.ok(!kept.lost.aborted);
    assert.equal((await other.get("/key"))?.text(), "of one");

    // Another of the same name begins empty.
    await lockstep("namespace", "create", "doomed", "--uid", "second");
    const again = await client("doomed");
    assert.equal(await again.get("key"), undefined);
    await again.put("key", "new");
    assert.equal((await again.get("key"))?.text(), "new");
    await kept.close();
  });

  it("what was deleted leaves nothing behind on any member, also on one that was killed meanwhile", async () => {
    await lockstep("namespace", "create", "large");
    const large = await client("large");
    await Promise.all(Array.from({ length: 3_000 }, (_, n) => large.put(`key-${String(n)}`, "v")));
    const full = await stateBytes(follower);
    await lockstep("namespace", "delete", "large");
    await follower.kill();
    follower.start();
    await cell.agreedDigest();
    for (const member of cell.members) {
      await until("its rows are gone", async () =>
        (await stateBytes(member)) < full / 4 ? true : undefined,
      );
    }
  });

  /** Of all rows that a member holds, whoever can see them. */
  async function stateBytes(member: MemberProcess): Promise<number> {
    const file = join(cell.directory, "state");
    const saved = await lockstep("snapshot", file, "--admin-endpoints", member.address(3));
    return Number(saved["bytes"]);
  }
});
