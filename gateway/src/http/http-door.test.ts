import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { afterEach, beforeEach, describe, it } from "node:test";
import { ManualClock, MemoryCoordinator } from "../testing/memory-coordinator.ts";
import type { HttpDoorLimits } from "./limits.ts";
import type { RunningHttpDoor } from "./server.ts";
import { startHttpDoor } from "./server.ts";

type Headers = Record<string, string>;

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Buffer;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

describe("the HTTP door", { timeout: 20_000 }, () => {
  let clock: ManualClock;
  let coordinator: MemoryCoordinator;
  let door: RunningHttpDoor;

  async function open(doorLimits: Partial<HttpDoorLimits> = {}): Promise<void> {
    clock = new ManualClock();
    coordinator = new MemoryCoordinator({ clock, namespaces: ["default", "team"] });
    door = await startHttpDoor({ coordinator, host: "127.0.0.1", port: 0, doorLimits });
  }

  beforeEach(() => open());
  afterEach(() => door.close(100));

  /** Sends a request with its target exactly as given; `fetch` would normalise it. */
  async function send(
    method: string,
    path: string,
    headers: Headers = {},
    body?: string | Buffer,
  ): Promise<Answer> {
    const request = httpRequest({
      host: "127.0.0.1",
      port: door.address.port,
      method,
      path,
      headers,
      agent: false,
    });
    request.end(body);
    const [response] = (await once(request, "response")) as [IncomingMessage];
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    const whole = Buffer.concat(chunks);
    const text = whole.toString();
    const isJson = (response.headers["content-type"] ?? "").includes("json");
    return {
      status: response.statusCode ?? 0,
      headers: response.headers as Headers,
      body: whole,
      text,
      json: isJson && text !== "" ? (JSON.parse(text) as Record<string, unknown>) : {},
    };
  }

  function assertProblem(answer: Answer, status: number, code: string): void {
    assert.equal(answer.status, status, answer.text);
    assert.match(answer.headers["content-type"] ?? "", /^application\/problem\+json/);
    assert.equal(answer.json["code"], code);
    assert.equal(answer.json["status"], status);
    assert.equal(answer.json["type"], `urn:lockstep:error:${code}`);
    for (const name of ["title", "detail", "outcome"]) assert.equal(typeof answer.json[name], "string", name);
  }

  async function grant(ttlMs = 30_000): Promise<string> {
    const answer = await send("POST", "/v1/leases", {}, JSON.stringify({ ttlMs, owner: "worker-17" }));
    assert.equal(answer.status, 201, answer.text);
    return answer.json["leaseId"] as string;
  }

  it("claims a lock with If-Version: 0 and a lease, and answers with the fencing token", async () => {
    const lease = await grant();
    assert.equal(lease, "lease_81");
    const answer = await send(
      "PUT",
      "/v1/kv/locks/report-42",
      { "If-Version": "0", "Lease-ID": lease },
      "worker-17",
    );
    assert.equal(answer.status, 201);
    assert.deepEqual(answer.json, { created: true, version: 1, revision: 2, fencingToken: 2 });
    const second = await send("PUT", "/v1/kv/locks/report-42", { "If-Version": "0" }, "worker-18");
    assertProblem(second, 412, "condition-failed");
    const { version, revision, fencingToken, leaseId, outcome } = second.json;
    assert.deepEqual(
      { version, revision, fencingToken, leaseId, outcome },
      { version: 1, revision: 2, fencingToken: 2, leaseId: lease, outcome: "not-applied" },
    );
    assert.equal(second.headers["etag"], '"2"');
  });

  it("updates under If-Revision, If-Lease and If-Match, keeping the fencing token", async () => {
    await send("PUT", "/v1/kv/k", {}, "1");
    const updated = await send("PUT", "/v1/kv/k", { "If-Revision": "2" }, "2");
    assert.equal(updated.status, 200);
    assert.deepEqual(updated.json, { created: false, version: 2, revision: 3, fencingToken: 2 });
    assert.equal((await send("PUT", "/v1/kv/k", { "If-Match": updated.headers["etag"]! }, "3")).status, 200);
    assertProblem(await send("PUT", "/v1/kv/k", { "If-Revision": "3" }, "4"), 412, "condition-failed");
    assertProblem(await send("PUT", "/v1/kv/k", { "If-Lease": "lease_5" }, "4"), 412, "condition-failed");
    assertProblem(await send("PUT", "/v1/kv/k", { "If-None-Match": "*" }, "4"), 412, "condition-failed");
    const absent = await send("PUT", "/v1/kv/other", { "If-Version": "3" }, "4");
    assertProblem(absent, 412, "condition-failed");
    assert.equal(absent.json["version"], 0);
    assert.equal(absent.json["leaseId"], null);
    assertProblem(await send("PUT", "/v1/kv/k", { "If-Version": "x" }, "4"), 400, "invalid-argument");
    assert.equal((await send("GET", "/v1/kv/k")).text, "3");
  });

  it("refuses a put under a lease that is gone", async () => {
    assertProblem(await send("PUT", "/v1/kv/k", { "Lease-ID": "lease_7" }, ""), 404, "lease-not-found");
    assertProblem(await send("PUT", "/v1/kv/k", { "Lease-ID": "lease_0" }, ""), 400, "invalid-argument");
  });

  it("runs a mutation once for one Request-ID and marks the replay", async () => {
    const headers = { "Request-ID": "job-1" };
    const first = await send("PUT", "/v1/kv/k", headers, "1");
    const retry = await send("PUT", "/v1/kv/k", headers, "1");
    assert.deepEqual(retry.json, first.json);
    assert.equal(retry.status, first.status);
    assert.equal(first.headers["lockstep-replayed"], undefined);
    assert.equal(retry.headers["lockstep-replayed"], "true");
    assertProblem(
      await send("PUT", "/v1/kv/k", { "Request-ID": "x".repeat(129) }, ""),
      400,
      "invalid-argument",
    );
  });

  it("answers a value as body with its versions in headers, or as JSON when accepted", async () => {
    const lease = await grant();
    await send(
      "PUT",
      "/v1/kv/k",
      { "Lease-ID": lease, "content-type": "application/x-www-form-urlencoded" },
      "a=b",
    );
    const raw = await send("GET", "/v1/kv/k");
    assert.equal(raw.text, "a=b");
    assert.equal(raw.headers["content-type"], "application/octet-stream");
    const names = ["version", "revision", "mod-revision", "create-revision", "fencing-token", "lease"];
    assert.deepEqual(
      names.map((name) => raw.headers[`lockstep-${name}`]),
      ["1", "2", "2", "2", "2", lease],
    );
    assert.equal(raw.headers["etag"], '"2"');
    const json = await send("GET", "/v1/kv/k", { accept: "application/json" });
    assert.deepEqual(json.json, {
      key: "/k",
      value: "a=b",
      version: 1,
      createRevision: 2,
      modRevision: 2,
      leaseId: lease,
      fencingToken: 2,
    });
    assert.equal((await send("GET", "/v1/kv/k", { "If-None-Match": '"2"' })).status, 304);
    assert.equal((await send("HEAD", "/v1/kv/k")).headers["lockstep-version"], "1");
    await send("PUT", "/v1/kv/k", {}, Buffer.from([0xff, 0x00]));
    const binary = await send("GET", "/v1/kv/k", { accept: "application/json" });
    assert.equal(binary.json["valueBase64"], "/wA=");
    assert.equal(binary.json["leaseId"], null);
    assert.deepEqual((await send("GET", "/v1/kv/k")).body, Buffer.from([0xff, 0x00]));
  });

  it("answers 404 for an absent key with the cell's revision", async () => {
    await send("PUT", "/v1/kv/other", {}, "");
    const answer = await send("GET", "/v1/kv/k");
    assertProblem(answer, 404, "key-not-found");
    assert.equal(answer.headers["lockstep-revision"], "2");
  });

  it("reads at a revision, at a minimum revision, and serializably", async () => {
    await send("PUT", "/v1/kv/k", {}, "1");
    await send("PUT", "/v1/kv/k", {}, "2");
    assert.equal((await send("GET", "/v1/kv/k?revision=2")).text, "1");
    assertProblem(await send("GET", "/v1/kv/k?revision=9"), 400, "future-revision");
    const waiting = send("GET", "/v1/kv/k?minRevision=4&consistency=serializable");
    await send("PUT", "/v1/kv/k", {}, "3");
    assert.equal((await waiting).text, "3");
    assertProblem(await send("GET", "/v1/kv/k?consistency=maybe"), 400, "invalid-argument");
    assertProblem(await send("GET", "/v1/kv/k?revison=2"), 400, "invalid-argument");
  });

  it("takes keys as bytes: nothing in a path is normalised", async () => {
    const keys: [string, Buffer][] = [
      ["/v1/kv/a//b", Buffer.from("/a//b")],
      ["/v1/kv/a/../b", Buffer.from("/a/../b")],
      ["/v1/kv/a%2Fb", Buffer.from("/a/b")],
      ["/v1/kv/%2e%2E/x", Buffer.from("/../x")],
      ["/v1/kv/a+b", Buffer.from("/a+b")],
      ["/v1/kv/%FF%00", Buffer.from([0x2f, 0xff, 0x00])],
      ["/v1/kv/", Buffer.from("/")],
      ["/v1/kv//", Buffer.from("//")],
      ["/v1/kv/caf%C3%A9;v=1", Buffer.from("/café;v=1")],
    ];
    for (const [path] of keys) assert.equal((await send("PUT", path, {}, path)).status, 201, path);
    for (const [path, key] of keys) {
      const answer = await send("GET", path, { accept: "application/json" });
      const json = answer.json as { key?: string; keyBase64?: string };
      assert.deepEqual(
        json.keyBase64 === undefined ? Buffer.from(json.key!) : Buffer.from(json.keyBase64, "base64"),
        key,
      );
      assert.equal((await send("GET", path)).text, path);
    }
    for (const path of ["/v1/kv/%", "/v1/kv/%z1", "/v1/kv/a%2", "/v1/leases/%zz"]) {
      assertProblem(await send("GET", path), 400, "invalid-argument");
    }
    assertProblem(await send("PUT", "/v1/kv", {}, ""), 400, "invalid-argument");
  });

  it("lists a prefix in pages that all show one revision", async () => {
    for (const name of ["a/1", "a/2", "a/3", "b/1"]) await send("PUT", `/v1/kv/${name}`, {}, name);
    const first = await send("GET", "/v1/kv/a/?prefix&limit=2");
    assert.equal(first.json["revision"], 5);
    const keys = (answer: Answer): unknown[] =>
      (answer.json["items"] as { key: string }[]).map((item) => item.key);
    assert.deepEqual(keys(first), ["/a/1", "/a/2"]);
    await send("DELETE", "/v1/kv/a/3");
    const second = await send("GET", `/v1/kv/a/?prefix&limit=2&after=${String(first.json["next"])}`);
    assert.deepEqual(keys(second), ["/a/3"]);
    assert.equal(second.json["revision"], 5);
    assert.equal(second.json["next"], undefined);
    const bare = await send("GET", "/v1/kv?prefix&keysOnly");
    assert.deepEqual(keys(bare), ["/a/1", "/a/2", "/b/1"]);
    assert.equal("value" in (bare.json["items"] as object[])[0]!, false);
    assert.deepEqual((await send("GET", "/v1/kv/a/?prefix=true&countOnly")).json, { revision: 6, count: 2 });
    assertProblem(await send("GET", "/v1/kv/a/?prefix&after=zzz"), 400, "invalid-argument");
    assertProblem(await send("GET", "/v1/kv/b/?prefix&after=5.L2EvMQ"), 400, "invalid-argument");
  });

  it("deletes one key under conditions, and a prefix", async () => {
    for (const name of ["a/1", "a/2", "b"]) await send("PUT", `/v1/kv/${name}`, {}, "");
    assertProblem(await send("DELETE", "/v1/kv/b", { "If-Version": "2" }), 412, "condition-failed");
    assert.deepEqual((await send("DELETE", "/v1/kv/b", { "If-Version": "1" })).json, {
      deleted: 1,
      revision: 5,
    });
    assert.deepEqual((await send("DELETE", "/v1/kv/b")).json, { deleted: 0, revision: 5 });
    assertProblem(await send("DELETE", "/v1/kv/a/?prefix", { "If-Version": "1" }), 400, "invalid-argument");
    assert.deepEqual((await send("DELETE", "/v1/kv/a/?prefix")).json, { deleted: 2, revision: 6 });
  });

  it("names a sequential key by its revision", async () => {
    const answer = await send("PUT", "/v1/kv/queue/?sequential=true", {}, "job");
    assert.equal(answer.json["key"], "/queue/0000000000000002");
    assert.equal((await send("GET", "/v1/kv/queue/0000000000000002")).text, "job");
  });

  it("runs transactions and says which compares failed and what was there", async () => {
    const swap = {
      compares: [
        { key: "/a", version: 0 },
        { key: "/b", operator: "!=", value: "x" },
      ],
      success: [
        { put: { key: "/a", value: "1" } },
        { put: { keyBase64: "L/8=", valueBase64: "AAE=" } },
        { get: { key: "/", prefix: true } },
      ],
      failure: [{ delete: { key: "/a", previous: true } }],
    };
    const missing = await send("POST", "/v1/txn", {}, JSON.stringify(swap));
    assert.equal(missing.json["succeeded"], false);
    assert.deepEqual(missing.json["failedCompares"], [{ index: 1, actual: null }]);
    await send("PUT", "/v1/kv/b", {}, "y");
    const done = await send("POST", "/v1/txn", {}, JSON.stringify(swap));
    assert.equal(done.json["succeeded"], true, done.text);
    const [put, raw, get] = done.json["results"] as Record<string, Record<string, unknown>>[];
    assert.deepEqual(put, { put: { key: "/a", created: true, version: 1, revision: 3, fencingToken: 3 } });
    assert.equal(raw!["put"]!["keyBase64"], "L/8=");
    assert.equal(get!["get"]!["count"], 3);
    const again = await send("POST", "/v1/txn", {}, JSON.stringify(swap));
    assert.equal((again.json["failedCompares"] as { index: number }[])[0]?.index, 0);
    const [removed] = again.json["results"] as { delete: { deleted: number } }[];
    assert.equal(removed?.delete.deleted, 1);
    for (const wrong of [
      "{",
      "[]",
      '{"compare":[]}',
      '{"compares":[{"key":"/a"}]}',
      '{"compares":[{"key":"/a","version":1,"lease":"lease_1"}]}',
      '{"compares":[{"key":"/a","version":1,"operator":"constructor"}]}',
      '{"compares":[{"key":"/a","version":1,"operator":"__proto__"}]}',
      '{"success":[{"put":{"key":"/a"},"get":{"key":"/a"}}]}',
      '{"success":[{"put":{"key":"/a","value":5}}]}',
      '{"success":[{"put":{"key":"/a","valueBase64":"%"}}]}',
    ]) {
      assertProblem(await send("POST", "/v1/txn", {}, wrong), 400, "invalid-argument");
    }
    const twice = { success: [{ put: { key: "/a" } }, { put: { key: "/a" } }] };
    assertProblem(await send("POST", "/v1/txn", {}, JSON.stringify(twice)), 400, "duplicate-key");
    const many = { success: Array.from({ length: 129 }, (_, i) => ({ put: { key: `/${i}` } })) };
    assertProblem(await send("POST", "/v1/txn", {}, JSON.stringify(many)), 413, "too-many-operations");
  });

  it("grants, keeps alive, shows, lists and revokes leases", async () => {
    const lease = await grant(30_000);
    const chosen = await send(
      "POST",
      "/v1/leases",
      {},
      '{"ttlMs":5000,"leaseId":"lease_7000000000000000000"}',
    );
    assert.equal(chosen.headers["location"], "/v1/leases/lease_7000000000000000000");
    assertProblem(
      await send("POST", "/v1/leases", {}, '{"ttlMs":5000,"leaseId":"lease_7000000000000000000"}'),
      409,
      "lease-exists",
    );
    assertProblem(await send("POST", "/v1/leases", {}, "{}"), 400, "invalid-argument");
    await send("PUT", "/v1/kv/k", { "Lease-ID": lease }, "");
    clock.advance(10_000);
    const shown = await send("GET", `/v1/leases/${lease}?keys`);
    const expected = { leaseId: lease, remainingMs: 20_000, ttlMs: 30_000, owner: "worker-17", revision: 2 };
    assert.deepEqual(shown.json, { ...expected, keys: [{ key: "/k" }] });
    assert.deepEqual((await send("POST", `/v1/leases/${lease}/keepalive`)).json, {
      remainingMs: 30_000,
      revision: 2,
    });
    const page = await send("GET", "/v1/leases?limit=1");
    assert.deepEqual(page.json["items"], [{ leaseId: lease, ttlMs: 30_000, owner: "worker-17" }]);
    const rest = await send("GET", `/v1/leases?after=${String(page.json["next"])}`);
    assert.equal((rest.json["items"] as unknown[]).length, 1);
    assert.deepEqual((await send("DELETE", `/v1/leases/${lease}`)).json, { deleted: 1, revision: 3 });
    for (const [method, path] of [
      ["POST", `/v1/leases/${lease}/keepalive`],
      ["GET", `/v1/leases/${lease}`],
      ["DELETE", `/v1/leases/${lease}`],
    ] as const) {
      assertProblem(await send(method, path), 404, "lease-not-found");
    }
    assertProblem(await send("GET", "/v1/leases/seven"), 400, "invalid-argument");
  });

  it("acts inside the namespace of the header", async () => {
    await send("PUT", "/v1/kv/k", { "Lockstep-Namespace": "team" }, "theirs");
    assertProblem(await send("GET", "/v1/kv/k"), 404, "key-not-found");
    assert.equal((await send("GET", "/v1/kv/k", { "Lockstep-Namespace": "team" })).text, "theirs");
    assertProblem(
      await send("GET", "/v1/kv/k", { "Lockstep-Namespace": "none" }),
      404,
      "namespace-not-found",
    );
    assertProblem(await send("GET", "/v1/kv/k", { "Lockstep-Namespace": "No" }), 400, "invalid-argument");
  });

  it("maps refusals of the cell to their status, with Retry-After", async () => {
    coordinator.failNext({ code: "no-leader", outcome: "not-applied", message: "none", retryAfterMs: 1200 });
    const answer = await send("PUT", "/v1/kv/k", {}, "");
    assertProblem(answer, 503, "no-leader");
    assert.equal(answer.headers["retry-after"], "2");
    assert.equal(answer.json["retryAfterMs"], 1200);
    coordinator.failNext({ code: "deadline-exceeded", outcome: "unknown", message: "late" });
    const late = await send("PUT", "/v1/kv/k", {}, "");
    assertProblem(late, 504, "deadline-exceeded");
    assert.equal(late.json["outcome"], "unknown");
  });

  it("bounds bodies, headers and requests in flight before they cost memory", async () => {
    const big = await send("PUT", "/v1/kv/k", { "content-length": String(2 ** 31) });
    assertProblem(big, 413, "request-too-large");
    assertProblem(await send("PUT", `/v1/kv/${"k".repeat(5000)}`, {}, ""), 413, "request-too-large");
    assert.equal((await send("GET", `/v1/kv/${"k".repeat(30_000)}`)).status, 431);
    await door.close();
    await open({ requestsInFlightMax: 1 });
    coordinator.hold();
    const first = send("PUT", "/v1/kv/k", {}, "");
    while (coordinator.info().revision === 1) await send("GET", "/v1/info");
    const refused = await send("PUT", "/v1/kv/k", {}, "");
    assertProblem(refused, 503, "overloaded");
    assert.equal(refused.headers["retry-after"], "1");
    coordinator.release();
    assert.equal((await first).status, 201);
  });

  it("closes a connection that sends its headers too slowly with 408, and one too many at once", async () => {
    await door.close();
    await open({ headersTimeoutMs: 50, requestTimeoutMs: 100, connectionsMax: 1 });
    const slow = connect(door.address.port, "127.0.0.1");
    await once(slow, "connect");
    slow.write("GET /v1/info HTTP/1.1\r\nHost: a\r\n");
    const extra = connect(door.address.port, "127.0.0.1");
    extra.on("error", () => undefined);
    await once(extra, "close");
    const [chunk] = (await once(slow, "data")) as [Buffer];
    assert.match(chunk.toString(), /^HTTP\/1\.1 408 [^]*problem\+json/);
    slow.destroy();
  });

  it("says what is not there: paths, methods, garbage", async () => {
    assertProblem(await send("GET", "/v2/kv/k"), 404, "route-not-found");
    const method = await send("POST", "/v1/kv/k", {}, "");
    assertProblem(method, 405, "method-not-allowed");
    assert.equal(method.headers["allow"], "HEAD, PUT, GET, DELETE");
    const socket = connect(door.address.port, "127.0.0.1");
    socket.write("nonsense\r\n\r\n");
    const [chunk] = (await once(socket, "data")) as [Buffer];
    assert.match(chunk.toString(), /^HTTP\/1\.1 400 /);
    socket.destroy();
  });

  it("tells who leads", async () => {
    const info = await send("GET", "/v1/info");
    assert.equal(info.json["cellId"], "cell-in-memory");
    assert.equal((info.json["leader"] as { memberId: number }).memberId, 1);
    coordinator.setLeader(undefined);
    assert.equal((await send("GET", "/v1/info")).json["leader"], null);
  });

  it("refuses to listen beyond loopback without TLS", async () => {
    await assert.rejects(startHttpDoor({ coordinator, host: "0.0.0.0", port: 0 }), /without TLS/);
  });
});
