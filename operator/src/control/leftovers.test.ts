import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as kinds from "../api/kinds.ts";
import { MEMBER_FINALIZER } from "../api/names.ts";
import type { CellMember, CoordinationCell } from "../api/types.ts";
import { createKubeClient, Rest } from "../kube/index.ts";
import type { KubeClient, KubeObject, ObjectCache, ResourceKind } from "../kube/index.ts";
import { FakeApiServer, fakeTransport, ManualRuntime } from "../kube/testing/index.ts";
import { memberClaim } from "../resources/claim.ts";
import { cellMember } from "../resources/member.ts";
import { disruptionBudget, peersService } from "../resources/shared.ts";
import { coordinationCell } from "../resources/testing/objects.ts";
import { hasLeftovers, obstacleOfLeftovers, sweepLeftovers } from "./leftovers.ts";

const REF = { namespace: "apps", name: "orders" };
const EARLIER: CoordinationCell = coordinationCell({ storage: { size: "1Gi", reclaimPolicy: "Delete" } });

/** What the apiserver has of a cell that is not there any more, or that another one of its name follows. */
class Setting {
  readonly server: FakeApiServer;
  readonly kube: KubeClient;

  constructor() {
    const runtime = new ManualRuntime();
    const all = Object.values(kinds) as unknown as readonly ResourceKind[];
    this.server = new FakeApiServer({ runtime, kinds: all.map((kind) => ({ kind })) });
    const rest = new Rest({ transport: fakeTransport(this.server), runtime });
    this.kube = createKubeClient({ rest, fieldManager: "lockstep-operator" });
  }

  make<T extends KubeObject>(kind: ResourceKind<T>, object: T): T {
    return this.server.store.create<T>(kind, object, { manager: "earlier" });
  }

  member(name: string): CellMember {
    const wanted = { name, zone: undefined, bootstrap: false, replaces: undefined };
    return this.make(kinds.CELL_MEMBER, cellMember(EARLIER, wanted));
  }

  names(kind: ResourceKind): readonly string[] {
    return this.server.store.list(kind).map(({ metadata }) => metadata.name);
  }

  cache<T extends KubeObject>(kind: ResourceKind<T>): ObjectCache<T> {
    return {
      get: (ref) => this.server.store.get<T>(kind, ref),
      list: () => this.server.store.list<T>(kind),
      byLabel: (key, value) =>
        this.server.store.list<T>(kind).filter(({ metadata }) => metadata.labels?.[key] === value),
      synced: true,
    };
  }

  get caches(): Parameters<typeof hasLeftovers>[0] {
    return {
      members: this.cache(kinds.CELL_MEMBER),
      pods: this.cache(kinds.POD),
      claims: this.cache(kinds.PERSISTENT_VOLUME_CLAIM),
    };
  }

  isDue(uid?: string): boolean {
    return hasLeftovers(this.caches, (kind, ref) => this.server.store.get(kind, ref), REF, uid);
  }
}

describe("what a cell that is gone left", () => {
  it("goes when nothing stands on it: a write that came late, and what the cell had once", async () => {
    const setting = new Setting();
    setting.member("orders-late");
    setting.make(kinds.SERVICE, peersService(EARLIER));
    setting.make(kinds.POD_DISRUPTION_BUDGET, disruptionBudget(EARLIER, 2));
    const { metadata, ...account } = { ...disruptionBudget(EARLIER, 2), kind: "ServiceAccount" };
    setting.make(kinds.SERVICE_ACCOUNT, {
      ...account,
      apiVersion: "v1",
      metadata: { name: metadata.name, namespace: "apps" },
    });
    for (let turn = 0; setting.isDue() && turn < 5; turn += 1) await sweepLeftovers(setting.kube, REF);
    assert.equal(setting.isDue(), false);
    assert.deepEqual(setting.names(kinds.CELL_MEMBER), []);
    assert.deepEqual(setting.names(kinds.SERVICE), []);
    assert.deepEqual(setting.names(kinds.POD_DISRUPTION_BUDGET), []);
    assert.deepEqual(setting.names(kinds.SERVICE_ACCOUNT), ["orders"], "it carries no label of ours");
  });

  it("stays as it is where members have their volumes: somebody took the cell's finalizer off", async () => {
    const setting = new Setting();
    const member = setting.member("orders-a");
    setting.make(kinds.PERSISTENT_VOLUME_CLAIM, memberClaim(EARLIER, member));
    setting.make(kinds.SERVICE, peersService(EARLIER));
    assert.equal(setting.isDue(), false);
    await sweepLeftovers(setting.kube, REF);
    assert.deepEqual(setting.names(kinds.CELL_MEMBER), ["orders-a"]);
    assert.deepEqual(setting.names(kinds.SERVICE), ["orders-peers"]);
  });

  it("is let go when a person deletes it, and its volume stays whatever the policy was", async () => {
    const setting = new Setting();
    const member = setting.member("orders-a");
    setting.make(kinds.PERSISTENT_VOLUME_CLAIM, memberClaim(EARLIER, member));
    setting.server.store.delete(kinds.CELL_MEMBER, member.metadata);
    assert.equal(setting.isDue(), true);
    await sweepLeftovers(setting.kube, REF);
    assert.deepEqual(setting.names(kinds.CELL_MEMBER), []);
    const [claim] = setting.server.store.list(kinds.PERSISTENT_VOLUME_CLAIM);
    assert.deepEqual(claim?.metadata.ownerReferences ?? [], [], "the garbage collector would take it");
  });
});

describe("what a cell left to the next of its name", () => {
  it("is told, let go when it is deleted, and never taken for the next one's", async () => {
    const setting = new Setting();
    const next = setting.make(kinds.COORDINATION_CELL, {
      ...coordinationCell(),
      metadata: { name: "orders", namespace: "apps" },
    });
    const uid = next.metadata.uid ?? "";
    const old = setting.member("orders-old");
    setting.make(kinds.PERSISTENT_VOLUME_CLAIM, memberClaim(EARLIER, old));
    setting.make(kinds.SERVICE, peersService(EARLIER));
    const own = { name: "orders-new", zone: undefined, bootstrap: true, replaces: undefined };
    setting.make(kinds.CELL_MEMBER, cellMember(next, own));
    const [obstacle] = obstacleOfLeftovers(setting.caches, { ...REF, uid });
    assert.equal(obstacle?.reason, "MembersLeft");
    assert.match(obstacle.message, /still there: orders-old\. Delete them/);
    assert.equal(setting.isDue(uid), false);

    setting.server.store.delete(kinds.CELL_MEMBER, old.metadata);
    assert.equal(setting.isDue(uid), true);
    await sweepLeftovers(setting.kube, REF);
    assert.deepEqual(setting.names(kinds.CELL_MEMBER), ["orders-new"]);
    const [member] = setting.server.store.list(kinds.CELL_MEMBER);
    assert.deepEqual(member?.metadata.finalizers, [MEMBER_FINALIZER]);
    assert.deepEqual(setting.names(kinds.SERVICE), ["orders-peers"], "told by the pass that needs the name");
    assert.deepEqual(obstacleOfLeftovers(setting.caches, { ...REF, uid }), []);
  });
});
