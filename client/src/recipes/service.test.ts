import assert from "node:assert/strict";
import { test } from "node:test";
import type { Service } from "../index.ts";
import { aborted, connectTo, eventually, keysIn, setUp } from "./testing/set-up.ts";

interface Address {
  readonly url: string;
}

function parse(json: unknown): Address {
  if (typeof json !== "object" || json === null || !("url" in json) || typeof json.url !== "string") {
    throw new TypeError("an endpoint has a url");
  }
  return { url: json.url };
}

const fail = (error: unknown): void => assert.fail(String(error));

function urls(set: { readonly current: readonly { readonly value: Address }[] }): string[] {
  return set.current.map(({ value }) => value.url);
}

test("service: endpoints come with their processes, change, and go by deregistration and with the session", async () => {
  const { member, client } = await setUp();
  const other = await connectTo(member);
  const one = await client.session({ ttlMs: 10_000, owner: "one" });
  const two = await client.session({ ttlMs: 10_000 });
  const api: Service<Address> = client.service("api");
  const first = await api.register({ session: one, id: "a", value: { url: "http://a" } });
  await using set = await other.service<Address>("api").endpoints({ parse, onError: fail });
  assert.deepEqual(urls(set), ["http://a"]);
  assert.equal(set.current[0]?.owner, "one");
  assert.equal(set.current[0].token, first.token);
  const changes = set.changes();
  const second = await api.register({ session: two, value: { url: "http://b" } });
  assert.equal(((await changes.next()).value ?? []).length, 2);
  await first.update({ url: "http://a2" });
  await eventually("it changes", () => urls(set).includes("http://a2"));
  await first.deregister({ drainMs: 5 });
  await eventually("it goes", () => set.current.length === 1);
  member.store.expire(two.leaseId);
  await eventually("the set is empty", () => set.current.length === 0);
  await aborted(second.held);
  await assert.rejects(second.update({ url: "late" }), { code: "not-held" });
  assert.deepEqual(keysIn(member), []);
});

test("service: deregistration takes the endpoint out before it resolves, and then waits", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const registration = await client.service<Address>("api").register({ session, value: { url: "x" } });
  const started = performance.now();
  const leaving = registration.deregister({ drainMs: 60 });
  await eventually("it is out", () => keysIn(member).length === 0);
  await leaving;
  assert.ok(performance.now() - started >= 59);
});

test("service: H49: the set survives an interruption with what was known last", async () => {
  const { member, client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  await client.service<Address>("api").register({ session, value: { url: "http://a" } });
  await using set = await client.service<Address>("api").endpoints({ parse, onError: fail });
  member.greets = false;
  member.breakStreams();
  await eventually("it knows", () => set.stale);
  assert.deepEqual(urls(set), ["http://a"]);
  member.greets = true;
  await eventually("it is back", () => !set.stale);
  assert.deepEqual(urls(set), ["http://a"]);
});

test("service: an id is one endpoint's; a failed registration leaves nothing", async () => {
  const { member, client } = await setUp({ identity: "none" });
  const session = await client.session({ ttlMs: 10_000, owner: "first" });
  const api = client.service<Address>("api");
  await using first = await api.register({ session, id: "a", value: { url: "x" } });
  await assert.rejects(
    api.register({ session, id: "a", value: { url: "y" } }),
    (error: Error & { code?: string }) => {
      assert.equal(error.code, "already-registered");
      assert.match(error.message, /of "first"/);
      return true;
    },
  );
  member.judge = (_, { operation }) => {
    if (operation?.$case !== "txn") return { kind: "execute" };
    member.judge = () => ({ kind: "execute" });
    return { kind: "execute-and-break" };
  };
  await assert.rejects(api.register({ session, id: "b", value: { url: "y" } }), { outcome: "unknown" });
  assert.deepEqual(keysIn(member), [first.key]);
});

test("service: an endpoint that cannot be read is left out, and told", async () => {
  const { client } = await setUp();
  const session = await client.session({ ttlMs: 10_000 });
  const errors: unknown[] = [];
  await client.put("/services/api/~/odd", "not JSON");
  await client.service<Address>("api").register({ session, id: "good", value: { url: "http://a" } });
  await using set = await client
    .service<Address>("api")
    .endpoints({ parse, onError: (error) => errors.push(error) });
  assert.deepEqual(urls(set), ["http://a"]);
  assert.equal(errors.length, 1);
});

test("service: B13: an endpoint that is to stay comes back after each lost session, as it was changed last", async () => {
  const { member, client } = await setUp();
  const other = await connectTo(member);
  const errors: unknown[] = [];
  const standing = await client.service<Address>("api").keepRegistered({
    session: { ttlMs: 10_000 },
    id: "a",
    value: { url: "http://a" },
    onError: (error) => errors.push(error),
  });
  await using set = await other.service<Address>("api").endpoints({ parse, onError: fail });
  await standing.update({ url: "http://b" });
  const changes = set.changes();
  for (let loss = 1; loss <= 3; loss++) {
    const [first] = set.current;
    assert.ok(first !== undefined);
    member.store.expire(first.leaseId);
    await eventually("it is back", () => (set.current[0]?.token ?? 0) > first.token);
    assert.deepEqual(urls(set), ["http://b"]);
    assert.equal(errors.length, loss);
    await eventually("it knows", () => standing.registered);
  }
  assert.equal((await changes.next()).done, false);
  await standing.deregister();
  assert.equal(standing.registered, false);
  await eventually("it is out", () => set.current.length === 0);
  assert.equal(member.store.leases.size, 0);
  assert.deepEqual(keysIn(member), []);
});

test("service: B13: an endpoint that cannot come back yet is tried again, and its end is the end", async () => {
  const { member, client } = await setUp();
  const errors: unknown[] = [];
  const standing = await client.service<Address>("api").keepRegistered({
    session: { ttlMs: 10_000 },
    value: { url: "http://a" },
    onError: (error) => errors.push(error),
  });
  let refusals = 0;
  member.judge = (_, { operation }) => {
    if (operation?.$case !== "leaseGrant" || refusals >= 2) return { kind: "execute" };
    refusals += 1;
    return { kind: "fail", failure: { code: "quota-exceeded" } };
  };
  member.store.expire([...member.store.leases.keys()][0] ?? "");
  await eventually("it is back", () => keysIn(member).length === 1 && standing.registered);
  assert.equal(errors.length, 3);
  await standing[Symbol.asyncDispose]();
  assert.deepEqual(keysIn(member), []);
});
