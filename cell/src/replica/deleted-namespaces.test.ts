import assert from "node:assert/strict";
import { test } from "node:test";
import { crc32 } from "node:zlib";
import type { LeaseEnd, LeaseId } from "@lockstep/gateway/coordinator";
import { createMachine } from "../machine/index.ts";
import { createSessionKeeper } from "../session/index.ts";
import type { SessionKeeper } from "../session/types.ts";
import type { WatchHub } from "../watch/types.ts";
import { DeletedNamespaces } from "./deleted-namespaces.ts";
import type { CellState } from "./state.ts";

class World {
  readonly tasks: (() => void)[] = [];
  readonly told: LeaseEnd[] = [];
  readonly cancelled: number[] = [];
  readonly sessions: SessionKeeper;
  readonly deleted: DeletedNamespaces;
  readonly names = new Map<string, number>();

  constructor() {
    this.sessions = createSessionKeeper({
      ...{ electionTimeoutMs: 1000, checkpointIntervalMs: 1000, expireBatchMax: 32, lateTickMs: 500 },
    });
    const machine = createMachine({ crc32 });
    machine.bootstrap();
    const namespaceByName = (name: string): { readonly id: number } | undefined => {
      const id = this.names.get(name);
      return id === undefined ? undefined : { id };
    };
    this.deleted = new DeletedNamespaces({
      state: { machine: { revision: machine.revision, namespaceByName } } as unknown as CellState,
      hub: { deleted: (id: number) => this.cancelled.push(id) } as unknown as WatchHub,
      sessions: this.sessions,
      after: (_delayMs, task) => {
        this.tasks.push(task);
        return () => undefined;
      },
      leaseEnded: (end) => this.told.push(end),
    });
  }

  grant(namespaceId: number, leaseId: number): void {
    const id = String(leaseId) as LeaseId;
    this.sessions.applied({ kind: "granted", namespaceId, leaseId: id, ttlMs: 1000 }, 0);
  }
}

test("leases of a deleted namespace end in slices, their holders are told, and those of others go on", () => {
  const world = new World();
  for (let lease = 1; lease <= 2_500; lease += 1) world.grant(2, lease);
  world.grant(3, 1);
  world.deleted.deleted(2, "team");
  assert.deepEqual(world.cancelled, [2]);
  assert.equal(world.told.length, 1_024);
  for (let task = world.tasks.shift(); task !== undefined; task = world.tasks.shift()) {
    const before = world.told.length;
    task();
    assert.ok(world.told.length - before <= 1_024);
  }
  assert.equal(new Set(world.told.map(({ leaseId }) => leaseId)).size, 2_500);
  assert.ok(world.told.every(({ namespace, cause }) => namespace === "team" && cause === "forced"));
  assert.equal(world.sessions.count, 1);
  assert.ok(world.sessions.has(3, "1" as LeaseId));
});

test("a lease of the same id in a namespace of the same name, created since, is not called ended", () => {
  const world = new World();
  world.grant(2, 7);
  world.grant(2, 8);
  world.grant(3, 7);
  world.names.set("team", 3);
  world.deleted.deleted(2, "team");
  assert.deepEqual(
    world.told.map(({ leaseId }) => leaseId),
    ["8"],
  );
});
