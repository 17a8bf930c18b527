import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { CoordinationCellSpec } from "../api/types.ts";
import { memberPod } from "./pod.ts";
import { podSpecHash } from "./spec-hash.ts";
import { CELL_SPEC, coordinationCell, memberObject } from "./testing/objects.ts";

const hashWith = (spec: Partial<CoordinationCellSpec>): string => podSpecHash({ ...CELL_SPEC, ...spec });

const FULL: Partial<CoordinationCellSpec> = {
  image: "registry.example/lockstep:1",
  imagePullPolicy: "IfNotPresent",
  resources: { requests: { cpu: 1, memory: "1Gi" } },
  podTemplate: {
    metadata: { labels: { team: "payments" } },
    spec: { env: [{ name: "A", value: "1" }], tolerations: [{ operator: "Exists" }] },
  },
  settings: { quota: "4Gi", retention: "2h", logLevel: "info" },
};

describe("the hash of a wanted Pod", () => {
  it("is the same in every release: an upgrade of the operator restarts no member", () => {
    // Never change these: whoever does restarts every cell in the world.
    assert.equal(hashWith({}), "44136fa355b3678a");
    assert.equal(hashWith(FULL), "79146067e3473bd1");
  });

  it("changes with every field of the Pod that the user decides", () => {
    const hashes = [
      hashWith({}),
      hashWith({ image: "a" }),
      hashWith({ image: "b" }),
      hashWith({ imagePullPolicy: "Always" }),
      hashWith({ resources: { limits: { memory: "1Gi" } } }),
      hashWith({ settings: { logLevel: "debug" } }),
      hashWith({ settings: { quota: "1Gi" } }),
      hashWith({ podTemplate: { metadata: { labels: { a: "b" } } } }),
      hashWith({ podTemplate: { spec: { env: [{ name: "A", value: "1" }] } } }),
      hashWith({ podTemplate: { spec: { env: [{ name: "A", value: "2" }] } } }),
      hashWith({
        tls: {
          mode: "Secret",
          operatorSecretName: "a",
          memberSecretName: "b-$(MEMBER)",
          leafDuration: "1h",
          clientOverlap: "5m",
        },
      }),
    ];
    assert.equal(new Set(hashes).size, hashes.length);
  });

  it("does not change with what needs no restart", () => {
    for (const spec of [
      { voters: 5 },
      { paused: true },
      { storage: { size: "20Gi", reclaimPolicy: "Delete" } },
      { topology: { zoneKey: "topology.kubernetes.io/zone", hostSpread: "Preferred", zones: ["a"] } },
      { updatePolicy: { mode: "Manual", minReadySeconds: 60 } },
      { replacementPolicy: { mode: "Never", after: "1h", slowDisk: "Replace" } },
      { tls: { mode: "Managed", leafDuration: "24h", clientOverlap: "5m" } },
      { recovery: { survivor: "a", cellId: "b" } },
      { allowedNamespaces: { from: "All" } },
    ] as const) {
      assert.equal(hashWith(spec), hashWith({}), JSON.stringify(spec));
    }
  });

  it("does not change with the order of keys, nor with what is written but empty", () => {
    assert.equal(
      hashWith({ settings: { logLevel: "info", quota: "1Gi" } }),
      hashWith({ settings: { quota: "1Gi", logLevel: "info" } }),
    );
    assert.equal(
      hashWith({ settings: {}, podTemplate: { metadata: { labels: {} }, spec: {} } }),
      hashWith({}),
    );
  });

  it("stands in the Pod, whatever its member's place, role, origin and default image", () => {
    const hashes = new Set(
      ["node-1", "node-2"].map(
        (node, index) =>
          memberPod({
            cell: coordinationCell(),
            member: memberObject(`orders-${String(index)}`, { zone: `zone-${String(index)}` }),
            mode: index === 0 ? { kind: "bootstrap" } : { kind: "join", targets: ["orders-0"] },
            role: index === 0 ? "voter" : "learner",
            defaultImage: `lockstep-cell:${String(index)}`,
            otherNodes: [node],
          }).metadata.annotations?.["lockstep.dev/spec-hash"],
      ),
    );
    assert.deepEqual([...hashes], [hashWith({})]);
  });
});
