import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Certificate, Secret } from "../api/core.ts";
import { CERTIFICATE, SECRET } from "../api/kinds.ts";
import { authoritySecretName } from "../api/names.ts";
import type { CellMember, CoordinationCell } from "../api/types.ts";
import { bundleHashOf, certificatesOf, fingerprintOf } from "../certificates/material.ts";
import { ROTATE_ANNOTATION } from "../certificates/secrets.ts";
import type { MemberStatus } from "../cell/types.ts";
import { createKubeClient, Rest } from "../kube/index.ts";
import type { KubeObject, ResourceKind } from "../kube/index.ts";
import { FakeApiServer, fakeTransport, ManualRuntime } from "../kube/testing/index.ts";
import { coordinationCell } from "../resources/testing/objects.ts";
import type { Answers } from "./ask.ts";
import { createCertificateKeeper } from "./certificate-keeper.ts";
import type { CertificateKeeper } from "./certificate-keeper.ts";

const OPERATOR_NAMESPACE = "lockstep-system";
const MINUTES_20_MS = 20 * 60_000;
const CERT_MANAGER: Partial<CoordinationCell["spec"]["tls"]> = {
  mode: "CertManager",
  issuerRef: { name: "issuer", kind: "Issuer", group: "cert-manager.io" },
};

function memberOf(cell: CoordinationCell, name: string): CellMember {
  const { namespace = "", uid = "" } = cell.metadata;
  return {
    apiVersion: cell.apiVersion,
    kind: "CellMember",
    metadata: { name, namespace, uid: `uid-${name}` },
    spec: { cell: cell.metadata.name, cellUid: uid, storage: { size: "1Gi" } },
  };
}

class Setting {
  readonly runtime = new ManualRuntime();
  readonly server: FakeApiServer;
  readonly keeper: CertificateKeeper;
  readonly cell: CoordinationCell;
  readonly members: readonly CellMember[];

  constructor(
    tls: Partial<CoordinationCell["spec"]["tls"]> = {},
    kinds: readonly ResourceKind[] = [SECRET, CERTIFICATE],
  ) {
    const { runtime } = this;
    this.server = new FakeApiServer({ runtime, kinds: kinds.map((kind) => ({ kind })) });
    const rest = new Rest({ transport: fakeTransport(this.server), runtime });
    const base = coordinationCell();
    this.cell = { ...base, spec: { ...base.spec, tls: { ...base.spec.tls, ...tls } } };
    this.members = ["a", "b"].map((name) => memberOf(this.cell, name));
    this.keeper = createCertificateKeeper({
      kube: createKubeClient({ rest, fieldManager: "test" }),
      wallMs: () => runtime.wallMs(),
      monotonicMs: () => runtime.monotonicMs(),
      operatorNamespace: OPERATOR_NAMESPACE,
    });
  }

  get uid(): string {
    return this.cell.metadata.uid ?? "";
  }

  secret(name: string, namespace = this.cell.metadata.namespace ?? ""): Secret | undefined {
    return this.server.store.get(SECRET, { namespace, name });
  }

  authority(): Secret | undefined {
    return this.secret(authoritySecretName(this.uid), OPERATOR_NAMESPACE);
  }

  phase(): string {
    return Buffer.from(this.authority()?.data?.["phase"] ?? "", "base64").toString();
  }

  /** Members that have loaded what their Secrets hold. */
  answers(): Answers {
    const statuses = new Map(
      this.members.map(({ metadata }) => [
        metadata.name,
        { tls: loadedFrom(this.secret(`${metadata.name}-tls`)) } as unknown as MemberStatus,
      ]),
    );
    return { statuses, configuration: undefined, leader: undefined, leaderTarget: undefined, silence: "" };
  }

  async look(answers: Answers = this.answers()): ReturnType<CertificateKeeper["view"]> {
    await this.keeper.load(this.cell);
    return this.keeper.view(this.cell, this.members, answers);
  }
}

function text(secret: Secret | undefined, key: string): string {
  return Buffer.from(secret?.data?.[key] ?? "", "base64").toString();
}

function loadedFrom(secret: Secret | undefined): MemberStatus["tls"] {
  if (secret === undefined) return undefined;
  const [leaf] = certificatesOf(text(secret, "tls.crt"));
  return {
    bundleHash: bundleHashOf(certificatesOf(text(secret, "ca.crt")).map(fingerprintOf)),
    leafHash: leaf === undefined ? "" : fingerprintOf(leaf),
    leafNotAfterMs: 0,
    reloadError: "",
  };
}

describe("certificates that the operator makes", () => {
  it("are issued for every member, the client and the operator, in one action", async () => {
    const setting = new Setting();
    const first = await setting.look();
    assert.deepEqual([first.kind, first.due], ["waiting", "issue"]);
    await setting.keeper.advance(setting.cell);
    const view = await setting.look();
    assert.deepEqual([view.kind, view.due], ["ready", undefined]);
    assert.ok((view.notAfterMs ?? 0) > setting.runtime.wallMs());
    for (const name of ["a-tls", "b-tls", `${setting.cell.metadata.name}-client`]) {
      assert.ok(setting.secret(name) !== undefined, name);
    }
    assert.equal(setting.secret("a-tls")?.metadata.ownerReferences?.[0]?.name, "a");
    const credentials = setting.keeper.adminCredentials(setting.uid);
    assert.equal(credentials?.cellUid, setting.uid);
    assert.match(credentials.key, /PRIVATE KEY/);
  });

  it("cost no call while nothing is due and what is known is fresh", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    await setting.look();
    const calls = setting.server.calls.length;
    await setting.look();
    assert.equal(setting.server.calls.length, calls);
    // A Secret that somebody deleted is found again after a while, and made anew.
    setting.server.store.delete(SECRET, { namespace: setting.cell.metadata.namespace ?? "", name: "a-tls" });
    await setting.runtime.advance(MINUTES_20_MS);
    assert.equal((await setting.look()).due, "issue");
    await setting.keeper.advance(setting.cell);
    assert.ok(setting.secret("a-tls") !== undefined);
  });

  it("are read anew when the spec has changed", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    await setting.look();
    setting.server.store.delete(SECRET, { namespace: setting.cell.metadata.namespace ?? "", name: "a-tls" });
    assert.equal((await setting.look()).due, undefined);
    const { metadata } = setting.cell;
    const changed = {
      ...setting.cell,
      metadata: { ...metadata, generation: (metadata.generation ?? 0) + 1 },
    };
    assert.equal((await setting.keeper.view(changed, setting.members, setting.answers())).due, "issue");
  });

  it("change their authority in phases, each only when every member has loaded the one before", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    setting.server.store.patch(
      SECRET,
      { namespace: OPERATOR_NAMESPACE, name: authoritySecretName(setting.uid) },
      { metadata: { annotations: { [ROTATE_ANNOTATION]: "true" } } },
      { manager: "person" },
    );
    const before = text(setting.authority(), "current.crt");
    const loadedBefore = setting.answers();
    const turn = async (answers: () => Answers): Promise<void> => {
      await setting.runtime.advance(MINUTES_20_MS);
      if ((await setting.look(answers())).due !== undefined) await setting.keeper.advance(setting.cell);
    };
    // Members that load nothing new hold the rotation where it is.
    for (let count = 0; count < 10; count += 1) await turn(() => loadedBefore);
    assert.equal(setting.phase(), "trusting");
    assert.match((await setting.look(loadedBefore)).message, /member\/a has not loaded its certificates yet/);
    const phases = new Set<string>();
    for (let count = 0; count < 40 && !phases.has("steady"); count += 1) {
      await turn(() => setting.answers());
      phases.add(setting.phase());
    }
    assert.deepEqual([...phases], ["reissuing", "retiring", "steady"]);
    assert.notEqual(text(setting.authority(), "current.crt"), before);
    assert.notEqual(setting.authority()?.metadata.annotations?.[ROTATE_ANNOTATION], "true");
  });

  it("say what is wrong with an authority's Secret that somebody changed", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    setting.server.store.patch(
      SECRET,
      { namespace: OPERATOR_NAMESPACE, name: authoritySecretName(setting.uid) },
      { data: { phase: "bm9uc2Vuc2U=" } },
      { manager: "person" },
    );
    await setting.runtime.advance(MINUTES_20_MS);
    const view = await setting.look();
    assert.deepEqual([view.kind, view.due], ["waiting", undefined]);
    assert.match(view.message, /is not as the operator wrote it/);
  });

  it("leave nothing in the operator's namespace when the cell goes", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    await setting.keeper.release(setting.cell);
    const left = setting.server.store
      .list(SECRET)
      .filter(({ metadata }: KubeObject) => metadata.namespace === OPERATOR_NAMESPACE);
    assert.deepEqual(left, []);
    assert.equal(setting.keeper.adminCredentials(setting.uid), undefined);
  });
});

describe("a Secret of a name that the cell needs", () => {
  const client = (setting: Setting): string => `${setting.cell.metadata.name}-client`;
  const make = (setting: Setting, name: string, labels: Readonly<Record<string, string>> = {}): Secret =>
    setting.server.store.create<Secret>(
      SECRET,
      {
        apiVersion: "v1",
        kind: "Secret",
        metadata: { name, namespace: setting.cell.metadata.namespace ?? "", labels },
        data: { password: "c2VjcmV0" },
      },
      { manager: "person" },
    );

  it("which is somebody else's is never written, is named, and holds up no other", async () => {
    const setting = new Setting();
    const made = make(setting, client(setting));
    await setting.look();
    await setting.keeper.advance(setting.cell);
    const view = await setting.look();
    assert.deepEqual(setting.secret(client(setting)), made);
    assert.deepEqual([view.kind, view.due], ["waiting", undefined]);
    assert.match(view.taken ?? "", /^The Secret apps\/orders-client is there already .* Delete or rename it/);
    assert.ok(setting.secret("a-tls") !== undefined && setting.secret("b-tls") !== undefined);
    assert.ok(setting.keeper.adminCredentials(setting.uid) !== undefined);

    setting.server.store.delete(SECRET, made.metadata);
    await setting.runtime.advance(10_000);
    assert.equal((await setting.look()).due, "issue");
    await setting.keeper.advance(setting.cell);
    assert.deepEqual([(await setting.look()).taken, (await setting.look()).kind], [undefined, "ready"]);
  });

  it("which took the place of a member's is not written, and no rotation goes on over it", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    const answers = setting.answers();
    setting.server.store.delete(SECRET, setting.secret("a-tls")?.metadata ?? { name: "" });
    const made = make(setting, "a-tls");
    const ref = { namespace: OPERATOR_NAMESPACE, name: authoritySecretName(setting.uid) };
    const patch = { metadata: { annotations: { [ROTATE_ANNOTATION]: "true" } } };
    setting.server.store.patch(SECRET, ref, patch, { manager: "person" });
    for (let turn = 0; turn < 5; turn += 1) {
      await setting.runtime.advance(MINUTES_20_MS);
      const view = await setting.look(answers);
      assert.match(view.taken ?? "", /Secret apps\/a-tls/);
      if (view.due !== undefined) await setting.keeper.advance(setting.cell);
    }
    assert.deepEqual(setting.secret("a-tls"), made);
    assert.equal(setting.phase(), "steady", "nobody knows what the member trusts");
  });

  it("which an earlier cell of the name left is told as that", async () => {
    const setting = new Setting();
    const labels = { "lockstep.dev/cell": setting.cell.metadata.name, "lockstep.dev/cell-uid": "earlier" };
    const made = make(setting, client(setting), labels);
    await setting.look();
    await setting.keeper.advance(setting.cell);
    assert.match((await setting.look()).taken ?? "", /left of an earlier cell of this name \(uid earlier\)/);
    assert.deepEqual(setting.secret(client(setting)), made);
  });

  it("is not written over by cert-manager either", async () => {
    const setting = new Setting(CERT_MANAGER);
    make(setting, client(setting));
    const order = { namespace: setting.cell.metadata.namespace ?? "", name: "a-tls" };
    const foreign = { apiVersion: "cert-manager.io/v1", kind: "Certificate", metadata: order, spec: {} };
    setting.server.store.create(CERTIFICATE, foreign as unknown as Certificate, { manager: "person" });
    await setting.look();
    await setting.keeper.advance(setting.cell);
    const orders = setting.server.store.list<Certificate>(CERTIFICATE).map(({ metadata }) => metadata.name);
    assert.deepEqual([...orders].sort(), ["a-tls", "b-tls", "orders-operator"]);
    assert.deepEqual(setting.server.store.get<Certificate>(CERTIFICATE, order)?.spec, {});
    const view = await setting.look();
    assert.deepEqual([view.kind, view.due], ["waiting", undefined]);
    assert.match(view.taken ?? "", /apps\/(orders-client|a-tls)/);
    await setting.runtime.advance(10_000);
    assert.equal((await setting.look()).due, "issue", "it is looked at again");
  });

  it("which an earlier version hung on the cell is parted from it", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    const before = setting.secret(client(setting));
    assert.ok(before !== undefined && !("ownerReferences" in before.metadata));
    const { apiVersion, kind } = setting.cell;
    const owner = { apiVersion, kind, name: setting.cell.metadata.name, uid: setting.uid };
    const patch = { metadata: { ownerReferences: [owner] } };
    setting.server.store.patch(SECRET, before.metadata, patch, { manager: "earlier" });
    await setting.runtime.advance(MINUTES_20_MS);
    assert.equal((await setting.look()).due, "issue");
    await setting.keeper.advance(setting.cell);
    assert.deepEqual(setting.secret(client(setting))?.metadata.ownerReferences ?? [], []);
    assert.deepEqual(setting.secret(client(setting))?.data, before.data);
    assert.equal((await setting.look()).due, undefined);
  });

  it("is the authority's, restored from a backup without its labels: it is used", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    const authority = setting.authority();
    assert.ok(authority !== undefined);
    setting.server.store.delete(SECRET, authority.metadata);
    const { name, namespace = "" } = authority.metadata;
    setting.server.store.create(
      SECRET,
      { ...authority, metadata: { name, namespace } },
      { manager: "velero" },
    );
    await setting.runtime.advance(MINUTES_20_MS);
    const view = await setting.look();
    assert.deepEqual([view.kind, view.due, view.taken], ["ready", undefined, undefined]);
  });
});

describe("certificates of a cell that goes", () => {
  it("go with it, and what is somebody else's stays", async () => {
    const setting = new Setting();
    await setting.look();
    await setting.keeper.advance(setting.cell);
    const client = setting.secret("orders-client");
    assert.ok(client !== undefined);
    await setting.keeper.release(setting.cell);
    assert.equal(setting.secret("orders-client"), undefined);
    const { name, namespace = "" } = client.metadata;
    setting.server.store.create(SECRET, { ...client, metadata: { name, namespace } }, { manager: "person" });
    await setting.keeper.release(setting.cell);
    assert.ok(setting.secret("orders-client") !== undefined);
  });

  it("are cert-manager's orders first, also where cert-manager is gone", async () => {
    const setting = new Setting(CERT_MANAGER);
    await setting.look();
    await setting.keeper.advance(setting.cell);
    await setting.keeper.release(setting.cell);
    const orders = setting.server.store.list<Certificate>(CERTIFICATE);
    assert.deepEqual(
      orders.map(({ metadata }) => [metadata.name, metadata.ownerReferences?.[0]?.kind]),
      [
        ["a-tls", "CellMember"],
        ["b-tls", "CellMember"],
      ],
      "a member's go with the member",
    );
    const without = new Setting(CERT_MANAGER, [SECRET]);
    await without.keeper.release(without.cell);
  });

  it("stay when the user makes them", async () => {
    const setting = new Setting({ mode: "Secret", operatorSecretName: "op" });
    const metadata = { name: "op", namespace: setting.cell.metadata.namespace ?? "" };
    const own: Secret = { apiVersion: "v1", kind: "Secret", metadata, data: {} };
    setting.server.store.create(SECRET, own, { manager: "person" });
    assert.equal((await setting.look()).taken, undefined);
    await setting.keeper.release(setting.cell);
    assert.ok(setting.secret("op") !== undefined);
  });
});

describe("certificates that others make", () => {
  it("are named one by one while they are missing", async () => {
    const setting = new Setting({ mode: "Secret" });
    const view = await setting.look();
    assert.deepEqual([view.kind, view.due], ["waiting", undefined]);
    assert.match(view.message, /Secret .*a-tls does not exist.*lockstep:\/\/.*\/member\/a/);
    assert.equal(setting.server.store.list(SECRET).length, 0);
  });

  it("are ordered from cert-manager once, with their identities", async () => {
    const setting = new Setting(CERT_MANAGER);
    assert.equal((await setting.look()).due, "issue");
    await setting.keeper.advance(setting.cell);
    const orders = setting.server.store.list(CERTIFICATE);
    assert.equal(orders.length, 4);
    assert.ok(orders.some(({ spec }) => spec.uris[0] === `lockstep://${setting.uid}/member/a`));
    const view = await setting.look();
    assert.deepEqual([view.kind, view.due], ["waiting", undefined]);
  });
});
