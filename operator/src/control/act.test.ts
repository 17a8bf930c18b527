import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  CELL_MEMBER,
  CELL_NAMESPACE,
  CELL_OPERATION,
  COORDINATION_CELL,
  NETWORK_POLICY,
  PERSISTENT_VOLUME_CLAIM,
  POD,
  POD_DISRUPTION_BUDGET,
  SERVICE,
  SERVICE_ACCOUNT,
} from "../api/kinds.ts";
import type { PersistentVolumeClaim, Pod, PodDisruptionBudget } from "../api/core.ts";
import { CELL_FINALIZER, MEMBER_FINALIZER } from "../api/names.ts";
import type { CellMember, CellOperation, CoordinationCell, CoordinationCellSpec } from "../api/types.ts";
import { CellAdminError } from "../cell/types.ts";
import type { CellAdmin, MembershipChange } from "../cell/types.ts";
import { createKubeClient, Rest } from "../kube/index.ts";
import type { KubeClient, KubeObject, ResourceKind } from "../kube/index.ts";
import { FakeApiServer, fakeTransport, ManualRuntime } from "../kube/testing/index.ts";
import type { Action } from "../plan/types.ts";
import { memberClaim } from "../resources/claim.ts";
import { cellMember } from "../resources/member.ts";
import { memberPod } from "../resources/pod.ts";
import { coordinationCell } from "../resources/testing/objects.ts";
import { act, NameTaken, OutdatedPlan } from "./act.ts";
import type { Target } from "./act.ts";
import { networkPolicy, serviceAccount } from "../resources/shared.ts";
import { createBuilders } from "./builders.ts";

const KINDS = [
  COORDINATION_CELL,
  CELL_MEMBER,
  CELL_OPERATION,
  CELL_NAMESPACE,
  POD,
  PERSISTENT_VOLUME_CLAIM,
  NETWORK_POLICY,
  POD_DISRUPTION_BUDGET,
  SERVICE,
  SERVICE_ACCOUNT,
] as unknown as readonly ResourceKind[];

const NAME = "orders-a";

/** A member with its pod and volume, as the apiserver has them and as they were seen. */
class Setting {
  readonly runtime = new ManualRuntime();
  readonly server: FakeApiServer;
  readonly kube: KubeClient;
  readonly asked: MembershipChange[] = [];
  readonly target: Target;

  constructor(reclaimPolicy: CoordinationCellSpec["storage"]["reclaimPolicy"] = "Retain") {
    this.server = new FakeApiServer({
      runtime: this.runtime,
      kinds: KINDS.map((kind) => ({ kind, status: kind.apiVersion.startsWith("lockstep.dev/") })),
    });
    const rest = new Rest({ transport: fakeTransport(this.server), runtime: this.runtime });
    this.kube = createKubeClient({ rest, fieldManager: "lockstep-operator" });
    const cell = this.make(COORDINATION_CELL, {
      ...coordinationCell({ storage: { size: "1Gi", reclaimPolicy } }),
      metadata: { name: "orders", namespace: "apps", finalizers: [CELL_FINALIZER] },
    });
    const wanted = { name: NAME, zone: undefined, bootstrap: false, replaces: undefined };
    const member = this.make(CELL_MEMBER, cellMember(cell, wanted));
    const request = this.make(CELL_OPERATION, {
      apiVersion: cell.apiVersion,
      kind: "CellOperation",
      metadata: { name: "wish", namespace: "apps" },
      spec: { cell: "orders", action: "Restart", member: NAME },
    });
    const claim = this.make(PERSISTENT_VOLUME_CLAIM, memberClaim(cell, member));
    const pod = this.make(POD, podOf(cell, member));
    this.target = {
      cell,
      objects: { members: [member], pods: [pod], claims: [claim], requests: [request], budget: undefined },
      leaderTarget: { memberName: NAME, address: "127.0.0.1:1" },
      hosts: new Map([[NAME, "node-1"]]),
    };
  }

  make<T extends KubeObject>(kind: ResourceKind<T>, object: T): T {
    return this.server.store.create<T>(kind, object, { manager: "test" });
  }

  act(action: Action, target: Target = this.target): Promise<void> {
    const refuse = (): Promise<never> =>
      Promise.reject(new CellAdminError("unreachable", "not asked here", "not-applied"));
    const admin: CellAdmin = {
      status: refuse,
      configuration: refuse,
      changeMembership: (_target, change) => {
        this.asked.push(change);
        return Promise.resolve();
      },
      transferLeadership: () => Promise.resolve(1),
      raiseFormatVersion: () => Promise.resolve(),
      listNamespaces: refuse,
      createNamespace: refuse,
      deleteNamespace: refuse,
    };
    const builders = createBuilders({ defaultImage: "lockstep-cell:test", networkPoliciesFor: undefined });
    const parts = {
      kube: this.kube,
      admin,
      builders,
      releaseCertificates: () => Promise.resolve(),
      advanceCertificates: () => Promise.resolve(),
      wallMs: () => this.runtime.wallMs(),
    };
    return act(parts, target, action);
  }

  get<T extends KubeObject>(kind: ResourceKind<T>, name: string = NAME): T | undefined {
    return this.server.store.get<T>(kind, { namespace: "apps", name });
  }

  /** Another object of the same kind and name takes the place of the one that was seen. */
  replace<T extends KubeObject>(kind: ResourceKind<T>, object: T): string {
    this.server.store.delete(kind, { namespace: "apps", name: NAME });
    const { uid } = this.make(kind, object).metadata;
    assert.ok(uid !== undefined);
    return uid;
  }

  uidOf(kind: ResourceKind): string {
    return this.get(kind)?.metadata.uid ?? "";
  }
}

function podOf(cell: CoordinationCell, member: CellMember): Pod {
  return memberPod({
    cell,
    member,
    mode: { kind: "existing" },
    role: "voter",
    defaultImage: "lockstep-cell:test",
    otherNodes: [],
  });
}

describe("an action on an object of which another incarnation is there by now", () => {
  it("ends no pod that was not seen", async () => {
    const setting = new Setting();
    const uid = setting.uidOf(POD);
    const [pod] = setting.target.objects.pods;
    assert.ok(pod !== undefined);
    const younger = setting.replace(POD, pod);
    const action = { kind: "delete-pod", member: NAME, uid, why: "a test" } as const;
    await assert.rejects(setting.act(action), { reason: "conflict" });
    assert.equal(setting.get(POD)?.metadata.uid, younger);
  });

  it("deletes no volume that was not seen, and keeps the member until that is clear", async () => {
    const setting = new Setting("Delete");
    const uid = setting.uidOf(CELL_MEMBER);
    const [claim] = setting.target.objects.claims;
    assert.ok(claim !== undefined);
    const younger = setting.replace(PERSISTENT_VOLUME_CLAIM, claim);
    const action = { kind: "release-member", member: NAME, uid, deleteClaim: true } as const;
    await assert.rejects(setting.act(action), { reason: "conflict" });
    assert.equal(setting.get(PERSISTENT_VOLUME_CLAIM)?.metadata.uid, younger);
    assert.deepEqual(setting.get(CELL_MEMBER)?.metadata.finalizers, [MEMBER_FINALIZER]);
  });

  it("releases no member, and labels no pod, that the plan was not about", async () => {
    const setting = new Setting();
    const release = { kind: "release-member", member: NAME, uid: "older", deleteClaim: true } as const;
    await assert.rejects(setting.act(release), OutdatedPlan);
    const label = { kind: "label-pod", member: NAME, uid: "older", role: "former" } as const;
    await assert.rejects(setting.act(label), OutdatedPlan);
    assert.notEqual(setting.get(PERSISTENT_VOLUME_CLAIM), undefined);
    assert.equal(setting.get(POD)?.metadata.labels?.["lockstep.dev/role"], "voter");
  });

  it("makes nothing twice", async () => {
    const setting = new Setting();
    const again = { kind: "create-pod", member: NAME, mode: { kind: "existing" }, role: "voter" } as const;
    await assert.rejects(setting.act(again), { reason: "already-exists" });
    await assert.rejects(setting.act({ kind: "create-claim", member: NAME }), { reason: "already-exists" });
  });
});

describe("releasing a member", () => {
  const owners = (claim: PersistentVolumeClaim | undefined): number =>
    claim?.metadata.ownerReferences?.length ?? 0;

  it("takes pod and volume with it when the policy says so", async () => {
    const setting = new Setting("Delete");
    const uid = setting.uidOf(CELL_MEMBER);
    await setting.act({ kind: "release-member", member: NAME, uid, deleteClaim: true });
    assert.equal(setting.get(POD), undefined);
    assert.equal(setting.get(PERSISTENT_VOLUME_CLAIM), undefined);
    assert.deepEqual(setting.get(CELL_MEMBER)?.metadata.finalizers ?? [], []);
  });

  it("parts a volume that is to stay from its owner first, though it was made under another policy", async () => {
    const setting = new Setting("Delete");
    assert.equal(owners(setting.get(PERSISTENT_VOLUME_CLAIM)), 1);
    const uid = setting.uidOf(CELL_MEMBER);
    await setting.act({ kind: "release-member", member: NAME, uid, deleteClaim: false });
    assert.equal(owners(setting.get(PERSISTENT_VOLUME_CLAIM)), 0, "the garbage collector would take it");
    const writes = setting.server.calls.filter(({ method }) => method === "PATCH");
    assert.deepEqual(
      writes.map(({ plural }) => plural),
      ["persistentvolumeclaims", "cellmembers"],
    );
  });

  it("does not let the member go when its volume could not be parted from it", async () => {
    const setting = new Setting("Delete");
    const uid = setting.uidOf(CELL_MEMBER);
    setting.server.fault = ({ plural, method }) =>
      plural === "persistentvolumeclaims" && method === "PATCH"
        ? { kind: "status", status: 409, reason: "Conflict" }
        : undefined;
    const action = { kind: "release-member", member: NAME, uid, deleteClaim: false } as const;
    await assert.rejects(setting.act(action), { reason: "conflict" });
    assert.deepEqual(setting.get(CELL_MEMBER)?.metadata.finalizers, [MEMBER_FINALIZER]);
  });
});

describe("objects that a cell has once", () => {
  const wanted = { kind: "apply-shared", disruptionMinAvailable: 2, admitted: true } as const;
  const budget = (owner?: { readonly name: string; readonly uid: string }) => ({
    apiVersion: "policy/v1",
    kind: "PodDisruptionBudget",
    metadata: {
      name: "orders",
      namespace: "apps",
      ...(owner === undefined
        ? {}
        : { ownerReferences: [{ apiVersion: "lockstep.dev/v1alpha1", kind: "CoordinationCell", ...owner }] }),
    },
    spec: { minAvailable: 7, selector: { matchLabels: { app: "orders" } } },
  });
  const minAvailable = (setting: Setting): unknown =>
    setting.get(POD_DISRUPTION_BUDGET, "orders")?.spec.minAvailable;

  it("are made, and put right again though somebody took their owner away", async () => {
    const setting = new Setting();
    await setting.act(wanted);
    assert.equal(minAvailable(setting), 2);
    await setting.kube.mergePatch(
      POD_DISRUPTION_BUDGET,
      { namespace: "apps", name: "orders" },
      { metadata: { ownerReferences: null }, spec: { minAvailable: 1 } },
    );
    await setting.act(wanted);
    assert.equal(minAvailable(setting), 2);
  });

  it("are not made from somebody else's: an application may have the cell's name", async () => {
    const setting = new Setting();
    setting.make(POD_DISRUPTION_BUDGET, budget());
    await assert.rejects(setting.act(wanted), (error) => {
      assert.ok(error instanceof NameTaken);
      assert.match(error.message, /PodDisruptionBudget apps\/orders is there already/);
      return true;
    });
    assert.equal(minAvailable(setting), 7);
  });

  it("wait for those of an earlier cell of the name to be collected, and not for ever without a word", async () => {
    const setting = new Setting();
    setting.make(POD_DISRUPTION_BUDGET, budget({ name: "orders", uid: "earlier" }));
    await assert.rejects(setting.act(wanted), OutdatedPlan);
    await setting.runtime.advance(61_000);
    await assert.rejects(setting.act(wanted), (error) => {
      assert.ok(error instanceof NameTaken);
      assert.match(error.message, /apps\/orders is left of an earlier cell .*\(uid earlier\).* delete it/);
      return true;
    });
    assert.equal(minAvailable(setting), 7);
  });

  it("are not taken over from an earlier cell of the name: it may still run", async () => {
    const setting = new Setting();
    const { metadata, ...rest } = budget();
    const labels = { "lockstep.dev/cell": "orders", "lockstep.dev/cell-uid": "earlier" };
    setting.make(POD_DISRUPTION_BUDGET, { ...rest, metadata: { ...metadata, labels } });
    await assert.rejects(setting.act(wanted), NameTaken);
    assert.equal(minAvailable(setting), 7);
  });

  it("are parted from the cell where an earlier version hung them on it, and members are", async () => {
    const setting = new Setting();
    await setting.act(wanted);
    const { apiVersion, kind, metadata } = setting.target.cell;
    const owner = { apiVersion, kind, name: "orders", uid: metadata.uid ?? "" };
    const hang = (of: ResourceKind, name: string): Promise<KubeObject> =>
      setting.kube.mergePatch(of, { namespace: "apps", name }, { metadata: { ownerReferences: [owner] } });
    await hang(SERVICE, "orders-peers");
    await hang(CELL_MEMBER, NAME);
    const member = setting.get(CELL_MEMBER);
    assert.ok(member !== undefined);
    const objects = { ...setting.target.objects, members: [member] };
    await setting.act(wanted, { ...setting.target, objects });
    assert.deepEqual(setting.get(SERVICE, "orders-peers")?.metadata.ownerReferences ?? [], []);
    assert.deepEqual(setting.get(CELL_MEMBER)?.metadata.ownerReferences ?? [], []);
    assert.deepEqual(setting.get(CELL_MEMBER)?.metadata.finalizers, [MEMBER_FINALIZER]);
  });
});

describe("releasing a cell", () => {
  const release = { kind: "release-cell" } as const;
  const SHARED = [SERVICE, POD_DISRUPTION_BUDGET, SERVICE_ACCOUNT, NETWORK_POLICY] as readonly ResourceKind[];
  const left = (setting: Setting): readonly string[] =>
    SHARED.flatMap((kind) => setting.server.store.list(kind)).map(
      ({ kind, metadata }) => `${kind} ${metadata.name}`,
    );
  const finalizers = (setting: Setting): readonly string[] =>
    setting.get(COORDINATION_CELL, "orders")?.metadata.finalizers ?? [];

  async function whole(): Promise<Setting> {
    const setting = new Setting();
    await setting.act({ kind: "apply-shared", disruptionMinAvailable: 2, admitted: true });
    // Made while the operator had NetworkPolicies on.
    setting.make(NETWORK_POLICY, networkPolicy(setting.target.cell, { namespace: "lockstep", labels: {} }));
    return setting;
  }

  it("takes away all that the cell has once, and the finalizer last", async () => {
    const setting = await whole();
    assert.equal(left(setting).length, 5);
    await setting.act(release);
    assert.deepEqual(left(setting), []);
    const writes = setting.server.calls.filter(({ method }) => method === "DELETE" || method === "PATCH");
    assert.equal(writes.at(-1)?.plural, "coordinationcells");
    assert.deepEqual(finalizers(setting), []);
  });

  it("is made good by the next pass, whichever write was the last before a crash", async () => {
    for (let last = 1; last <= 5; last += 1) {
      const setting = await whole();
      let deletions = 0;
      setting.server.fault = ({ method }) =>
        method === "DELETE" && (deletions += 1) > last
          ? { kind: "status", status: 500, reason: "" }
          : undefined;
      if (last < 5) {
        await assert.rejects(setting.act(release));
        assert.deepEqual(finalizers(setting), [CELL_FINALIZER], "the next pass must come back to it");
      }
      setting.server.fault = undefined;
      await setting.act(release);
      assert.deepEqual([left(setting), finalizers(setting)], [[], []]);
    }
  });

  it("leaves what is somebody else's under the cell's names", async () => {
    const setting = new Setting();
    setting.make(POD_DISRUPTION_BUDGET, budgetOf({}));
    const younger = { ...setting.target.cell.metadata, uid: "younger" };
    setting.make(SERVICE_ACCOUNT, serviceAccount({ ...setting.target.cell, metadata: younger }));
    await setting.act(release);
    assert.deepEqual(left(setting), ["PodDisruptionBudget orders", "ServiceAccount orders"]);
  });
});

function budgetOf(labels: Readonly<Record<string, string>>): PodDisruptionBudget {
  return {
    apiVersion: "policy/v1",
    kind: "PodDisruptionBudget",
    metadata: { name: "orders", namespace: "apps", labels },
    spec: { minAvailable: 7, selector: { matchLabels: { app: "orders" } } },
  };
}

describe("the pod of a member", () => {
  it("keeps clear of the others' hosts, but not of that which it shares with its replacement", async () => {
    const setting = new Setting();
    const { cell, objects } = setting.target;
    const [old, pod] = [objects.members[0], objects.pods[0]];
    assert.ok(old !== undefined && pod !== undefined);
    const replacement = {
      ...old,
      metadata: { ...old.metadata, name: "orders-b" },
      spec: { ...old.spec, replaces: NAME },
    };
    setting.server.store.delete(POD, { namespace: "apps", name: NAME });
    const hosts = new Map([
      [NAME, "node-1"],
      ["orders-b", "node-1"],
      ["orders-c", "node-2"],
    ]);
    const target = { ...setting.target, objects: { ...objects, members: [old, replacement] }, hosts };
    const action = { kind: "create-pod", member: NAME, mode: { kind: "existing" }, role: "voter" } as const;
    await setting.act(action, target);
    const wanted = memberPod({
      cell,
      member: old,
      mode: { kind: "existing" },
      role: "voter",
      defaultImage: "lockstep-cell:test",
      otherNodes: ["node-2"],
    });
    assert.deepEqual(setting.get(POD)?.spec.affinity, wanted.spec.affinity);
  });
});

describe("what people write", () => {
  it("is never written by the operator: of their objects it touches status and finalizers only", async () => {
    const setting = new Setting();
    const before = [setting.get(COORDINATION_CELL, "orders"), setting.get(CELL_OPERATION, "wish")];
    const uid = setting.uidOf(POD);
    const actions: readonly Action[] = [
      { kind: "grow-claim", member: NAME, size: "2Gi" },
      { kind: "label-pod", member: NAME, uid, role: "former" },
      { kind: "finish-request", name: "wish", phase: "Running", message: "" },
      { kind: "delete-pod", member: NAME, uid, why: "a test" },
      { kind: "transfer-leadership", to: 1, why: "a test" },
      { kind: "delete-member", member: NAME, uid: setting.uidOf(CELL_MEMBER) },
      { kind: "release-cell" },
    ];
    for (const action of actions) await setting.act(action);
    const after = [setting.get(COORDINATION_CELL, "orders"), setting.get(CELL_OPERATION, "wish")];
    assert.deepEqual(
      after.map((object) => [object?.metadata.generation, specOf(object)]),
      before.map((object) => [object?.metadata.generation, specOf(object)]),
    );
    const written = setting.server.calls.filter(({ method }) => method !== "GET");
    assert.ok(
      written.some(({ plural, subresource }) => plural === "celloperations" && subresource === "status"),
    );
    assert.ok(!written.some(({ plural, method }) => plural === "coordinationcells" && method !== "PATCH"));
  });

  it("a change of voters is asked for on the configuration that it was planned on", async () => {
    const setting = new Setting();
    const change = { plannedOn: 70, promote: [4], demote: [], remove: [3] };
    await setting.act({ kind: "change-membership", change, why: "a test" });
    assert.deepEqual(setting.asked, [change]);
  });
});

function specOf(object: CoordinationCell | CellOperation | undefined): unknown {
  return object?.spec;
}
