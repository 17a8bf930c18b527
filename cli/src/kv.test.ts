import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { FakeMember } from "../../client/src/testing/fake-cell.ts";
import { CliError, EXIT } from "./exit-codes.ts";
import { record, type Recorded, type RunOptions } from "./testing/recorder.ts";
import { parseTxn } from "./txn-json.ts";

let member: FakeMember;
before(async () => {
  member = await FakeMember.start();
});
after(() => member.stop());

function lockstep(args: readonly string[], options: RunOptions = {}): Promise<Recorded> {
  return record(args, { ...options, env: { LOCKSTEP_ENDPOINTS: member.address } });
}

test("put and get: a table for people, JSON for programs, bytes for pipes", async () => {
  assert.equal((await lockstep(["put", "kv/a", "hello"])).code, EXIT.ok);
  const table = await lockstep(["get", "kv/a"]);
  assert.match(table.out, /^KEY +VALUE +VERSION +CREATED +MODIFIED +LEASE\nkv\/a +hello +1 +\d+ +\d+ +-\n$/);
  const json = JSON.parse((await lockstep(["get", "kv/a", "-o", "json"])).out) as {
    items: { value: string }[];
  };
  assert.equal(json.items[0]?.value, "hello");
  assert.equal((await lockstep(["get", "kv/a", "--raw"])).out, "hello");
  assert.equal((await lockstep(["put", "kv/piped"], { input: "from a pipe\n" })).code, EXIT.ok);
  assert.equal((await lockstep(["get", "kv/piped", "--raw"])).out, "from a pipe\n");
});

test("a missing key has an exit code of its own, an empty range has not", async () => {
  const missing = await lockstep(["get", "nope"]);
  assert.equal(missing.code, EXIT.notFound);
  assert.match(missing.err, /There is no key "nope"/);
  assert.equal((await lockstep(["get", "nope", "--prefix"])).code, EXIT.ok);
  assert.equal((await lockstep(["del", "nope"])).code, EXIT.notFound);
});

test("ranges: prefix, from and range-end, of which only one makes sense", async () => {
  for (const key of ["r/1", "r/2", "s/1"]) await lockstep(["put", key, key]);
  const keys = async (args: string[]): Promise<string[]> => {
    const json = await lockstep(["get", ...args, "-o", "json"]);
    const { items } = JSON.parse(json.out) as { items: { key: string }[] };
    return items.map(({ key }) => key);
  };
  assert.deepEqual(await keys(["r/", "--prefix"]), ["r/1", "r/2"]);
  assert.deepEqual(await keys(["r/2", "--range-end", "s/1"]), ["r/2"]);
  assert.deepEqual(await keys(["r/2", "--from"]), ["r/2", "s/1"]);
  assert.equal((await lockstep(["get", "--count-only", "--prefix", "r/"])).out, "2\n");
  const both = await lockstep(["get", "r/", "--prefix", "--from"]);
  assert.equal(both.code, EXIT.usage);
});

test("a transaction takes the JSON of the HTTP door, and its exit code tells the branch", async () => {
  const input = JSON.stringify({
    compares: [{ key: "t/a", version: 0 }],
    success: [{ put: { key: "t/a", value: "1" } }],
    failure: [{ get: { key: "t/a" } }],
  });
  const first = await lockstep(["txn", "-o", "json"], { input });
  assert.equal(first.code, EXIT.ok);
  assert.equal((JSON.parse(first.out) as { succeeded: boolean }).succeeded, true);
  const second = await lockstep(["txn"], { input });
  assert.equal(second.code, EXIT.compareFailed);
  assert.match(second.out, /^compares failed/);
});

test("a wrong transaction is refused with the place of what is wrong, before anything is sent", async () => {
  const refused = (json: unknown): string => {
    try {
      parseTxn(JSON.stringify(json));
    } catch (error) {
      assert.ok(error instanceof CliError);
      assert.equal(error.exitCode, EXIT.usage);
      return error.message;
    }
    return assert.fail("it was taken");
  };
  assert.match(refused({ compare: [] }), /unknown field "compare"/);
  assert.match(refused({ compares: [{ key: "a" }] }), /compares\[0\] needs exactly one/);
  assert.match(refused({ compares: [{ key: "a", version: 1, operator: "~" }] }), /compares\[0\]\.operator/);
  assert.match(
    refused({ success: [{ put: { key: "a", value: 5 } }] }),
    /success\[0\]\.put\.value is not a string/,
  );
  assert.match(refused({ failure: [{ steal: {} }] }), /unknown field "steal"/);
  assert.match(refused({ success: [{ get: { key: "a", limit: -1 } }] }), /success\[0\]\.get\.limit/);
  const sent = member.requests.length;
  const result = await lockstep(["txn"], { input: "{" });
  assert.equal(result.code, EXIT.usage);
  assert.match(result.err, /not JSON/);
  assert.equal(member.requests.length, sent);
});

test("values that are not UTF-8 survive JSON, both ways", async () => {
  const bytes = Buffer.from([0, 255, 254]);
  const valueBase64 = bytes.toString("base64");
  await lockstep(["txn"], { input: JSON.stringify({ success: [{ put: { key: "bin", valueBase64 } }] }) });
  const json = await lockstep(["get", "bin", "-o", "json"]);
  const { items } = JSON.parse(json.out) as { items: { valueBase64: unknown }[] };
  assert.deepEqual(items[0]?.valueBase64, valueBase64);
  assert.match((await lockstep(["get", "bin"])).out, /<3 bytes>/);
});

test("watch prints changes and stops after --count, or by a signal with exit code 0", async () => {
  await lockstep(["put", "w/a", "1"]);
  const revision = member.store.revision;
  await lockstep(["del", "w/a"]);
  const counted = await lockstep(["watch", "w/", "--prefix", "--revision", String(revision), "--count", "2"]);
  assert.equal(counted.code, EXIT.ok);
  assert.match(counted.out, /put +w\/a = 1\n +\d+ +delete +w\/a\n$/);
  let stop: (signal: NodeJS.Signals) => void = () => undefined;
  const endless = lockstep(["watch", "w/", "--prefix"], { onStart: (stopper) => (stop = stopper) });
  while (member.watchCount() === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  stop("SIGINT");
  assert.equal((await endless).code, EXIT.ok);
});

test("a compacted start of a watch has an exit code of its own", async () => {
  for (let i = 0; i < 3; i++) await lockstep(["put", "c", String(i)]);
  member.store.compactRevision = member.store.revision - 1;
  const result = await lockstep(["watch", "c", "--revision", "2"]);
  assert.equal(result.code, EXIT.compacted);
});

test("leases: grant, show, list, renew once, revoke, and what is not there", async () => {
  const granted = await lockstep(["lease", "grant", "15s", "--owner", "tester"]);
  const id = granted.out.trim();
  assert.match(id, /^lease_\d+$/);
  await lockstep(["put", "l/a", "1", "--lease", id]);
  assert.match((await lockstep(["lease", "show", id])).out, /tester +l\/a/);
  assert.match((await lockstep(["lease", "list"])).out, new RegExp(`${id} +15 s +tester`));
  assert.match((await lockstep(["lease", "keepalive", id, "--once"])).out, /15 s left/);
  assert.equal((await lockstep(["lease", "revoke", id])).code, EXIT.ok);
  assert.equal((await lockstep(["get", "l/a"])).code, EXIT.notFound);
  assert.equal((await lockstep(["lease", "revoke", id])).code, EXIT.notFound);
  assert.equal((await lockstep(["lease", "show", id])).code, EXIT.notFound);
  assert.equal((await lockstep(["lease", "keepalive", id])).code, EXIT.notFound);
  assert.equal((await lockstep(["lease", "revoke", "x"])).code, EXIT.usage);
});

test("nobody at the endpoints: exit code 4, and what to do", async () => {
  const gone = await FakeMember.start();
  gone.stop();
  const result = await record(["get", "a", "--endpoints", gone.address, "--call-timeout", "300ms"]);
  assert.equal(result.code, EXIT.unavailable);
  assert.match(result.err, /--endpoints/);
});
