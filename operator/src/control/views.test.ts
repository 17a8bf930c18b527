import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Node, PersistentVolume, PersistentVolumeClaim, Pod } from "../api/core.ts";
import { claimView, hostLabelOf, nodeView, podView } from "./views.ts";

const ZONE = "topology.kubernetes.io/zone";

function pod(overrides: { metadata?: object; spec?: object; status?: object } = {}): Pod {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "main-aaaaa", uid: "u1", ...overrides.metadata },
    spec: { containers: [{ name: "member", image: "cell:1" }], ...overrides.spec },
    ...(overrides.status === undefined ? {} : { status: overrides.status }),
  };
}

function claim(status: object | undefined, storage = "10Gi"): PersistentVolumeClaim {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name: "main-aaaaa", uid: "c1" },
    spec: { accessModes: ["ReadWriteOnce"], volumeName: "pv", resources: { requests: { storage } } },
    ...(status === undefined ? {} : { status }),
  };
}

function volume(...terms: readonly (readonly [string, readonly string[]])[][]): PersistentVolume {
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name: "pv" },
    spec: {
      nodeAffinity: {
        required: {
          nodeSelectorTerms: terms.map((term) => ({
            matchExpressions: term.map(([key, values]) => ({ key, operator: "In" as const, values })),
          })),
        },
      },
    },
  };
}

describe("seeing a pod", () => {
  it("is Pending, not ready and without trouble while nothing is known", () => {
    const view = podView(pod());
    assert.equal(view.phase, "Pending");
    assert.equal(view.ready, false);
    assert.equal(view.readySinceMs, undefined);
    assert.equal(view.trouble, undefined);
    assert.equal(view.start, "existing");
  });

  it("knows since when it is ready, how it starts, and what it was made from", () => {
    const view = podView(
      pod({
        metadata: { annotations: { "lockstep.dev/start": "join", "lockstep.dev/spec-hash": "h" } },
        spec: { containers: [{ name: "member", image: "cell:1" }], nodeName: "n1" },
        status: {
          phase: "Running",
          conditions: [{ type: "Ready", status: "True", lastTransitionTime: "2026-01-01T00:00:10Z" }],
          containerStatuses: [{ name: "member", ready: true, restartCount: 2 }],
        },
      }),
    );
    assert.equal(view.readySinceMs, Date.parse("2026-01-01T00:00:10Z"));
    assert.deepEqual([view.start, view.specHash, view.node, view.restarts], ["join", "h", "n1", 2]);
  });

  it("is not ready any more once the kubelet says so", () => {
    const conditions = [
      { type: "Ready", status: "False" as const, lastTransitionTime: "2026-01-01T00:00:10Z" },
    ];
    assert.equal(podView(pod({ status: { conditions } })).readySinceMs, undefined);
  });

  it("tells an image that cannot be had, in the kubelet's words, and what to do", () => {
    const view = podView(
      pod({
        status: {
          phase: "Pending",
          containerStatuses: [
            {
              name: "member",
              image: "cell:nope",
              ready: false,
              restartCount: 0,
              state: { waiting: { reason: "ImagePullBackOff", message: "Back-off pulling image" } },
            },
          ],
        },
      }),
    );
    assert.deepEqual(view.trouble, {
      reason: "ImagePullBackOff",
      message:
        "member (cell:nope): Back-off pulling image. Correct spec.image, or see to it that the nodes can pull it (podTemplate.spec.imagePullSecrets).",
    });
  });

  it("takes a container that is being created for no trouble", () => {
    const waiting = { reason: "ContainerCreating" };
    const containerStatuses = [{ name: "member", ready: false, restartCount: 0, state: { waiting } }];
    assert.equal(podView(pod({ status: { containerStatuses } })).trouble, undefined);
  });

  it("tells what the scheduler says, and why a pod was evicted", () => {
    const conditions = [
      { type: "PodScheduled", status: "False" as const, reason: "Unschedulable", message: "0/5 nodes" },
    ];
    assert.equal(
      podView(pod({ status: { conditions } })).trouble?.message,
      "0/5 nodes. Lower spec.resources, correct spec.podTemplate.spec, or add nodes.",
    );
    const evicted = podView(
      pod({ status: { phase: "Failed", reason: "Evicted", message: "disk pressure" } }),
    );
    assert.deepEqual(evicted.trouble, { reason: "Evicted", message: "disk pressure" });
  });

  it("tells a program that ended badly", () => {
    const state = { terminated: { exitCode: 2, reason: "Error" } };
    const containerStatuses = [{ name: "member", ready: false, restartCount: 1, state }];
    const view = podView(pod({ status: { phase: "Running", containerStatuses } }));
    assert.equal(view.trouble?.message, "member ended with code 2.");
  });

  it("tells the last words of a program that ends again and again, rather than that the kubelet waits", () => {
    const waiting = { reason: "CrashLoopBackOff", message: "back-off 10s restarting failed container" };
    const fatal = {
      level: 60,
      err: { message: "format version is known", stack: "..." },
      msg: "the member stops",
    };
    const message = `{"level":30,"msg":"starting"}\n${JSON.stringify(fatal)}\n`;
    const lastState = { terminated: { exitCode: 2, message } };
    const told = (last: object): unknown =>
      podView(
        pod({
          status: {
            phase: "Running",
            containerStatuses: [
              { name: "member", ready: false, restartCount: 3, state: { waiting }, ...last },
            ],
          },
        }),
      ).trouble;
    assert.deepEqual(told({ lastState }), {
      reason: "CrashLoopBackOff",
      message: "member ended with code 2: the member stops: format version is known.",
    });
    const failure = { level: 50, reason: "its folder is empty", msg: "the member could not start" };
    const failed = { terminated: { exitCode: 1, message: JSON.stringify(failure) } };
    assert.deepEqual(told({ lastState: failed }), {
      reason: "CrashLoopBackOff",
      message: "member ended with code 1: the member could not start: its folder is empty.",
    });
    assert.deepEqual(told({}), {
      reason: "CrashLoopBackOff",
      message: "member (): back-off 10s restarting failed container.",
    });
  });
});

describe("seeing a claim", () => {
  it("knows the node and zone that its volume is tied to", () => {
    const view = claimView(
      claim({ phase: "Bound", capacity: { storage: "10Gi" } }),
      volume([
        ["kubernetes.io/hostname", ["node-1"]],
        [ZONE, ["zone-1"]],
      ]),
      ZONE,
    );
    assert.deepEqual([view.node, view.zone, view.phase], ["node-1", "zone-1", "Bound"]);
    assert.equal(view.capacityBytes, 10 * 1024 ** 3);
    assert.equal(view.requestedBytes, 10 * 1024 ** 3);
  });

  it("is tied to no node when its volume can be used from several", () => {
    const several = claimView(claim({}), volume([["kubernetes.io/hostname", ["a", "b"]]]), ZONE);
    assert.equal(several.node, undefined);
    const alternatives = volume([["kubernetes.io/hostname", ["a"]]], [["kubernetes.io/hostname", ["b"]]]);
    assert.equal(claimView(claim({}), alternatives, ZONE).node, undefined);
    assert.equal(claimView(claim({}), undefined, ZONE).node, undefined);
  });

  it("tells a lost volume, and a growth that failed", () => {
    assert.equal(claimView(claim({ phase: "Lost" }), undefined, ZONE).trouble?.reason, "VolumeLost");
    const conditions = [{ type: "ControllerResizeError", status: "True" as const, message: "no space" }];
    assert.deepEqual(claimView(claim({ phase: "Bound", conditions }), undefined, ZONE).trouble, {
      reason: "ControllerResizeError",
      message: "no space",
    });
  });
});

describe("seeing a node", () => {
  const node: Node = {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "n1", labels: { [ZONE]: "z1", "kubernetes.io/hostname": "host-1" } },
    spec: { unschedulable: true },
    status: { conditions: [{ type: "Ready", status: "Unknown" }] },
  };

  it("knows its zone, whether it is ready, and whether it takes pods", () => {
    assert.deepEqual(nodeView(node, ZONE), { name: "n1", zone: "z1", ready: false, schedulable: false });
    assert.equal(hostLabelOf(node), "host-1");
  });
});
