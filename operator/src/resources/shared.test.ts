import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { memberClaim } from "./claim.ts";
import { cellMember } from "./member.ts";
import { memberPod } from "./pod.ts";
import { clientService, disruptionBudget, networkPolicy, peersService, serviceAccount } from "./shared.ts";
import { CELL_UID, coordinationCell, memberObject } from "./testing/objects.ts";

const pod = memberPod({
  cell: coordinationCell(),
  member: memberObject(),
  mode: { kind: "existing" },
  role: "voter",
  defaultImage: "lockstep-cell:0.1.0",
  otherNodes: [],
});

function selects(selector: Readonly<Record<string, string>>, labels = pod.metadata.labels ?? {}): boolean {
  return Object.entries(selector).every(([key, value]) => labels[key] === value);
}

const learner = { ...pod.metadata.labels, "lockstep.dev/role": "learner" };
const ofAnEarlierCell = { ...pod.metadata.labels, "lockstep.dev/cell-uid": "another" };

describe("the Service of applications", () => {
  it("sends nobody anywhere before the cell is complete", () => {
    assert.equal(selects(clientService(coordinationCell(), false).spec.selector), false);
  });

  it("selects voters of this very cell afterwards", () => {
    const { selector, ports } = clientService(coordinationCell(), true).spec;
    assert.equal(selects(selector), true);
    assert.equal(selects(selector, learner), false);
    assert.equal(selects(selector, ofAnEarlierCell), false);
    assert.deepEqual(
      ports.map(({ name, port }) => [name, port]),
      [
        ["client", 7400],
        ["http", 7401],
      ],
    );
  });
});

describe("the Service of the members", () => {
  it("resolves every member, ready or not", () => {
    const { clusterIP, publishNotReadyAddresses, selector } = peersService(coordinationCell()).spec;
    assert.equal(clusterIP, "None");
    assert.equal(publishNotReadyAddresses, true);
    assert.equal(selects(selector), true);
    assert.equal(selects(selector, learner), true);
    assert.equal(selects(selector, ofAnEarlierCell), false);
  });

  it("has the name that Pods use as their subdomain", () => {
    assert.equal(peersService(coordinationCell()).metadata.name, pod.spec.subdomain);
  });
});

describe("the PodDisruptionBudget", () => {
  it("counts voters, in a whole number", () => {
    const { spec } = disruptionBudget(coordinationCell(), 2);
    assert.equal(spec.minAvailable, 2);
    assert.equal(spec.unhealthyPodEvictionPolicy, "IfHealthyBudget");
    assert.equal(selects(spec.selector.matchLabels), true);
    assert.equal(selects(spec.selector.matchLabels, learner), false);
    assert.throws(() => disruptionBudget(coordinationCell(), 1.5), RangeError);
    assert.throws(() => disruptionBudget(coordinationCell(), -1), RangeError);
  });
});

describe("the ServiceAccount", () => {
  it("has no token, and is the one that Pods name", () => {
    const account = serviceAccount(coordinationCell());
    assert.equal(account.automountServiceAccountToken, false);
    assert.equal(account.metadata.name, pod.spec.serviceAccountName);
  });
});

describe("the NetworkPolicy", () => {
  const operator = { namespace: "lockstep-system", labels: { "app.kubernetes.io/component": "operator" } };
  const rulesOf = (allowed?: Parameters<typeof coordinationCell>[0]) =>
    networkPolicy(coordinationCell(allowed), operator).spec.ingress;
  const portsOf = (rule: ReturnType<typeof rulesOf>[number] | undefined) =>
    rule?.ports.map(({ port }) => port);

  it("lets members reach members, the operator the admin port, and anybody the probes", () => {
    const [peers, operators, clients, ops] = rulesOf();
    assert.deepEqual(portsOf(peers), [7402, 7403]);
    assert.ok(selects(peers?.from?.[0]?.podSelector?.matchLabels ?? { none: "" }));
    assert.deepEqual(portsOf(operators), [7403]);
    assert.deepEqual(operators?.from, [
      {
        namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "lockstep-system" } },
        podSelector: { matchLabels: operator.labels },
      },
    ]);
    assert.deepEqual(portsOf(clients), [7400, 7401]);
    assert.deepEqual(portsOf(ops), [7404]);
    assert.equal(ops?.from, undefined);
  });

  it("lets applications in from the namespaces that may use the cell", () => {
    const from = (allowed?: Parameters<typeof coordinationCell>[0]) =>
      rulesOf(allowed)[2]?.from?.slice(0, -1);
    assert.deepEqual(from(), [{ podSelector: {} }]);
    assert.deepEqual(from({ allowedNamespaces: { from: "All" } }), [{ namespaceSelector: {} }]);
    const selector = { matchLabels: { team: "payments" } };
    assert.deepEqual(from({ allowedNamespaces: { from: "Selector", selector } }), [
      { podSelector: {} },
      { namespaceSelector: selector },
    ]);
  });
});

describe("what a cell needs to live", () => {
  it("says by labels whose it is, and hangs on no owner that could be deleted in the foreground", () => {
    const cell = coordinationCell({ storage: { size: "1Gi", reclaimPolicy: "Delete" } });
    const operator = { namespace: "lockstep-system", labels: {} };
    const wanted = { name: "orders-b", zone: undefined, bootstrap: false, replaces: undefined };
    for (const { kind, metadata } of [
      clientService(cell, true),
      peersService(cell),
      disruptionBudget(cell, 2),
      serviceAccount(cell),
      networkPolicy(cell, operator),
      cellMember(cell, wanted),
    ]) {
      assert.ok(!("ownerReferences" in metadata), kind);
      assert.equal(metadata.labels?.["lockstep.dev/cell-uid"], CELL_UID, kind);
    }
    const owners = [pod, memberClaim(cell, memberObject())].map(
      ({ metadata }) => metadata.ownerReferences?.[0],
    );
    assert.deepEqual(
      owners.map((owner) => [owner?.kind, owner?.controller]),
      [
        ["CellMember", true],
        ["CellMember", true],
      ],
    );
  });
});

describe("the volume of a member", () => {
  it("outlives its member unless the spec says otherwise", () => {
    assert.equal(memberClaim(coordinationCell(), memberObject()).metadata.ownerReferences, undefined);
    const cell = coordinationCell({ storage: { size: "10Gi", reclaimPolicy: "Delete" } });
    const [owner] = memberClaim(cell, memberObject()).metadata.ownerReferences ?? [];
    assert.equal(owner?.uid, "uid-of-orders-x7k2p");
  });

  it("tells whose it is, and is of the class and size of its member", () => {
    const member = memberObject("orders-a", { storage: { size: "5Gi", storageClassName: "fast" } });
    const claim = memberClaim(coordinationCell(), member);
    assert.equal(claim.metadata.name, "orders-a");
    assert.equal(claim.metadata.labels?.["lockstep.dev/cell"], "orders");
    assert.equal(claim.metadata.labels["lockstep.dev/cell-uid"], CELL_UID);
    assert.equal(claim.spec.storageClassName, "fast");
    assert.equal(claim.spec.resources.requests.storage, "5Gi");
    assert.equal(memberClaim(coordinationCell(), member, "6Gi").spec.resources.requests.storage, "6Gi");
    assert.ok(!("storageClassName" in memberClaim(coordinationCell(), memberObject()).spec));
  });
});

describe("the object of a new member", () => {
  it("stays until the cell has let it go, and names what it replaces", () => {
    const member = cellMember(coordinationCell(), {
      name: "orders-b",
      zone: "zone-a",
      bootstrap: false,
      replaces: "orders-a",
    });
    assert.deepEqual(member.metadata.finalizers, ["lockstep.dev/member"]);
    assert.deepEqual(member.spec, {
      cell: "orders",
      cellUid: CELL_UID,
      zone: "zone-a",
      replaces: "orders-a",
      storage: { size: "10Gi" },
    });
  });
});
