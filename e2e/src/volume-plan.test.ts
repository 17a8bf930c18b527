import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { PROVISIONER } from "./layout.ts";
import { parseBytes } from "./quantity.ts";
import { planVolumes, volumeAnnotations, type Claim, type Volume } from "./volume-plan.ts";

const SELECTED = { "volume.kubernetes.io/selected-node": "node-2" };
const OURS = { "volume.kubernetes.io/storage-provisioner": PROVISIONER };

function pending(annotations: Readonly<Record<string, string>>): Claim {
  return {
    metadata: { name: "data", namespace: "here", uid: "u1", annotations },
    spec: { resources: { requests: { storage: "1Gi" } } },
    status: { phase: "Pending" },
  };
}

function bound(requested: string, capacity: string): Claim {
  const claim = pending({ ...SELECTED, ...OURS });
  return {
    ...claim,
    spec: { volumeName: "pvc-u1", resources: { requests: { storage: requested } } },
    status: { phase: "Bound", capacity: { storage: capacity } },
  };
}

function volume(phase: string, policy = "Delete", annotations = volumeAnnotations): Volume {
  return {
    metadata: { name: "pvc-u1", annotations },
    spec: { persistentVolumeReclaimPolicy: policy },
    status: { phase },
  };
}

describe("planVolumes", () => {
  it("provisions a claim of ours on the node that the scheduler chose", () => {
    const claim = pending({ ...SELECTED, ...OURS });
    assert.deepEqual(planVolumes([claim], []), [
      { kind: "provision", claim, node: "node-2", volume: "pvc-u1" },
    ]);
  });

  it("waits for the scheduler, and leaves other provisioners' claims alone", () => {
    assert.deepEqual(planVolumes([pending(OURS), pending(SELECTED)], []), []);
    const foreign = pending({ ...SELECTED, "volume.kubernetes.io/storage-provisioner": "another" });
    assert.deepEqual(planVolumes([foreign], []), []);
  });

  it("does not provision twice while Kubernetes has yet to bind, nor for a claim that is going", () => {
    const claim = pending({ ...SELECTED, ...OURS });
    assert.deepEqual(planVolumes([claim], [volume("Available")]), []);
    const going = { ...claim, metadata: { ...claim.metadata, deletionTimestamp: "now" } };
    assert.deepEqual(planVolumes([going], []), []);
  });

  it("grows a bound claim that asks for more, and only for more", () => {
    const claim = bound("2Gi", "1Gi");
    const own = volume("Bound");
    assert.deepEqual(planVolumes([claim], [own]), [{ kind: "grow", claim, volume: own, storage: "2Gi" }]);
    assert.deepEqual(planVolumes([bound("1Gi", "1024Mi")], [own]), []);
    assert.deepEqual(planVolumes([bound("512Mi", "1Gi")], [own]), []);
  });

  it("reclaims a released volume of ours, unless it is to be retained", () => {
    assert.deepEqual(planVolumes([], [volume("Released")]), [{ kind: "reclaim", volume: "pvc-u1" }]);
    assert.deepEqual(planVolumes([], [volume("Released", "Retain")]), []);
    assert.deepEqual(planVolumes([], [volume("Bound")]), []);
    assert.deepEqual(planVolumes([], [volume("Released", "Delete", {})]), []);
  });
});

describe("parseBytes", () => {
  for (const [text, bytes] of [
    ["0", 0],
    ["512", 512],
    ["1Gi", 2 ** 30],
    ["1.5Ki", 1536],
    ["2G", 2e9],
    ["64Mi", 64 * 2 ** 20],
  ] as const)
    it(`reads ${text}`, () => assert.equal(parseBytes(text), bytes));

  for (const text of ["", "Gi", "1gi", "-1", "1 Gi", "1e3x"])
    it(`refuses "${text}"`, () => assert.throws(() => parseBytes(text), TypeError));
});
