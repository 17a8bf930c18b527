import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Pod, Secret } from "../api/core.ts";
import * as kinds from "../api/kinds.ts";
import type { CellMember, CellNamespace, CoordinationCell } from "../api/types.ts";
import { createKubeClient, NO_METRICS, Rest } from "../kube/index.ts";
import type { KubeObject, ResourceKind } from "../kube/index.ts";
import { FakeApiServer, fakeTransport, ManualRuntime, settle } from "../kube/testing/index.ts";
import { createCertificateKeeper } from "./certificate-keeper.ts";
import { Controller } from "./controller.ts";

const CELL: CoordinationCell = {
  apiVersion: "lockstep.dev/v1alpha1",
  kind: "CoordinationCell",
  metadata: { name: "main", namespace: "infra" },
  spec: {
    voters: 3,
    storage: { size: "1Gi", reclaimPolicy: "Retain" },
    topology: { zoneKey: "topology.kubernetes.io/zone", hostSpread: "Required" },
    tls: { mode: "Managed", leafDuration: "2160h", clientOverlap: "5m" },
    updatePolicy: { mode: "Rolling", minReadySeconds: 10 },
    replacementPolicy: { mode: "AfterLoss", after: "10m", slowDisk: "Report" },
  },
};

function object(kind: ResourceKind, name: string, rest: object = {}): KubeObject {
  return { apiVersion: kind.apiVersion, kind: kind.kind, metadata: { name }, ...rest };
}

class Setting {
  readonly runtime = new ManualRuntime();
  readonly server: FakeApiServer;
  readonly controller: Controller;
  readonly events: string[] = [];
  readonly logged: string[] = [];
  readonly #stopping = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor() {
    const { runtime } = this;
    const all = (Object.values(kinds) as unknown as ResourceKind[]).map((kind) => ({
      kind,
      // Nodes come with their status.
      status: kind.plural !== kinds.NODE.plural,
    }));
    this.server = new FakeApiServer({ runtime, kinds: all });
    const rest = new Rest({ transport: fakeTransport(this.server), runtime });
    const kube = createKubeClient({ rest, fieldManager: "lockstep-operator" });
    this.controller = new Controller({
      rest,
      kube,
      runtime,
      metrics: NO_METRICS,
      events: { record: (about, { reason }) => this.events.push(`${about.metadata.name} ${reason}`) },
      certificates: createCertificateKeeper({
        kube,
        wallMs: () => runtime.wallMs(),
        monotonicMs: () => runtime.monotonicMs(),
        operatorNamespace: "lockstep-system",
      }),
      log: (level, message, fields) => this.logged.push(`${level} ${message} ${JSON.stringify(fields)}`),
      settings: {
        defaultImage: "lockstep-cell:test",
        networkPoliciesFor: undefined,
        watchNamespaces: undefined,
        maxConcurrentRolls: 1,
        workers: 2,
        steadyLookMs: 15_000,
      },
    });
    this.create(object(kinds.KUBERNETES_NAMESPACE, "infra"), kinds.KUBERNETES_NAMESPACE);
    this.create(
      object(kinds.STORAGE_CLASS, "standard", {
        metadata: {
          name: "standard",
          annotations: { "storageclass.kubernetes.io/is-default-class": "true" },
        },
        provisioner: "test",
      }),
      kinds.STORAGE_CLASS,
    );
    for (const zone of ["z1", "z2", "z3"]) {
      this.create(
        object(kinds.NODE, `node-${zone}`, {
          metadata: { name: `node-${zone}`, labels: { "topology.kubernetes.io/zone": zone } },
          status: { conditions: [{ type: "Ready", status: "True" }] },
        }),
        kinds.NODE,
      );
    }
  }

  create<T extends KubeObject>(made: KubeObject, kind: ResourceKind<T>): void {
    this.server.store.create(kind, made as T, { manager: "test" });
  }

  async start(): Promise<void> {
    await this.controller.startInformers(this.#stopping.signal);
    this.#running = this.controller.run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.until("the queues are empty", () => this.#running.then(() => true));
    await this.controller.stop();
  }

  /** Lets time pass, and what it brings happen, until something holds. */
  async until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
    for (let turn = 0; turn < 2_000; turn += 1) {
      const held = holds();
      if (held === true) return;
      if (held !== false) {
        await held;
        return;
      }
      await this.runtime.advance(50);
      await settle();
      // Keys are made on threads of their own.
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.fail(`not within the time: ${what}; ${JSON.stringify(this.cell()?.status)}`);
  }

  cell(): CoordinationCell | undefined {
    return this.server.store.get(kinds.COORDINATION_CELL, CELL.metadata);
  }

  list<T extends KubeObject>(kind: ResourceKind<T>): readonly T[] {
    return this.server.store.list<T>(kind);
  }
}

describe("the controller", () => {
  it("makes what a first voter needs, in order, and founds the cell once", async () => {
    const setting = new Setting();
    setting.create(CELL, kinds.COORDINATION_CELL);
    await setting.start();
    await setting.until("the first voter's pod", () => setting.list(kinds.POD).length === 1);

    const cell = setting.cell();
    assert.deepEqual(cell?.metadata.finalizers, ["lockstep.dev/cell"]);
    assert.equal(cell.status?.operation?.kind, "Create");
    const [pod] = setting.list<Pod>(kinds.POD);
    assert.ok(pod !== undefined);
    assert.ok(pod.spec.containers[0]?.args?.includes("--bootstrap"));
    const [member] = setting.list<CellMember>(kinds.CELL_MEMBER);
    assert.equal(member?.spec.bootstrap, true);
    assert.equal(pod.metadata.name, member.metadata.name);
    assert.deepEqual(
      setting.list(kinds.PERSISTENT_VOLUME_CLAIM).map(({ metadata }) => metadata.name),
      [member.metadata.name],
    );
    const services = setting.list(kinds.SERVICE).map(({ metadata }) => metadata.name);
    assert.deepEqual([...services].sort(), ["main-client", "main-peers"]);

    // The authority's key is in the operator's namespace, and nowhere else.
    const withKeys = setting
      .list<Secret>(kinds.SECRET)
      .filter(({ data }) => data !== undefined && "current.key" in data);
    assert.deepEqual(
      withKeys.map(({ metadata }) => metadata.namespace),
      ["lockstep-system"],
    );
    const names = setting.list<Secret>(kinds.SECRET).map(({ metadata }) => metadata.name);
    assert.ok(names.includes("main-client") && names.includes(`${member.metadata.name}-tls`));
    await setting.stop();
  });

  it("writes nothing again while nothing changes", async () => {
    const setting = new Setting();
    setting.create(CELL, kinds.COORDINATION_CELL);
    await setting.start();
    await setting.until("the first voter's pod", () => setting.list(kinds.POD).length === 1);
    // Whatever still follows from that.
    for (let turn = 0; turn < 40; turn += 1) {
      await setting.runtime.advance(500);
    }
    const writes = (): number => setting.server.calls.filter(({ method }) => method !== "GET").length;
    const before = writes();
    for (let turn = 0; turn < 120; turn += 1) {
      await setting.runtime.advance(500);
    }
    assert.equal(writes(), before);
    await setting.stop();
  });

  it("tells a StorageClass that does not exist by name, and makes no member", async () => {
    const setting = new Setting();
    const storage = { ...CELL.spec.storage, storageClassName: "fast" };
    setting.create({ ...CELL, spec: { ...CELL.spec, storage } } as CoordinationCell, kinds.COORDINATION_CELL);
    await setting.start();
    await setting.until("it is stalled", () => setting.cell()?.status?.phase === "Stalled");
    const stalled = setting.cell()?.status?.conditions?.find(({ type }) => type === "Stalled");
    assert.equal(stalled?.reason, "StorageClassMissing");
    assert.match(stalled.message, /no StorageClass fast\. Create it, .*: standard/);
    assert.equal(setting.list(kinds.CELL_MEMBER).length, 0);
    await setting.stop();
  });

  const MADE = [
    kinds.CELL_MEMBER,
    kinds.SERVICE,
    kinds.SERVICE_ACCOUNT,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.SECRET,
  ] as unknown as readonly ResourceKind[];
  /** Here is no garbage collector: what a member owns stays. */
  const leftOf = (setting: Setting): readonly string[] =>
    MADE.flatMap((kind) => setting.list(kind))
      .filter(({ metadata }) => metadata.ownerReferences === undefined)
      .map(({ kind, metadata }) => `${kind} ${metadata.name}`);

  it("hangs nothing on a cell by owner reference, and lets the cell go with all that it made", async () => {
    const setting = new Setting();
    setting.create(CELL, kinds.COORDINATION_CELL);
    await setting.start();
    await setting.until("the first voter's pod", () => setting.list(kinds.POD).length === 1);
    const owners = (Object.values(kinds) as unknown as readonly ResourceKind[])
      .flatMap((kind) => setting.list(kind))
      .flatMap(({ metadata }) => metadata.ownerReferences ?? []);
    assert.deepEqual([...new Set(owners.map(({ kind }) => kind))], ["CellMember"]);
    const late = setting.list(kinds.SERVICE)[0];
    assert.ok(late !== undefined);
    setting.server.store.delete(kinds.COORDINATION_CELL, { namespace: "infra", name: "main" });
    await setting.until("it is gone", () => setting.cell() === undefined);
    assert.deepEqual(leftOf(setting), []);

    // As from an operator whose request was under way all that time.
    setting.create(late, kinds.SERVICE);
    await setting.until("it is swept up", () => leftOf(setting).length === 0);
    await setting.stop();
  });

  it("says what to do when its rights go with a Kubernetes namespace before the cells in it", async () => {
    const setting = new Setting();
    setting.create(CELL, kinds.COORDINATION_CELL);
    await setting.start();
    await setting.until("the first voter's pod", () => setting.list(kinds.POD).length === 1);
    setting.server.fault = ({ namespace, method, watch }) =>
      namespace === "infra" && !(method === "GET" && watch)
        ? { kind: "status", status: 403, reason: "Forbidden" }
        : undefined;
    const deleted = new Date(setting.runtime.wallMs()).toISOString();
    setting.server.store.patch(
      kinds.KUBERNETES_NAMESPACE,
      { name: "infra" },
      { metadata: { finalizers: ["kubernetes"], deletionTimestamp: deleted } },
      { manager: "test" },
    );
    setting.server.store.delete(kinds.COORDINATION_CELL, { namespace: "infra", name: "main" });
    const isTold = (line: string): boolean =>
      line.startsWith("error the rights in a Kubernetes namespace went");
    await setting.until("it is told", () => setting.logged.some(isTold));
    assert.match(setting.logged.find(isTold) ?? "", /"namespace":"infra".*lockstep\.dev\/cell.*by hand/);
    setting.server.fault = undefined;
    await setting.stop();
  });

  it("does not write over a Secret of an application that has a name of the cell's, and says so", async () => {
    const setting = new Setting();
    const metadata = { name: "main-client", namespace: "infra" };
    setting.create({ ...object(kinds.SECRET, "main-client"), metadata }, kinds.SECRET);
    const found = (): Secret | undefined => setting.server.store.get(kinds.SECRET, metadata);
    const before = found();
    setting.create(CELL, kinds.COORDINATION_CELL);
    await setting.start();
    const stalled = (): string =>
      setting.cell()?.status?.conditions?.find(({ type, status }) => type === "Stalled" && status === "True")
        ?.message ?? "";
    await setting.until("it is stalled", () => stalled() !== "");
    assert.match(stalled(), /The Secret infra\/main-client is there already .* Delete or rename it/);
    assert.deepEqual(found(), before);
    assert.equal(setting.list(kinds.CELL_MEMBER).length, 0);
    setting.server.store.delete(kinds.SECRET, metadata);
    await setting.until("the first voter's pod", () => setting.list(kinds.POD).length === 1);
    await setting.stop();
  });

  it("keeps a Namespace waiting for a cell that is not complete", async () => {
    const setting = new Setting();
    setting.create(CELL, kinds.COORDINATION_CELL);
    const tenant: CellNamespace = {
      apiVersion: "lockstep.dev/v1alpha1",
      kind: "Namespace",
      metadata: { name: "jobs", namespace: "infra" },
      spec: { cellRef: { name: "main" }, deletionPolicy: "Delete" },
    };
    setting.create(tenant, kinds.CELL_NAMESPACE);
    await setting.start();
    const found = (): CellNamespace | undefined => setting.list(kinds.CELL_NAMESPACE)[0];
    await setting.until("it waits", () => found()?.status?.phase === "Pending");
    await setting.until("it says for what", () =>
      (found()?.status?.conditions ?? []).some(({ reason }) => reason === "CellUnavailable"),
    );
    assert.deepEqual(found()?.metadata.finalizers, ["lockstep.dev/namespace"]);
    assert.equal(found()?.status?.wireName, "jobs.infra");
    await setting.stop();
  });
});
