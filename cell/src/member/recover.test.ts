import assert from "node:assert/strict";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { randomUUID } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { NO_IDENTITY } from "@lockstep/gateway/coordinator";
import type { LeaseId, WriteOperation } from "@lockstep/gateway/coordinator";
import { ADMISSION_DEFAULTS } from "../admission/admission.ts";
import { createCommandEncoder } from "../machine/index.ts";
import { historyKey } from "../machine/keys.ts";
import { encodePlan } from "../machine/membership.ts";
import type { Command } from "../machine/types.ts";
import { encodeConfigurationChange } from "../raft/index.ts";
import type { Entry, LogIndex, MemberId, Term } from "../raft/types.ts";
import { Cluster } from "../replica/testing/cluster.ts";
import { openGenerations, openRocksStore } from "../store/index.ts";
import type { Generations, Store } from "../store/index.ts";
import { createNodeDisk } from "../wal/index.ts";
import { openMemberFolder } from "./folder.ts";
import type { OpenedFolder } from "./folder.ts";
import { IdentityError, memberPaths, readIdentity } from "./identity.ts";
import { verifyFolder } from "./offline.ts";
import { MEMBER_DEFAULTS } from "./options.ts";
import { createNodePlatform } from "./platform.ts";
import { applyWholeLog, RECOVERY_FLOOR } from "./recover-state.ts";
import { recoverFolder, RecoveryRefused } from "./recover.ts";
import type { RecoverOptions, RecoverTools } from "./recover.ts";

const ADDRESSES = {
  ...{ client: "127.0.0.1:1", http: "127.0.0.1:2", peer: "127.0.0.1:3" },
  ...{ admin: "127.0.0.1:4", ops: "127.0.0.1:5" },
};
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const put = (key: string, more: object = {}): WriteOperation => ({
  ...{ kind: "put", key: bytes(key), value: bytes("v") },
  ...more,
});
const LEASE = "7" as LeaseId;
const LAST_INDEX = 6;
const SEGMENT_BYTES = 64 * 1024;

function client(operation: WriteOperation, namespaceId = 1): Command {
  return { kind: "client", namespaceId, epoch: 0, identity: NO_IDENTITY, operation };
}

/** What stands in the log and is neither applied nor known to be committed. */
function tail(): Entry[] {
  const commands: Command[][] = [
    [client({ kind: "lease-grant", leaseId: LEASE, ttlMs: 60_000 }), client(put("a", { leaseId: LEASE }))],
    [
      {
        kind: "checkpoint",
        namespaceId: 1,
        leaderTerm: 1 as Term,
        leases: [{ leaseId: LEASE, remainingMs: 5 }],
      },
      { kind: "create-namespace", name: "team", uid: "u" },
    ],
    [client(put("b"), 2), client({ kind: "register-client" })],
    [client(put("last"))],
  ];
  const entries = commands.map((batch, position): Entry => {
    const encoder = createCommandEncoder();
    for (const command of batch) encoder.add(command);
    const index = (position + 2) as LogIndex;
    return { index, term: 1 as Term, kind: "normal", data: encoder.finish(1_000) };
  });
  const add = { id: 2 as MemberId, name: "m2", incarnation: randomUUID(), addresses: ADDRESSES };
  const change = {
    ...({ transition: "auto", steps: [{ kind: "add-learner", id: add.id }] } as const),
    context: encodePlan({ plannedOn: 1 as LogIndex, add }),
  };
  const data = encodeConfigurationChange(change);
  return [...entries, { index: LAST_INDEX as LogIndex, term: 1 as Term, kind: "configuration", data }];
}

function openAs(directory: string, name: string): Promise<OpenedFolder> {
  const environment = new Cluster().environment((error) => assert.fail(error));
  return openMemberFolder({
    options: {
      ...MEMBER_DEFAULTS,
      ...{ directory, name, origin: { kind: "bootstrap" }, listen: ADDRESSES, advertise: ADDRESSES },
      ...{ version: "0", segmentBytes: SEGMENT_BYTES, admission: ADMISSION_DEFAULTS },
    },
    ...{ environment, platform: createNodePlatform(), onSync: () => undefined },
  });
}

async function close({ wal, generations }: OpenedFolder): Promise<void> {
  await wal.close();
  await generations.close();
}

class Crash extends Error {}

/** Everything that touches the disk; from a call on all fail, as those of a dead process do. */
class Fuse {
  left: number;
  constructor(left: number) {
    this.left = left;
  }

  /** @returns whether it is out. */
  burn(): boolean {
    this.left -= 1;
    return this.left < 0;
  }

  tools(): RecoverTools {
    return {
      disk: this.guard(createNodeDisk()),
      uuid: randomUUID,
      segmentBytes: SEGMENT_BYTES,
      openStore: async (directory): Promise<Generations> => {
        const openStore = async (path: string): Promise<Store> =>
          this.guard(await openRocksStore(path, { now: () => 0 }), ["write", "barrier"]);
        return openGenerations(directory, { openStore });
      },
    };
  }

  private guard<T extends object>(target: T, only?: readonly string[]): T {
    return new Proxy(target, {
      get: (inner, name): unknown => {
        const value: unknown = Reflect.get(inner, name, inner);
        if (typeof value !== "function") return value;
        return (...args: unknown[]): unknown => {
          if ((only === undefined || only.includes(String(name))) && this.burn()) {
            if (name === "write") throw new Crash();
            return Promise.reject(new Crash());
          }
          const result: unknown = Reflect.apply(value, inner, args);
          const opens = name === "open" && result instanceof Promise;
          return opens ? result.then((file: object) => this.guard(file, ["writeDurably"])) : result;
        };
      },
    });
  }
}

const STRAY_NAMESPACE = 3;

/** History that the store took and no entry of the log explains, some of it of a namespace that nobody knows. */
async function leaveStray(directory: string): Promise<Uint8Array[]> {
  const stray = [
    historyKey(1, 5, 0),
    historyKey(1, 700, 3),
    historyKey(2, 9, 0),
    historyKey(STRAY_NAMESPACE, 6, 0),
  ];
  const openStore = (path: string): Promise<Store> => openRocksStore(path, { now: () => 0 });
  const generations = await openGenerations(memberPaths(directory).store, { openStore });
  generations.current.write((batch) => {
    for (const key of stray) batch.put("history", key, bytes("of a lost entry"));
  });
  await generations.close();
  return stray;
}

const whole = (): RecoverTools => new Fuse(Number.POSITIVE_INFINITY).tools();

describe("offline recovery of a folder", () => {
  let root = "";
  let old = "";
  let number = 0;
  before(async () => {
    root = await mkdtemp(join(tmpdir(), "lockstep-recover-"));
    old = join(root, "old");
    const folder = await openAs(old, "m1");
    await new Promise<void>((resolve) => {
      const hardState = { term: 3 as Term, vote: 1 as MemberId, commit: 1 as LogIndex };
      folder.wal.append({ entries: tail(), hardState }, resolve);
    });
    await close(folder);
  });
  after(() => rm(root, { recursive: true, force: true }));

  async function copy(): Promise<string> {
    number += 1;
    const directory = join(root, `copy-${String(number)}`);
    await cp(old, directory, { recursive: true });
    return directory;
  }

  const asked = (directory: string, more: Partial<RecoverOptions> = {}): RecoverOptions => ({
    ...{ directory, name: "m1-r1", advertise: {} },
    ...more,
  });

  async function assertRecovered(directory: string): Promise<string> {
    const folder = await openAs(directory, "m1-r1");
    const { state, identity, initial } = folder;
    const { machine, membership } = state;
    // Four puts were in the log.
    assert.equal(machine.revision, 1 + 3 + RECOVERY_FLOOR);
    assert.equal(machine.namespaces().length, 2);
    for (const { compactRevision, keys } of machine.namespaces()) {
      assert.equal(compactRevision, machine.revision);
      assert.ok(keys > 0);
    }
    assert.equal(machine.lease(1, LEASE, state.store)?.checkpointMs, 0);
    const key = { kind: "range", range: { key: bytes("a") } } as const;
    const found = machine.range(1, key, state.store);
    assert.ok("kvs" in found && found.kvs[0]?.leaseId === LEASE);
    assert.deepEqual(membership.configuration.voters, [identity.memberId]);
    assert.ok(identity.memberId > 3, "an id that the old cell has never given");
    assert.deepEqual(membership.removedIds, [1, 2]);
    assert.equal(membership.members[0]?.addresses.client, ADDRESSES.client);
    assert.equal(membership.cellId, identity.cellId);
    assert.equal(initial.hardState?.term, 4);
    assert.equal(initial.hardState.vote, identity.memberId);
    assert.equal(initial.logStart.index, state.appliedIndex);
    assert.equal(membership.configurationIndex, state.appliedIndex);
    await close(folder);
    return identity.cellId;
  }

  it("keeps the whole log, under a new identity, above everything that can have been given out", async () => {
    const directory = await copy();
    const before = await readIdentity(createNodeDisk(), directory);
    const { outcome, identity, from } = await recoverFolder(
      asked(directory, { expectCellId: before?.cellId ?? "", expectAppliedIndex: LAST_INDEX }),
      whole(),
    );
    assert.equal(outcome, "recovered");
    assert.ok(before !== undefined);
    assert.equal(from.cellId, before.cellId);
    assert.equal(from.lastIndex, LAST_INDEX);
    assert.notEqual(identity.cellId, before.cellId);
    assert.notEqual(identity.incarnation, before.incarnation);
    assert.ok((await verifyFolder(directory)).sound);
    await assertRecovered(directory);
    await assert.rejects(openAs(directory, "m1"), IdentityError);
    const folder = await openAs(directory, "m1-r1");
    const { state } = folder;
    const encoder = createCommandEncoder();
    encoder.add(client({ kind: "lease-grant", ttlMs: 60_000 }));
    const index = (state.appliedIndex + 1) as LogIndex;
    const entry = { index, term: 4 as Term, data: encoder.finish(2_000) };
    const [granted] = state.apply([entry], false).leaseChanges;
    assert.ok(granted?.kind === "granted" && BigInt(granted.leaseId) > BigInt(RECOVERY_FLOOR));
    await close(folder);
  });

  it("history above the last revision, which the store took before a crash and the log has lost, is dropped", async () => {
    const directory = await copy();
    const stray = await leaveStray(directory);
    await recoverFolder(asked(directory), whole());
    const folder = await openAs(directory, "m1-r1");
    assert.deepEqual(
      folder.state.store.getMany("history", stray),
      stray.map(() => undefined),
    );
    assert.ok(folder.state.store.get("history", historyKey(1, 2, 0)) !== undefined, "the others stay");
    const encoder = createCommandEncoder();
    encoder.add({ kind: "create-namespace", name: "later", uid: "u" });
    const index = (folder.state.appliedIndex + 1) as LogIndex;
    folder.state.apply([{ index, term: 4 as Term, data: encoder.finish(2_000) }], false);
    const later = folder.state.machine.namespaceByName("later");
    assert.ok(later !== undefined && later.id > STRAY_NAMESPACE, "an id that nothing lost can have had");
    await close(folder);
  });

  it("a start whose log does not reach that history drops it before anything new is applied, and not before", async () => {
    const directory = await copy();
    const stray = await leaveStray(directory);
    const folder = await openAs(directory, "m1");
    const { state, initial } = folder;
    applyWholeLog(state, initial.entries);
    assert.ok(!state.store.getMany("history", stray).includes(undefined), "the log may still explain them");
    const encoder = createCommandEncoder();
    encoder.add(client(put("new")));
    const index = (state.appliedIndex + 1) as LogIndex;
    state.apply([{ index, term: 3 as Term, data: encoder.finish(2_000) }], false);
    const left = state.store.getMany("history", stray);
    assert.notEqual(left[0], undefined, "the new entry's own");
    assert.deepEqual(left.slice(1), [undefined, undefined, undefined]);
    await close(folder);
  });

  it("run again with the same parameters changes nothing, with others refuses", async () => {
    const directory = await copy();
    const cellId = (await readIdentity(createNodeDisk(), directory))?.cellId ?? "";
    const options = asked(directory, { expectCellId: cellId, expectAppliedIndex: 3 });
    const first = await recoverFolder(options, whole());
    const second = await recoverFolder(options, whole());
    assert.equal(second.outcome, "already");
    assert.deepEqual(second.identity, first.identity);
    assert.equal(await assertRecovered(directory), first.identity.cellId);
    // Also when the member has run since.
    assert.equal((await recoverFolder(options, whole())).outcome, "already");
    for (const other of [
      { expectCellId: randomUUID() },
      { expectAppliedIndex: 99 },
      { name: "m9", expectCellId: cellId },
    ]) {
      await assert.rejects(recoverFolder({ ...options, ...other }, whole()), RecoveryRefused);
    }
    const again = await recoverFolder(asked(directory, { name: "m1-r2" }), whole());
    assert.equal(again.outcome, "recovered");
    assert.equal(again.from.cellId, first.identity.cellId);
  });

  it("keeps the member's name when it is told which cell is given up, once for each", async () => {
    const directory = await copy();
    const cellId = (await readIdentity(createNodeDisk(), directory))?.cellId ?? "";
    const options = asked(directory, { name: "m1", expectCellId: cellId });
    const first = await recoverFolder(options, whole());
    assert.equal(first.outcome, "recovered");
    assert.equal((await recoverFolder(options, whole())).outcome, "already");
    const next = await recoverFolder({ ...options, expectCellId: first.identity.cellId }, whole());
    assert.equal(next.outcome, "recovered");
    assert.notEqual(next.identity.cellId, first.identity.cellId);
    await assert.rejects(recoverFolder(options, whole()), RecoveryRefused);
  });

  it("refuses another cell, a log that is too short, the old name, no member, a member that runs", async () => {
    const directory = await copy();
    for (const more of [
      { expectCellId: randomUUID() },
      { expectAppliedIndex: LAST_INDEX + 1 },
      { name: "m1" },
    ]) {
      await assert.rejects(recoverFolder(asked(directory, more), whole()), RecoveryRefused);
    }
    await assert.rejects(recoverFolder(asked(join(root, "nowhere")), whole()), RecoveryRefused);
    const running = await openAs(directory, "m1");
    await assert.rejects(recoverFolder(asked(directory), whole()), (error) => {
      assert.ok(error instanceof RecoveryRefused);
      assert.match(error.message, /process still run/);
      return true;
    });
    await close(running);
    // Nothing of this has touched it.
    await close(await openAs(directory, "m1"));
  });

  it("interrupted anywhere, the old member does not start, and running it again ends as if nothing had happened", async (t) => {
    let crashes = 0;
    for (let calls = 0; ; calls += 1) {
      const directory = await copy();
      const fuse = new Fuse(calls);
      const crashed = await recoverFolder(asked(directory), fuse.tools()).then(
        () => false,
        () => true,
      );
      if (!crashed) break;
      crashes += 1;
      const begun = (await verifyFolder(directory)).problems.some((problem) => /begun/.test(problem));
      if (begun) await assert.rejects(openAs(directory, "m1"), /begun and not finished/);
      if (begun)
        await assert.rejects(recoverFolder(asked(directory, { name: "m7" }), whole()), RecoveryRefused);
      await recoverFolder(asked(directory), whole());
      await assertRecovered(directory);
      await rm(directory, { recursive: true });
    }
    assert.ok(crashes > 20, `only ${String(crashes)} points were tried`);
    t.diagnostic(`${String(crashes)} points`);
  });
});
