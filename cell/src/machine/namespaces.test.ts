import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { NO_IDENTITY } from "@lockstep/gateway/coordinator";
import type { WriteOperation } from "@lockstep/gateway/coordinator";
import { KEYSPACES } from "../store/types.ts";
import { DEFAULT_SETTINGS } from "./index.ts";
import { namespaceKey } from "./keys.ts";
import { bytes, client, get, lease, Member, put } from "./testing/harness.ts";
import type { Command, CommandOutcome } from "./types.ts";

const create = (name: string, uid = "u"): Command => ({ kind: "create-namespace", name, uid });
const drop = (name: string, uid = "u"): Command => ({ kind: "delete-namespace", name, uid });
const within = (namespaceId: number, operation: WriteOperation, identity = NO_IDENTITY): Command => ({
  ...{ kind: "client", namespaceId, epoch: 0, identity, operation },
});

function outcomeOf(member: Member, command: Command): string {
  const outcome: CommandOutcome = member.entry([command]).entries[0]!.outcomes[0]!;
  return outcome.ok ? "ok" : outcome.failure.code;
}

function rowsOf(member: Member, namespaceId: number): number {
  const range = { from: namespaceKey(namespaceId), to: namespaceKey(namespaceId + 1), limit: 10_000 };
  return KEYSPACES.reduce((sum, keyspace) => sum + member.store.scan(keyspace, range).length, 0);
}

function fill(member: Member, namespaceId: number, keys: number): void {
  const operations: WriteOperation[] = [
    { kind: "register-client" },
    { kind: "lease-grant", leaseId: lease(7), ttlMs: 99 },
  ];
  for (let i = 0; i < keys; i += 1) operations.push(put(`k${String(i)}`, "v", { leaseId: lease(7) }));
  member.entry(operations.map((operation) => within(namespaceId, operation)));
}

describe("namespaces", () => {
  it("a name is that of one uid: the same again succeeds, another is refused", () => {
    const member = new Member();
    assert.equal(outcomeOf(member, create("team.prod")), "ok");
    assert.equal(outcomeOf(member, create("team.prod")), "ok");
    assert.equal(outcomeOf(member, create("team.prod", "other")), "namespace-exists");
    assert.equal(outcomeOf(member, drop("team.prod", "other")), "namespace-exists");
    assert.deepEqual(
      member.machine.namespaces().map(({ id, name, uid, epoch }) => ({ id, name, uid, epoch })),
      [
        { id: 1, name: "default", uid: "", epoch: 1 },
        { id: 2, name: "team.prod", uid: "u", epoch: 1 },
      ],
    );
  });

  it("`default` is there from the beginning, belongs to nobody and cannot be deleted", () => {
    const member = new Member();
    assert.equal(outcomeOf(member, create("default")), "namespace-exists");
    assert.equal(outcomeOf(member, drop("default", "")), "invalid-argument");
    assert.equal(outcomeOf(member, drop("default")), "invalid-argument");
  });

  it("names are like those of DNS, with one dot at most, and have an owner", () => {
    const member = new Member();
    const label = "a".repeat(63);
    for (const name of ["a", "a-b", "0.9", `${label}.${label}`]) {
      assert.equal(outcomeOf(member, create(name)), "ok", name);
    }
    for (const name of ["", "A", "a_b", "-a", "a-", "a.b.c", ".a", "a.", `${label}a`, "a b", "\u00e4"]) {
      assert.equal(outcomeOf(member, create(name)), "invalid-argument", name);
    }
    for (const uid of ["", "a b", "x".repeat(65)]) {
      assert.equal(outcomeOf(member, create("fresh", uid)), "invalid-argument", uid);
    }
  });

  it("at most a number of them, and one that is deleted makes room", () => {
    const member = new Member({ settings: { ...DEFAULT_SETTINGS, namespacesMax: 3 } });
    assert.equal(outcomeOf(member, create("a")), "ok");
    assert.equal(outcomeOf(member, create("b")), "ok");
    assert.equal(outcomeOf(member, create("c")), "too-many-namespaces");
    assert.equal(outcomeOf(member, create("a")), "ok");
    assert.equal(outcomeOf(member, drop("a")), "ok");
    assert.equal(outcomeOf(member, create("c")), "ok");
  });

  it("two do not see each other's keys, leases, clients and request ids", () => {
    const member = new Member();
    member.entry([create("team")]);
    fill(member, 1, 2);
    assert.deepEqual(member.range(get("k0", "l"), 2).kvs, []);
    assert.equal(member.machine.lease(2, lease(7), member.store), undefined);
    assert.equal(outcomeOf(member, within(2, put("a", "v", { leaseId: lease(7) }))), "lease-not-found");
    assert.equal(outcomeOf(member, within(2, put("a"), client(1, 1))), "request-expired");
    const token = { kind: "token", token: "once" } as const;
    const first = member.entry([within(1, put("t"), token), within(2, put("t"), token)]);
    assert.deepEqual(
      first.entries[0]!.outcomes.map((outcome) => outcome.ok && outcome.replayed),
      [false, false],
    );
  });

  it("from the deletion on nobody finds anything of it; one of the same name begins empty under a new id", () => {
    const member = new Member();
    member.entry([create("team")]);
    fill(member, 2, 3);
    const before = member.machine.revision;
    const held = member.machine.historyBytes;
    assert.ok(held > 0);
    const applied = member.entry([within(2, put("last")), drop("team"), within(2, put("after"))]);
    assert.deepEqual(
      applied.entries[0]!.outcomes.map((outcome) => (outcome.ok ? "ok" : outcome.failure.code)),
      ["ok", "ok", "namespace-not-found"],
    );
    assert.equal(member.machine.revision, before + 1, "the deletion itself has no revision");
    assert.equal(member.machine.historyBytes, 0);
    assert.equal(member.machine.namespaceByName("team"), undefined);
    assert.equal(member.machine.stateAt(2, bytes("k0"), before, member.store), undefined);
    const history = { namespaceId: 2, from: 1 as never, to: before, limit: 10 };
    assert.deepEqual(member.machine.history(history, member.store), { events: [], next: before + 1 });
    const expire: Command = { kind: "expire", namespaceId: 2, leaderTerm: member.term, leaseIds: [lease(7)] };
    assert.deepEqual(member.entry([expire]).leaseChanges, []);
    assert.equal(outcomeOf(member, drop("team")), "namespace-not-found");
    assert.equal(outcomeOf(member, create("team")), "ok");
    assert.equal(member.machine.namespaceByName("team")?.id, 3);
    assert.deepEqual(member.range(get("a", "z"), 3).kvs, []);
  });

  it("its rows go in slices; a restart midway goes on, and the digest knows nothing of it", () => {
    const slow = new Member();
    const fast = new Member();
    for (const member of [slow, fast]) {
      member.entry([create("team"), create("other")]);
      fill(member, 2, 20);
      fill(member, 3, 1);
      member.entry([drop("team")]);
    }
    fast.compactPhysically(1000);
    assert.equal(rowsOf(fast, 2), 0);
    const whole = rowsOf(slow, 2);
    const slice = slow.machine.compactSlice(slow.store, 10);
    assert.equal(slice.mutations.length, 10);
    slow.write(slice.mutations);
    assert.equal(rowsOf(slow, 2), whole - 10);
    slow.restart();
    slow.compactPhysically(7);
    assert.equal(rowsOf(slow, 2), 0);
    assert.equal(rowsOf(slow, 3), rowsOf(fast, 3));
    assert.ok(rowsOf(slow, 3) > 0);
    assert.deepEqual(slow.machine.digest, fast.machine.digest);
  });

  it("an id is never given again, also after a restart", () => {
    const member = new Member();
    member.entry([create("a"), drop("a")]);
    member.compactPhysically();
    member.restart();
    member.entry([create("b")]);
    assert.equal(member.machine.namespaceByName("b")?.id, 3);
  });
});
