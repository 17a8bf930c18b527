// What the harness can do to the cluster, and that it can put it in order again.
import assert from "node:assert/strict";
import { nodeNameOf, SLOTS } from "../layout.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { claim, IDLE, isReady, nodePod, type PodObject } from "./pods.ts";

async function readyPod(context: ScenarioContext, name: string): Promise<PodObject> {
  return context.until(`pod ${name} is Ready`, async () => {
    const pod = await context.kubectlJson<PodObject>(["get", "pod", name]);
    return isReady(pod) ? pod : undefined;
  });
}

/** Pods do not notice that nobody governs them. */
async function controlPlaneStopsAndStarts(context: ScenarioContext): Promise<void> {
  const { cluster } = context;
  const { image } = await context.runBase();
  await context.apply(nodePod({ name: "witness", image, script: IDLE, nodeName: cluster.node(1).name }));
  const before = await readyPod(context, "witness");
  await cluster.controlPlane.stop("kube-apiserver");
  await assert.rejects(context.kubectl(["get", "pods"], { timeoutMs: 10_000 }));
  await cluster.controlPlane.start("kube-apiserver");
  for (const component of ["kube-controller-manager", "etcd", "kube-scheduler", "coredns"] as const)
    await cluster.controlPlane.restart(component);
  await cluster.untilReady(cluster.nodes, context.signal);
  const after = await readyPod(context, "witness");
  assert.equal(after.metadata.uid, before.metadata.uid);
  assert.equal(after.status?.containerStatuses?.[0]?.restartCount, 0);
}

async function kubeletsRestart(context: ScenarioContext): Promise<void> {
  const { cluster } = context;
  const { image } = await context.runBase();
  const node = cluster.node(5);
  await node.restartKubelet();
  await cluster.untilReady([node], context.signal);
  await context.apply(nodePod({ name: "after-restart", image, script: IDLE, nodeName: node.name }));
  await readyPod(context, "after-restart");
}

/** A machine dies with its disks; its successor has another name, in the same zone, and the old volume is not found on it. */
async function lostNodesAreReplaced(context: ScenarioContext): Promise<void> {
  const { cluster } = context;
  const { image } = await context.runBase();
  const node = cluster.node(3);
  const name = node.name;
  await context.apply(
    claim("local", "32Mi"),
    nodePod({ name: "doomed", image, script: IDLE, nodeName: name, claim: "local" }),
  );
  await readyPod(context, "doomed");
  await node.lose();
  await context.until(`${name} is NotReady`, async () => !(await cluster.readyNodes()).includes(name));
  await cluster.rebuild(3);
  assert.equal(node.name, nodeNameOf(3, node.generation));
  assert.notEqual(node.name, name);
  assert.equal((await cluster.readyNodes()).length, SLOTS.length);
  await context.apply(nodePod({ name: "successor", image, script: IDLE, nodeName: node.name }));
  await readyPod(context, "successor");
  // Force: no kubelet will ever confirm that it ended.
  await context.kubectl(["delete", "pod", "doomed", "--force", "--grace-period=0", "--ignore-not-found"]);
}

export const groundFaults: Scenario = {
  name: "ground-faults",
  about:
    "the cluster's own faults: control plane restarted, a kubelet restarted, a node lost for good and replaced",
  ci: false,
  images: "none",
  minutes: 5,
  run: async (context) => {
    for (const part of [controlPlaneStopsAndStarts, kubeletsRestart, lostNodesAreReplaced]) {
      const started = performance.now();
      await part(context);
      context.say(`${part.name}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
    }
  },
};
