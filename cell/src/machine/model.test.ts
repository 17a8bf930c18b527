import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { LIMITS, NO_IDENTITY } from "@lockstep/gateway/coordinator";
import type { LeaseId, RequestIdentity, WriteOperation } from "@lockstep/gateway/coordinator";
import type { Term } from "../raft/types.ts";
import { KEYSPACES } from "../store/types.ts";
import { getUint32 } from "./codec/primitives.ts";
import { DEFAULT_SETTINGS } from "./index.ts";
import { namespaceKey } from "./keys.ts";
import { bytesOf, KEYS, leaseId, operation, past } from "./testing/arbitraries.ts";
import { bytes, client, Member, revision, string } from "./testing/harness.ts";
import { CellModel } from "./testing/cell-model.ts";
import type { Model } from "./testing/model.ts";
import type { Command, CommandOutcome, MachineEntry, RevisionEvents } from "./types.ts";

const settings = {
  ...DEFAULT_SETTINGS,
  limits: { ...LIMITS, keysPerDeleteMax: 4, keysPerLeaseMax: 3, leaseTtlMsMin: 50 },
  namespacesMax: 3,
};

/** Mostly the first: the others may not exist, not yet or no longer. */
const namespaceIds = fc.constantFrom(1, 1, 1, 1, 2, 2, 3, 4);
const naming = { name: fc.constantFrom("default", "a", "b", "c"), uid: fc.constantFrom("u", "u", "v") };
const inNamespace = (command: Command, namespaceId: number): Command =>
  "namespaceId" in command ? { ...command, namespaceId } : command;
/** A client's operation follows from its sequence, so that a retry is one. */
interface Drawn {
  readonly command: Command;
  readonly retryOf?: { readonly clientId: number; readonly sequence: number };
}
const asClient = (operation: WriteOperation, identity: RequestIdentity): Command => ({
  kind: "client",
  namespaceId: 1,
  epoch: 0,
  identity,
  operation,
});
const drawn: fc.Arbitrary<Drawn> = fc.oneof(
  { weight: 6, arbitrary: operation.map((o) => ({ command: asClient(o, NO_IDENTITY) })) },
  {
    weight: 6,
    arbitrary: fc
      .record({
        o: operation,
        clientId: fc.integer({ min: 1, max: 3 }),
        sequence: fc.nat({ max: 9 }),
        low: fc.nat({ max: 4 }),
      })
      .map(({ o, clientId, sequence, low }) => ({
        command: asClient(o, client(clientId, sequence, Math.max(0, sequence - low))),
        retryOf: { clientId, sequence },
      })),
  },
  {
    weight: 2,
    arbitrary: fc
      .record({
        kind: fc.constant("expire" as const),
        namespaceId: fc.constant(1),
        leaderTerm: fc.constantFrom(1, 1, 1, 2) as unknown as fc.Arbitrary<Term>,
        leaseIds: fc.array(leaseId, { maxLength: 4 }),
      })
      .map((command) => ({ command })),
  },
  {
    weight: 1,
    arbitrary: fc
      .record({ kind: fc.constant("retain" as const), namespaceId: fc.constant(1), compactRevision: past })
      .map((command) => ({ command })),
  },
  {
    weight: 3,
    arbitrary: fc
      .record({
        kind: fc.constantFrom("create-namespace" as const, "create-namespace", "delete-namespace"),
        ...naming,
      })
      .map((command): Drawn => ({ command })),
  },
);

const placed = fc
  .tuple(drawn, namespaceIds)
  .map(([{ command, ...rest }, id]): Drawn => ({ command: inNamespace(command, id), ...rest }));
const history = fc.array(fc.array(placed, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 14 });
/** What happens after each entry of the second member: apply so far as a batch, compact a little, restart. */
const disturbances = fc.infiniteStream(
  fc.constantFrom("none", "none", "apply", "apply", "compact", "restart"),
);

/** None, one that turns over all the time, one that holds everything. */
const cacheBytes = fc.constantFrom(0, 3000, 1_000_000);

function settled(entries: readonly (readonly Drawn[])[]): Command[][] {
  const first = new Map<string, WriteOperation>();
  return entries.map((entry) =>
    entry.map(({ command, retryOf }) => {
      if (retryOf === undefined || command.kind !== "client") return command;
      const name = `${command.namespaceId}/${retryOf.clientId}/${retryOf.sequence}`;
      const operation = first.get(name) ?? command.operation;
      first.set(name, operation);
      return { ...command, operation };
    }),
  );
}

/** Refusals by code: the model has no messages. A replayed answer may lack what it read, when that is large. */
function comparable(outcome: CommandOutcome | { readonly ok: false; readonly code: string }): unknown {
  if (!outcome.ok) return { ok: false, code: "code" in outcome ? outcome.code : outcome.failure.code };
  const { result } = outcome;
  if (outcome.replayed && result?.kind === "delete")
    return { ...outcome, result: { ...result, previous: [] } };
  if (!outcome.replayed || result?.kind !== "txn") return outcome;
  const responses = result.responses.map((response) => {
    if (response.kind === "range") return { ...response, kvs: [], more: true };
    if (response.kind === "delete") return { ...response, previous: [] };
    return { ...response, previous: undefined };
  });
  return {
    ...outcome,
    result: { ...result, responses, failures: result.failures.map(({ index }) => index) },
  };
}

function stored(member: Member): unknown {
  return KEYSPACES.map((keyspace) =>
    member.store
      .scan(keyspace, { from: new Uint8Array([0]), limit: 100_000 })
      .map(({ key: row, value: content }) => [string(row), string(content)]),
  );
}

function eachNamespace(cell: CellModel, look: (id: number, model: Model) => void): void {
  for (const [id, { model }] of cell.namespaces) look(id, model);
}

function assertLikeModel(member: Member, cell: CellModel): void {
  const told = member.machine.namespaces().map(({ id, name, uid }) => [id, name, uid]);
  assert.deepEqual(
    told,
    [...cell.namespaces].map(([id, { name, uid }]) => [id, name, uid]),
  );
  assert.equal(member.machine.revision, cell.counters.revision);
  eachNamespace(cell, (id, model) => assertNamespace(member, id, model));
}

function assertNamespace(member: Member, id: number, model: Model): void {
  for (let at = Math.max(1, model.compactRevision); at <= model.revision; at++) {
    const all = { kind: "range", range: { key: bytes(""), rangeEnd: bytes("") } } as const;
    const asked = { ...all, revision: revision(at) };
    assert.deepEqual(member.range(asked, id), model.range(asked), `state at ${at}`);
    for (const name of KEYS) {
      const kv = member.machine.stateAt(id, bytesOf(name), revision(at), member.store);
      assert.deepEqual(kv, model.stateAt(at).get(name), `${name} at ${at}`);
    }
  }
  const info = member.machine.namespace(id)!;
  assert.equal(info.keys, model.stateAt(Infinity).size);
  assert.equal(info.compactRevision, model.compactRevision);
  const all = member.machine.scanLeases(undefined, 100, member.store);
  const leases = all.filter(({ namespaceId }) => namespaceId === id);
  assert.deepEqual(new Map(leases.map((l) => [l.leaseId, l.ttlMs])), new Map([...model.leases].sort()));
  for (const held of model.leases.keys()) {
    assert.deepEqual(member.machine.leaseKeys(id, held, member.store).map(string), model.keysOf(held));
  }
}

/** Retained history says what the events said when they happened. */
function assertHistory(member: Member, id: number, model: Model): void {
  const from = Math.max(1, model.compactRevision);
  const events: RevisionEvents[] = [];
  for (let next = from; next <= model.revision;) {
    const page = member.machine.history(
      { namespaceId: id, from: revision(next), to: revision(model.revision), limit: 3 },
      member.store,
    );
    events.push(...page.events);
    assert.ok(page.next > next);
    next = page.next;
  }
  const expected = model.changes.filter((c) => c.revision > from).map((c) => [c.revision, c.key, c.cause]);
  const told = (of: readonly RevisionEvents[]): unknown =>
    of.flatMap((r) =>
      r.revision > from ? r.events.map((e) => [r.revision, string(e.kv.key), e.cause]) : [],
    );
  assert.deepEqual(told(events), expected);
  const own = member.events.filter(({ namespaceId }) => namespaceId === id);
  assert.deepEqual(told(own), expected);
  const retained = own.filter((r) => r.revision > from);
  assert.deepEqual(
    events.filter((r) => r.revision > from),
    retained,
  );
}

function assertByteCounter(member: Member, id: number): void {
  const rows = member.store.scan("history", {
    from: namespaceKey(id),
    to: namespaceKey(id + 1),
    limit: 100_000,
  });
  const held = rows.reduce((sum, row) => sum + row.key.length + row.value.length, 0);
  assert.equal(member.machine.namespace(id)!.historyBytes, held);
}

/** What was deleted has left nothing behind, in no keyspace. */
function assertNothingLeft(member: Member, cell: CellModel): void {
  for (const keyspace of KEYSPACES) {
    const rows = member.store.scan(keyspace, { from: namespaceKey(1), limit: 100_000, keysOnly: true });
    for (const { key } of rows) assert.ok(cell.namespaces.has(getUint32(key, 0)), `a row in ${keyspace}`);
  }
}

describe("the machine against its dumb twin", () => {
  it("any commands in any batching, with restarts and compaction, give the same results, digests and rows", () => {
    fc.assert(
      fc.property(history, disturbances, cacheBytes, (entries, stream, cacheBytesMax) => {
        const model = new CellModel(settings);
        const plain = new Member({ settings });
        const disturbed = new Member({ settings, cacheBytesMax });
        const register: Command = asClient({ kind: "register-client" }, NO_IDENTITY);
        const expected: unknown[][] = [];
        let waiting: MachineEntry[] = [];
        const outcomes: unknown[][] = [];
        const flush = (): void => {
          const applied = disturbed.apply(waiting);
          outcomes.push(...applied.entries.map((e) => e.outcomes.map(comparable)));
          waiting = [];
        };
        for (const commands of [[register, register], ...settled(entries)]) {
          expected.push(commands.map((command) => comparable(model.apply(command, 1))));
          const entry = plain.encode(commands);
          const applied = plain.apply([entry]);
          assert.deepEqual(applied.entries[0]!.outcomes.map(comparable), expected.at(-1));
          waiting.push(entry);
          const disturbance = stream.next().value as string;
          if (disturbance === "none") continue;
          flush();
          if (disturbance === "restart") disturbed.restart();
          if (disturbance === "compact")
            disturbed.write(disturbed.machine.compactSlice(disturbed.store, 3).mutations);
        }
        flush();
        assert.deepEqual(outcomes, expected);
        assert.deepEqual(disturbed.machine.digest, plain.machine.digest);
        for (const member of [plain, disturbed]) {
          assertLikeModel(member, model);
          member.compactPhysically();
          assertLikeModel(member, model);
          eachNamespace(model, (id, namespace) => {
            assertHistory(member, id, namespace);
            assertByteCounter(member, id);
          });
          assertNothingLeft(member, model);
        }
        assert.deepEqual(stored(disturbed), stored(plain));
      }),
      { numRuns: 150 },
    );
  });
});

describe("what retries depend on", () => {
  const small = {
    ...settings,
    outcomesPerClientMax: 3,
    tokensMax: 3,
    tokenAgeMsMax: 60,
    clientIdleMsMax: 80,
  };
  const identity: fc.Arbitrary<RequestIdentity> = fc.oneof(
    fc
      .tuple(fc.integer({ min: 1, max: 5 }), fc.nat({ max: 12 }), fc.nat({ max: 12 }))
      .map(([id, sequence, low]) => client(id, sequence, low)),
    fc.constantFrom("1", "2", "3", "4", "5").map((token) => ({ kind: "token" as const, token })),
    fc.constant(NO_IDENTITY),
  );
  const checkpoint = fc.nat({ max: 9 }).map((remainingMs): Command => {
    const leases = [{ leaseId: "1" as LeaseId, remainingMs }];
    return { kind: "checkpoint", namespaceId: 1, leaderTerm: 1 as Term, leases };
  });
  const commands = fc.array(
    fc.oneof(
      { weight: 9, arbitrary: fc.tuple(operation, identity).map(([o, i]) => asClient(o, i)) },
      { weight: 1, arbitrary: checkpoint },
    ),
    { minLength: 1, maxLength: 5 },
  );
  const entries = fc.array(fc.record({ commands, passesMs: fc.nat({ max: 40 }) }), {
    minLength: 1,
    maxLength: 25,
  });

  it("eviction, age and silence give the same outcomes, digests and rows in any batching and over restarts", () => {
    fc.assert(
      fc.property(entries, disturbances, (drawnEntries, stream) => {
        const plain = new Member({ settings: small });
        const disturbed = new Member({ settings: small, cacheBytesMax: 0 });
        const expected: unknown[] = [];
        const outcomes: unknown[] = [];
        let waiting: MachineEntry[] = [];
        const flush = (): void => {
          outcomes.push(...disturbed.apply(waiting).entries);
          waiting = [];
        };
        for (const { commands: drawnCommands, passesMs } of drawnEntries) {
          plain.timeMs += passesMs;
          const entry = plain.encode(drawnCommands);
          expected.push(...plain.apply([entry]).entries);
          waiting.push(entry);
          const disturbance = stream.next().value as string;
          if (disturbance !== "none") flush();
          if (disturbance === "restart") disturbed.restart();
        }
        flush();
        assert.deepEqual(outcomes, expected);
        assert.deepEqual(disturbed.machine.digest, plain.machine.digest);
        assert.deepEqual(stored(disturbed), stored(plain));
      }),
      { numRuns: 200 },
    );
  });
});
