import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Pod } from "../api/core.ts";
import type { CoordinationCellSpec } from "../api/types.ts";
import { memberPod } from "./pod.ts";
import type { MemberPodInput } from "./pod.ts";
import { CELL_UID, coordinationCell, memberObject } from "./testing/objects.ts";

function podOf(input: Partial<MemberPodInput> = {}): Pod {
  return memberPod({
    cell: coordinationCell(),
    member: memberObject(),
    mode: { kind: "existing" },
    role: "voter",
    defaultImage: "lockstep-cell:0.1.0",
    otherNodes: [],
    ...input,
  });
}

function withSpec(spec: Partial<CoordinationCellSpec>): Pod {
  return podOf({ cell: coordinationCell(spec) });
}

const argumentsOf = (pod: Pod): readonly string[] => pod.spec.containers[0]?.args ?? [];

describe("the Pod of a member", () => {
  it("passes the restricted Pod Security profile", () => {
    const pod = podOf({ mode: { kind: "recover", newName: "orders-x7k2p", cellId: "old" } });
    assert.equal(pod.spec.securityContext?.runAsNonRoot, true);
    assert.deepEqual(pod.spec.securityContext.seccompProfile, { type: "RuntimeDefault" });
    assert.equal(pod.spec.securityContext.fsGroupChangePolicy, "OnRootMismatch");
    const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
    assert.equal(containers.length, 2);
    for (const { securityContext } of containers) {
      assert.equal(securityContext?.allowPrivilegeEscalation, false);
      assert.equal(securityContext.readOnlyRootFilesystem, true);
      assert.deepEqual(securityContext.capabilities, { drop: ["ALL"] });
    }
    assert.equal(pod.spec.automountServiceAccountToken, false);
  });

  it("has a host name of its own, which is what it tells to others", () => {
    const pod = podOf();
    assert.equal(pod.spec.hostname, "orders-x7k2p");
    assert.equal(pod.spec.subdomain, "orders-peers");
    for (const argument of [
      "--peer=0.0.0.0:7402",
      "--advertise-peer=orders-x7k2p.orders-peers.apps.svc:7402",
      "--advertise-client=orders-x7k2p.orders-peers.apps.svc:7400",
      "--name=orders-x7k2p",
      "--data=/var/lib/lockstep/member",
      "--tls-cert=/etc/lockstep/tls/tls.crt",
      "--tls-key=/etc/lockstep/tls/tls.key",
      "--tls-ca=/etc/lockstep/tls/ca.crt",
      `--tls-cell-uid=${CELL_UID}`,
    ]) {
      assert.ok(argumentsOf(pod).includes(argument), argument);
    }
  });

  it("starts its member as it is told, and says so in an annotation", () => {
    const origin = (pod: Pod): readonly string[] =>
      argumentsOf(pod).filter((argument) => /^--(bootstrap|join)/.test(argument));
    for (const [mode, wanted] of [
      [{ kind: "bootstrap" }, ["--bootstrap"]],
      [
        { kind: "join", targets: ["orders-a", "orders-b"] },
        ["--join=orders-a.orders-peers.apps.svc:7403,orders-b.orders-peers.apps.svc:7403"],
      ],
      [{ kind: "existing" }, []],
      [{ kind: "recover", newName: "orders-x7k2p", cellId: "old" }, []],
    ] as const) {
      const pod = podOf({ mode });
      assert.deepEqual(origin(pod), wanted, mode.kind);
      assert.equal(pod.metadata.annotations?.["lockstep.dev/start"], mode.kind);
      assert.equal(pod.spec.initContainers?.length ?? 0, mode.kind === "recover" ? 1 : 0);
    }
  });

  it("recovers before it starts, on the same volume, naming the cell that it gives up", () => {
    const pod = podOf({ mode: { kind: "recover", newName: "orders-x7k2p", cellId: "old" } });
    const [init] = pod.spec.initContainers ?? [];
    assert.deepEqual(init?.args, [
      "recover",
      "/var/lib/lockstep/member",
      "--name=orders-x7k2p",
      "--expect-cell-id=old",
      ...argumentsOf(pod).filter((argument) => argument.startsWith("--advertise-")),
    ]);
    assert.equal(init.args.length, 9);
    assert.deepEqual(init.volumeMounts, pod.spec.containers[0]?.volumeMounts);
  });

  it("asks for life and readiness on the port for probes only, and is given long to start", () => {
    const [container] = podOf().spec.containers;
    assert.deepEqual(container?.livenessProbe?.httpGet, { path: "/livez", port: "ops" });
    assert.deepEqual(container.readinessProbe?.httpGet, { path: "/readyz", port: "ops" });
    const { periodSeconds = 0, failureThreshold = 0 } = container.startupProbe ?? {};
    assert.ok(periodSeconds * failureThreshold >= 1_800);
    assert.deepEqual(container.ports?.find(({ name }) => name === "ops")?.containerPort, 7404);
  });

  it("belongs to its CellMember, and is found by cell, member and role", () => {
    const { metadata } = podOf({ role: "learner" });
    assert.deepEqual(metadata.ownerReferences, [
      {
        apiVersion: "lockstep.dev/v1alpha1",
        kind: "CellMember",
        name: "orders-x7k2p",
        uid: "uid-of-orders-x7k2p",
        controller: true,
      },
    ]);
    assert.equal(metadata.labels?.["lockstep.dev/role"], "learner");
    assert.equal(metadata.labels["lockstep.dev/cell-uid"], CELL_UID);
    assert.equal(metadata.labels["lockstep.dev/member"], "orders-x7k2p");
  });

  it("takes what the user adds, but no label of ours from the user", () => {
    const pod = withSpec({
      image: "registry.example/lockstep:2",
      resources: { limits: { memory: "1Gi" } },
      podTemplate: {
        metadata: {
          labels: { team: "payments", "lockstep.dev/role": "voter-of-mine" },
          annotations: { note: "hello" },
        },
        spec: {
          nodeSelector: { disk: "nvme" },
          tolerations: [{ operator: "Exists" }],
          priorityClassName: "high",
          imagePullSecrets: [{ name: "registry" }],
          serviceAccountName: "mine",
          env: [{ name: "NODE_OPTIONS", value: "--max-old-space-size=512" }],
        },
      },
    });
    assert.equal(pod.metadata.labels?.["team"], "payments");
    assert.equal(pod.metadata.labels["lockstep.dev/role"], "voter");
    assert.equal(pod.metadata.annotations?.["note"], "hello");
    const { nodeSelector, tolerations, priorityClassName, imagePullSecrets, serviceAccountName } = pod.spec;
    assert.deepEqual(
      { nodeSelector, tolerations, priorityClassName, imagePullSecrets, serviceAccountName },
      {
        nodeSelector: { disk: "nvme" },
        tolerations: [{ operator: "Exists" }],
        priorityClassName: "high",
        imagePullSecrets: [{ name: "registry" }],
        serviceAccountName: "mine",
      },
    );
    const [container] = pod.spec.containers;
    assert.equal(container?.image, "registry.example/lockstep:2");
    assert.deepEqual(container.resources, { limits: { memory: "1Gi" } });
    assert.deepEqual(container.env, [{ name: "NODE_OPTIONS", value: "--max-old-space-size=512" }]);
    assert.ok(!("env" in pod.spec));
  });

  it("passes settings on in the program's own units, and leaves out what is not set", () => {
    const settings = (pod: Pod): readonly string[] =>
      argumentsOf(pod).filter((argument) => /^--(quota|retention|log)/.test(argument));
    assert.deepEqual(settings(withSpec({})), []);
    assert.deepEqual(settings(withSpec({ settings: { quota: "4Gi", retention: "2h", logLevel: "debug" } })), [
      "--quota-bytes=4294967296",
      "--retention-age-ms=7200000",
      "--log-level=debug",
    ]);
  });

  it("reads its certificate from its own Secret, under the name that the spec gives it", () => {
    const secretOf = (pod: Pod): unknown => pod.spec.volumes?.find(({ name }) => name === "tls")?.secret;
    assert.deepEqual(secretOf(podOf()), { secretName: "orders-x7k2p-tls", defaultMode: 0o440 });
    const tls = {
      mode: "Secret",
      operatorSecretName: "operator",
      memberSecretName: "pki-$(MEMBER)",
      leafDuration: "2160h",
      clientOverlap: "5m",
    } as const;
    assert.deepEqual(secretOf(withSpec({ tls })), { secretName: "pki-orders-x7k2p", defaultMode: 0o440 });
  });
});

describe("the place of a member's Pod", () => {
  const others = ["node-2", "node-1"];
  const member = memberObject("orders-x7k2p", { zone: "zone-a" });

  it("is in its zone and on no other member's node, when that is required", () => {
    assert.deepEqual(podOf({ member, otherNodes: others }).spec.affinity?.nodeAffinity, {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [
          {
            matchExpressions: [{ key: "topology.kubernetes.io/zone", operator: "In", values: ["zone-a"] }],
            matchFields: [
              { key: "metadata.name", operator: "NotIn", values: ["node-1"] },
              { key: "metadata.name", operator: "NotIn", values: ["node-2"] },
            ],
          },
        ],
      },
    });
  });

  it("is apart from the others only if possible, when that is preferred", () => {
    const cell = coordinationCell({ topology: { zoneKey: "rack", hostSpread: "Preferred" } });
    assert.deepEqual(podOf({ cell, member, otherNodes: ["node-1"] }).spec.affinity?.nodeAffinity, {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: "rack", operator: "In", values: ["zone-a"] }] }],
      },
      preferredDuringSchedulingIgnoredDuringExecution: [
        {
          weight: 100,
          preference: { matchFields: [{ key: "metadata.name", operator: "NotIn", values: ["node-1"] }] },
        },
      ],
    });
  });

  it("is anywhere for the first member of a cluster without zones", () => {
    assert.equal(podOf().spec.affinity, undefined);
  });
});
