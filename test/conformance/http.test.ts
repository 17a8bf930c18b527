// The HTTP door as its users meet it: the real curl against a live member. One cell for all; each test its own keys.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { TestCell } from "../support/cell.ts";
import { run } from "../support/run.ts";

const noCurl = spawnSync("curl", ["--version"]).error === undefined ? false : "curl is not on this machine";
const SECONDS_MAX = "10";
const REFUSED_AT_BYTES = 1536 * 1024 + 1;

type Json = Readonly<Record<string, unknown>>;

interface Answer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  json(): Json;
}

describe("HTTP with curl", { skip: noCurl, timeout: 20_000 }, () => {
  let cell: TestCell;
  let base = "";
  before(async () => {
    cell = await TestCell.start(1);
    base = cell.member("m1").http;
  });
  after(() => cell.stop());

  /** `curl ARGS… BASE/PATH`; the path goes out as it is. */
  async function curl(path: string, args: readonly string[] = [], input?: Buffer | string): Promise<Answer> {
    const fixed = ["-sS", "-i", "--path-as-is", "--globoff", "--max-time", SECONDS_MAX, "-H", "Expect:"];
    const ran = await run("curl", [...fixed, ...args, base + path], input === undefined ? {} : { input });
    assert.equal(ran.code, 0, ran.err);
    const end = ran.out.indexOf("\r\n\r\n");
    const [statusLine = "", ...lines] = ran.out.slice(0, end).split("\r\n");
    const body = ran.out.slice(end + 4);
    const headers = new Map(
      lines.map((line) => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
      }),
    );
    const json = (): Json => JSON.parse(body) as Json;
    return { status: Number(statusLine.split(" ")[1]), headers, body, json };
  }

  const put = (path: string, value: string, ...headers: string[]): Promise<Answer> =>
    curl(path, ["-X", "PUT", ...headers.flatMap((header) => ["-H", header]), "--data-raw", value]);

  async function grant(ttlMs = 30_000): Promise<string> {
    const granted = await curl("/v1/leases", ["-d", JSON.stringify({ ttlMs, owner: "worker-17" })]);
    assert.equal(granted.status, 201, granted.body);
    return String(granted.json()["leaseId"]);
  }

  function assertProblem(answer: Answer, status: number, code: string): Json {
    assert.equal(answer.status, status, answer.body);
    assert.match(answer.headers.get("content-type") ?? "", /^application\/problem\+json/);
    const problem = answer.json();
    assert.equal(problem["code"], code);
    assert.equal(problem["type"], `urn:lockstep:error:${code}`);
    assert.equal(problem["status"], status);
    assert.equal(problem["outcome"], "not-applied");
    return problem;
  }

  it("takes a lock as the design's example does, and refuses the repetition with the current version", async () => {
    const lease = await grant();
    const take = (): Promise<Answer> =>
      curl("/v1/kv/locks/report-42", [
        ...["-X", "PUT", "-H", "If-Version: 0", "-H", `Lease-ID: ${lease}`, "-d", "worker-17"],
      ]);
    const taken = await take();
    assert.equal(taken.status, 201, taken.body);
    const json = taken.json();
    assert.deepEqual(Object.keys(json), ["created", "version", "revision", "fencingToken"]);
    assert.equal(json["created"], true);
    assert.equal(json["version"], 1);
    assert.ok(Number(json["revision"]) > 0);
    assert.equal(json["fencingToken"], json["revision"]);

    const problem = assertProblem(await take(), 412, "condition-failed");
    assert.equal(problem["version"], 1);
    assert.equal(problem["revision"], json["revision"]);
    assert.equal(problem["fencingToken"], json["fencingToken"]);
    assert.equal(problem["leaseId"], lease);

    const renewed = await put("/v1/kv/locks/report-42", "still me", "If-Version: 1", `Lease-ID: ${lease}`);
    assert.equal(renewed.status, 200);
    assert.equal(renewed.json()["version"], 2);
    assert.equal(renewed.json()["fencingToken"], json["fencingToken"], "one owner, one token");
  });

  it("reads the value and its versions, as JSON too, now and at an older revision", async () => {
    const first = (await put("/v1/kv/read/me", "one")).json();
    const second = (await put("/v1/kv/read/me", "two")).json();
    const raw = await curl("/v1/kv/read/me");
    assert.equal(raw.status, 200);
    assert.equal(raw.body, "two");
    assert.equal(raw.headers.get("etag"), `"${String(second["revision"])}"`);
    assert.equal(raw.headers.get("lockstep-version"), "2");
    assert.equal(raw.headers.get("lockstep-mod-revision"), String(second["revision"]));
    assert.equal(raw.headers.get("lockstep-create-revision"), String(first["revision"]));
    assert.equal(raw.headers.get("lockstep-fencing-token"), String(first["revision"]));
    assert.ok(Number(raw.headers.get("lockstep-revision")) >= Number(second["revision"]));
    assert.deepEqual((await curl("/v1/kv/read/me", ["-H", "Accept: application/json"])).json(), {
      key: "/read/me",
      value: "two",
      version: 2,
      createRevision: first["revision"],
      modRevision: second["revision"],
      leaseId: null,
      fencingToken: first["revision"],
    });

    assert.equal((await curl(`/v1/kv/read/me?revision=${String(first["revision"])}`)).body, "one");
    assert.equal((await curl("/v1/kv/read/me?consistency=serializable")).body, "two");
    const bound = `minRevision=${String(second["revision"])}`;
    assert.equal((await curl(`/v1/kv/read/me?consistency=serializable&${bound}`)).body, "two");
    assertProblem(await curl("/v1/kv/read/me?revision=999999"), 400, "future-revision");
    assertProblem(await curl("/v1/kv/read/nothing"), 404, "key-not-found");
  });

  it("an ETag saves the unchanged answer and guards the next write", async () => {
    const etag = (await put("/v1/kv/etag", "one")).headers.get("etag") ?? "";
    assert.match(etag, /^"\d+"$/);
    const unchanged = await curl("/v1/kv/etag", ["-H", `If-None-Match: ${etag}`]);
    assert.equal(unchanged.status, 304);
    assert.equal(unchanged.body, "");
    assert.equal((await put("/v1/kv/etag", "two", `If-Match: ${etag}`)).status, 200);
    assertProblem(await put("/v1/kv/etag", "three", `If-Match: ${etag}`), 412, "condition-failed");
    assert.equal((await curl("/v1/kv/etag", ["-H", `If-None-Match: ${etag}`])).body, "two");
    assertProblem(await put("/v1/kv/etag", "new", "If-None-Match: *"), 412, "condition-failed");
  });

  it("lists a prefix page by page at one revision", async () => {
    for (const name of ["a", "b", "c"]) await put(`/v1/kv/list/${name}`, name);
    const first = (await curl("/v1/kv/list/?prefix&limit=2")).json();
    await put("/v1/kv/list/d", "later");
    const keys = (page: Json): unknown[] => (page["items"] as Json[]).map((item) => item["key"]);
    assert.deepEqual(keys(first), ["/list/a", "/list/b"]);
    assert.equal(first["more"], true);
    const next = (
      await curl(`/v1/kv/list/?prefix&after=${encodeURIComponent(String(first["next"]))}`)
    ).json();
    assert.deepEqual(keys(next), ["/list/c"], "later writes are not part of it");
    assert.equal(next["revision"], first["revision"]);
    assert.equal((await curl("/v1/kv/list/?prefix&countOnly")).json()["count"], 4);
  });

  it("deletes under a condition only", async () => {
    const { revision } = (await put("/v1/kv/gone", "x")).json() as { readonly revision: number };
    const remove = (condition: number): Promise<Answer> =>
      curl("/v1/kv/gone", ["-X", "DELETE", "-H", `If-Revision: ${String(condition)}`]);
    assertProblem(await remove(revision + 1), 412, "condition-failed");
    const removed = await remove(revision);
    assert.equal(removed.status, 200);
    assert.equal(removed.json()["deleted"], 1);
    assert.ok(Number(removed.json()["revision"]) > revision);
    assert.equal((await curl("/v1/kv/gone")).status, 404);
    assert.equal((await curl("/v1/kv/gone", ["-X", "DELETE"])).json()["deleted"], 0);
  });

  it("keeps keys as they are: nothing is normalised", async () => {
    const keys: readonly (readonly [path: string, key: string])[] = [
      ["/odd/a%2Fb", "/odd/a/b"],
      ["/odd/a/../b", "/odd/a/../b"],
      ["/odd/./c", "/odd/./c"],
      ["/odd//d", "/odd//d"],
      ["/odd/e/", "/odd/e/"],
      ["/odd/a%20b+c", "/odd/a b+c"],
      ["/odd/caf%C3%A9-%E9%94%81", "/odd/café-锁"],
    ];
    for (const [path] of keys) assert.equal((await put(`/v1/kv${path}`, path)).status, 201, path);
    for (const [path, key] of keys) {
      const found = (await curl(`/v1/kv${path}`, ["-H", "Accept: application/json"])).json();
      assert.equal(found["key"], key);
      assert.equal(found["value"], path);
    }
    const listed = (await curl("/v1/kv/odd/?prefix")).json()["items"] as Json[];
    assert.deepEqual(listed.map((item) => item["key"]).sort(), keys.map(([, key]) => key).sort());
  });

  it("a transaction takes one branch in one revision, and says which compare failed", async () => {
    const txn = async (compareVersion: number): Promise<Json> => {
      const body = {
        compares: [{ key: "/txn/owner", version: compareVersion }],
        success: [{ put: { key: "/txn/owner", value: "me" } }, { put: { key: "/txn/log", value: "taken" } }],
        failure: [{ get: { key: "/txn/owner" } }],
      };
      const json = ["-H", "content-type: application/json", "--data-binary", "@-"];
      const answer = await curl("/v1/txn", json, JSON.stringify(body));
      assert.equal(answer.status, 200, answer.body);
      return answer.json();
    };
    const won = await txn(0);
    assert.equal(won["succeeded"], true);
    const puts = (won["results"] as { readonly put: Json }[]).map((result) => result.put);
    assert.deepEqual(
      puts.map((result) => result["revision"]),
      [won["revision"], won["revision"]],
    );
    const lost = await txn(0);
    assert.equal(lost["succeeded"], false);
    const [read] = lost["results"] as { readonly get: { readonly items: Json[] } }[];
    assert.equal(read?.get.items[0]?.["value"], "me");
    const [failed] = lost["failedCompares"] as { readonly index: number; readonly actual: Json }[];
    assert.equal(failed?.index, 0);
    assert.equal(failed.actual["version"], 1);
    assertProblem(await curl("/v1/txn", ["-d", "{"]), 400, "invalid-argument");
  });

  it("a lease is granted, kept alive and revoked, and its keys vanish with it", async () => {
    const lease = await grant(20_000);
    await put("/v1/kv/leased/a", "1", `Lease-ID: ${lease}`);
    await put("/v1/kv/leased/b", "2", `Lease-ID: ${lease}`);
    assert.equal((await curl("/v1/kv/leased/a")).headers.get("lockstep-lease"), lease);
    const renewed = await curl(`/v1/leases/${lease}/keepalive`, ["-X", "POST"]);
    assert.equal(renewed.status, 200, renewed.body);
    const remainingMs = Number(renewed.json()["remainingMs"]);
    assert.ok(remainingMs > 0 && remainingMs <= 20_000, String(remainingMs));
    const shown = (await curl(`/v1/leases/${lease}?keys`)).json();
    assert.equal(shown["owner"], "worker-17");
    assert.equal((shown["keys"] as Json[]).length, 2);
    const revoked = await curl(`/v1/leases/${lease}`, ["-X", "DELETE"]);
    assert.equal(revoked.json()["deleted"], 2);
    assert.equal((await curl("/v1/kv/leased/a")).status, 404);
    assert.equal((await curl("/v1/kv/leased/b")).status, 404);
    assertProblem(await curl(`/v1/leases/${lease}/keepalive`, ["-X", "POST"]), 404, "lease-not-found");
    assertProblem(await put("/v1/kv/leased/c", "3", `Lease-ID: ${lease}`), 404, "lease-not-found");
  });

  it("a repeated Request-ID runs once and gets the first answer", async () => {
    const send = (): Promise<Answer> => put("/v1/kv/once", "x", "If-Version: 0", "Request-ID: once-1");
    const first = await send();
    assert.equal(first.status, 201);
    assert.equal(first.headers.get("lockstep-replayed"), undefined);
    const again = await send();
    assert.equal(again.status, 201);
    assert.equal(again.headers.get("lockstep-replayed"), "true");
    assert.deepEqual(again.json(), first.json());
    assert.equal((await curl("/v1/kv/once")).headers.get("lockstep-version"), "1");
  });

  it("a refusal is a problem with a stable code", async () => {
    assertProblem(await curl("/v1/kv/bad%zz"), 400, "invalid-argument");
    assertProblem(await put("/v1/kv/bad", "x", "If-Version: soon"), 400, "invalid-argument");
    assertProblem(await curl("/v1/nothing-here"), 404, "route-not-found");
    const wrongMethod = await curl("/v1/txn", ["-X", "PUT", "-d", "{}"]);
    assertProblem(wrongMethod, 405, "method-not-allowed");
    assert.match(wrongMethod.headers.get("allow") ?? "", /POST/);
    const upload = ["-X", "PUT", "--data-binary", "@-"];
    const large = Buffer.alloc(REFUSED_AT_BYTES, "x");
    assertProblem(await curl("/v1/kv/large", upload, large), 413, "request-too-large");
    assert.equal((await curl("/v1/kv/large")).status, 404);
    assert.equal((await curl("/v1/kv/large", upload, large.subarray(1))).status, 201, "1.5 MiB is allowed");
  });

  it("a long poll answers with the first change and tells where to go on", async () => {
    const { revision } = (await put("/v1/kv/poll/a", "1")).json() as { readonly revision: number };
    const path = (from: number, wait: string): string =>
      `/v1/watch?prefix=${encodeURIComponent("/poll/")}&wait=${wait}&fromRevision=${String(from)}`;
    const past = (await curl(path(revision, "5s"))).json();
    const [change] = past["changes"] as { readonly revision: number; readonly events: Json[] }[];
    assert.equal(change?.revision, revision);
    assert.equal(change.events[0]?.["key"], "/poll/a");
    assert.equal(change.events[0]["value"], "1");
    const next = Number(past["next"]);
    assert.ok(next > revision);
    const waiting = curl(path(next, "8s"));
    await put("/v1/kv/poll/b", "2");
    const [later] = (await waiting).json()["changes"] as { readonly events: Json[] }[];
    assert.equal(later?.events[0]?.["key"], "/poll/b");
    assert.deepEqual((await curl(path(1_000_000, "50ms"))).json()["changes"], []);
  });

  /** Reads lines of a streaming watch until `enough`; then curl is stopped. */
  async function stream(
    accept: string,
    query: string,
    more: readonly string[],
    enough: (l: string) => boolean,
  ) {
    const args = ["-sS", "-N", "--max-time", SECONDS_MAX, "-H", `Accept: ${accept}`];
    const child = spawn("curl", [...args, ...more, `${base}/v1/watch?${query}`], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const lines: string[] = [];
    for await (const line of createInterface({ input: child.stdout })) {
      lines.push(line);
      if (enough(line)) break;
    }
    child.kill();
    return lines;
  }

  it("server-sent events carry the revision as id, and Last-Event-ID resumes right after it", async () => {
    const a = (await put("/v1/kv/sse", "a")).json()["revision"];
    const b = (await put("/v1/kv/sse", "b")).json()["revision"];
    const query = `key=${encodeURIComponent("/sse")}`;
    const lastLine = (line: string): boolean => line.startsWith("data:") && line.includes('"value":"b"');
    const all = await stream("text/event-stream", `${query}&fromRevision=${String(a)}`, [], lastLine);
    const ids = all.flatMap((line, n) => (line === "event: change" ? [all[n + 1]] : []));
    assert.deepEqual(ids, [`id: ${String(a)}`, `id: ${String(b)}`]);
    const resume = ["-H", `Last-Event-ID: ${String(a)}`];
    const rest = await stream("text/event-stream", query, resume, lastLine);
    assert.equal(rest.filter((line) => line === "event: change").length, 1);
    assert.ok(rest.includes(`id: ${String(b)}`));
  });

  it("NDJSON delivers a change that comes while watching, with its cause, and resumes from its revision", async () => {
    const query = `key=${encodeURIComponent("/nd")}`;
    let written: Promise<Answer> | undefined;
    const live = await stream("application/x-ndjson", query, [], (line) => {
      const kind = (JSON.parse(line) as Json)["kind"];
      if (kind === "created") written = put("/v1/kv/nd", "live");
      return kind === "change";
    });
    const revision = (await written)?.json()["revision"];
    const change = JSON.parse(live.at(-1) ?? "") as { readonly revision: number; readonly events: Json[] };
    assert.equal(change.revision, revision);
    assert.equal(change.events[0]?.["value"], "live");
    assert.equal(change.events[0]["cause"], "client");

    await curl("/v1/kv/nd", ["-X", "DELETE"]);
    const isChange = (line: string): boolean => (JSON.parse(line) as Json)["kind"] === "change";
    const from = `${query}&fromRevision=${String(change.revision + 1)}`;
    const resumed = await stream("application/x-ndjson", from, [], isChange);
    const next = JSON.parse(resumed.at(-1) ?? "") as { readonly revision: number; readonly events: Json[] };
    assert.ok(next.revision > change.revision);
    assert.equal(next.events[0]?.["type"], "delete");
  });
});
