// The cluster's own facts, on which every other scenario stands.
import assert from "node:assert/strict";
import { KUBERNETES_SERVICE, nodeNameOf, SLOTS, zoneOf } from "../layout.ts";
import type { Scenario, ScenarioContext } from "../scenario.ts";
import { claim, IDLE, isReady, nodePod, type PodObject } from "./pods.ts";

interface NodeList {
  readonly items: readonly {
    readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
  }[];
}

interface ClaimObject {
  readonly spec: { readonly volumeName?: string };
  readonly status?: { readonly capacity?: { readonly storage?: string } };
}

interface VolumeObject {
  readonly spec: {
    readonly nodeAffinity: {
      readonly required: {
        readonly nodeSelectorTerms: readonly {
          readonly matchExpressions: readonly { readonly values: readonly string[] }[];
        }[];
      };
    };
  };
}

async function fiveReadyNodesInThreeZones({ cluster }: ScenarioContext): Promise<void> {
  await cluster.untilReady();
  const { items } = await cluster.kubectlJson<NodeList>(["get", "nodes"]);
  const zones = items.map(({ metadata }) => [metadata.name, metadata.labels["topology.kubernetes.io/zone"]]);
  assert.deepEqual(
    zones,
    SLOTS.map((slot) => [nodeNameOf(slot, 1), zoneOf(slot)]),
  );
}

/** Prints one JSON line: who it is, what it may write, whom it finds and reaches. */
const PROBE = `
import { lookup } from "node:dns/promises";
import { readFileSync, writeFileSync } from "node:fs";
import { get } from "node:https";
const root = "/var/run/secrets/kubernetes.io/serviceaccount/";
const attempt = (path) => { try { writeFileSync(path, ""); return "written"; } catch (error) { return error.code; } };
const version = () => new Promise((resolve, reject) => get("https://kubernetes.default.svc/version",
  { ca: readFileSync(root + "ca.crt"), headers: { authorization: "Bearer " + readFileSync(root + "token", "utf8") } },
  (response) => { response.resume(); resolve(response.statusCode); }).on("error", reject));
console.log(JSON.stringify({ uid: process.getuid(), root: attempt("/probe"), tmp: attempt("/tmp/probe"),
  kubernetes: (await lookup("kubernetes.default.svc.cluster.local")).address, version: await version() }));
`;

async function restrictedPodsRun(context: ScenarioContext): Promise<void> {
  const { image } = await context.runBase();
  await context.kubectl([
    "label",
    "namespace",
    context.namespace,
    "pod-security.kubernetes.io/enforce=restricted",
  ]);
  const refused = await context.cluster.client(
    "kubectl",
    ["run", "privileged", `--image=${image}`, `--namespace=${context.namespace}`, "--privileged"],
    { allowedCodes: [1], signal: context.signal },
  );
  assert.match(refused.stderr, /violates PodSecurity "restricted/);
  await context.apply(nodePod({ name: "probe", image, script: PROBE }));
  await context.kubectl(["wait", "pod/probe", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"]);
  const said = JSON.parse(await context.kubectl(["logs", "probe"])) as unknown;
  assert.deepEqual(said, {
    uid: 1000,
    root: "EROFS",
    tmp: "EROFS",
    kubernetes: KUBERNETES_SERVICE,
    version: 200,
  });
}

const SERVER = `
import { createServer } from "node:http";
createServer((request, response) => response.end("hello")).listen(8080);
process.on("SIGTERM", () => process.exit(0));
`;

/** Through the Service and past it, on its own node and on another: the answers must find their way back. */
async function podsReachEachOther(context: ScenarioContext): Promise<void> {
  const { image } = await context.runBase();
  const [first, second] = [context.cluster.node(1).name, context.cluster.node(3).name];
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "server" },
    spec: { selector: { app: "server" }, ports: [{ port: 80, targetPort: 8080 }] },
  };
  await context.apply(
    service,
    nodePod({ name: "server", image, script: SERVER, nodeName: first }),
    nodePod({ name: "near", image, script: IDLE, nodeName: first }),
    nodePod({ name: "far", image, script: IDLE, nodeName: second }),
  );
  for (const name of ["server", "near", "far"]) await untilPodReady(context, name);
  const { status } = await context.kubectlJson<PodObject>(["get", "pod", "server"]);
  for (const from of ["near", "far", "server"])
    for (const url of [`http://server.${context.namespace}.svc`, `http://${status?.podIP ?? ""}:8080`]) {
      const script = `console.log(await (await fetch("${url}", { signal: AbortSignal.timeout(2000) })).text())`;
      // kube-proxy needs a moment to learn of a new endpoint.
      await context.until(
        `${from} reaches ${url}`,
        async () => (await inPod(context, from, script)) === "hello",
        {
          timeoutMs: 20_000,
        },
      );
    }
}

async function untilPodReady(context: ScenarioContext, name: string): Promise<PodObject> {
  return context.until(`pod ${name} is Ready`, async () => {
    const pod = await context.kubectlJson<PodObject>(["get", "pod", name]);
    return isReady(pod) ? pod : undefined;
  });
}

async function inPod(context: ScenarioContext, pod: string, script: string): Promise<string> {
  return (await context.kubectl(["exec", pod, "--", "node", "--input-type=module", "--eval", script])).trim();
}

const TOTAL_MIB = `import { statfsSync } from "node:fs"; const s = statfsSync("/data"); console.log(Math.round(s.blocks * s.bsize / 2 ** 20))`;
const WRITE = `import { writeFileSync } from "node:fs"; try { writeFileSync("/data/file", Buffer.alloc(1 << 20)); console.log("written"); } catch (error) { console.log(error.code); }`;
const LIST = `import { readdirSync } from "node:fs"; console.log(readdirSync("/data").join())`;

/** A volume is made where the pod is, grows under it, fills, and comes back empty. */
async function volumesFollowTheirPods(context: ScenarioContext): Promise<void> {
  const { cluster, namespace } = context;
  const { image } = await context.runBase();
  await context.apply(
    claim("data", "256Mi"),
    nodePod({ name: "keeper", image, script: IDLE, claim: "data" }),
  );
  const pod = await untilPodReady(context, "keeper");
  const bound = await context.kubectlJson<ClaimObject>(["get", "pvc", "data"]);
  assert.equal(bound.status?.capacity?.storage, "256Mi");
  const volume = await cluster.kubectlJson<VolumeObject>(["get", "pv", bound.spec.volumeName ?? ""]);
  const [term] = volume.spec.nodeAffinity.required.nodeSelectorTerms;
  assert.deepEqual(term?.matchExpressions[0]?.values, [pod.spec.nodeName]);

  assert.ok(Number(await inPod(context, "keeper", TOTAL_MIB)) <= 256);
  await context.kubectl([
    ...["patch", "pvc", "data", "--patch"],
    JSON.stringify({ spec: { resources: { requests: { storage: "512Mi" } } } }),
  ]);
  await context.until("the claim has grown to 512Mi", async () => {
    const grown = await context.kubectlJson<ClaimObject>(["get", "pvc", "data"]);
    return grown.status?.capacity?.storage === "512Mi";
  });
  assert.ok(Number(await inPod(context, "keeper", TOTAL_MIB)) > 400);

  await cluster.volumes.fill(namespace, "data");
  assert.equal(await inPod(context, "keeper", WRITE), "ENOSPC");
  await cluster.volumes.free(namespace, "data");
  assert.equal(await inPod(context, "keeper", WRITE), "written");
  await cluster.volumes.wipe(namespace, "data");
  assert.equal(await inPod(context, "keeper", LIST), "lost+found");

  await context.kubectl(["delete", "pod/keeper", "pvc/data"]);
  await context.until("the volume is gone", async () => {
    const left = await cluster.kubectl(["get", "pv", bound.spec.volumeName ?? "", "--ignore-not-found"]);
    return left === "";
  });
}

/** kill -9 from outside, as a crash: Kubernetes starts the container again. */
async function killedContainersStartAgain(context: ScenarioContext): Promise<void> {
  const { image } = await context.runBase();
  await context.apply(nodePod({ name: "victim", image, script: IDLE, restartPolicy: "Always" }));
  const pod = await untilPodReady(context, "victim");
  await context.cluster.nodeNamed(pod.spec.nodeName ?? "").signalPod(context.namespace, "victim");
  await context.until("the container was started again", async () => {
    const { status } = await context.kubectlJson<PodObject>(["get", "pod", "victim"]);
    const [container] = status?.containerStatuses ?? [];
    return container?.restartCount === 1 && container.ready;
  });
}

/** An eviction, as a drain makes it. Returns what the apiserver said. */
async function evict(context: ScenarioContext, pod: string): Promise<string> {
  const { namespace, cluster, signal } = context;
  const path = `/api/v1/namespaces/${namespace}/pods/${pod}/eviction`;
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: pod, namespace } };
  const { stdout, stderr } = await cluster.client("kubectl", ["create", "--raw", path, "-f", "-"], {
    input: JSON.stringify(eviction),
    allowedCodes: [0, 1],
    signal,
  });
  return `${stdout}${stderr}`;
}

async function evictionsRespectTheBudget(context: ScenarioContext): Promise<void> {
  const { image } = await context.runBase();
  const budget = (minAvailable: number): object => ({
    apiVersion: "policy/v1",
    kind: "PodDisruptionBudget",
    metadata: { name: "pair" },
    spec: { minAvailable, selector: { matchLabels: { pair: "yes" } } },
  });
  const member = (name: string): object => nodePod({ name, image, script: IDLE, labels: { pair: "yes" } });
  await context.apply(budget(2), member("pair-1"), member("pair-2"));
  for (const name of ["pair-1", "pair-2"]) await untilPodReady(context, name);
  await context.until("the budget has seen both", async () => {
    const { status } = await context.kubectlJson<{ status?: { currentHealthy?: number } }>([
      "get",
      "pdb",
      "pair",
    ]);
    return status?.currentHealthy === 2;
  });
  assert.match(await evict(context, "pair-1"), /violate the pod's disruption budget/);
  await context.apply(budget(1));
  await context.until("one may be evicted", async () => /"Success"/.test(await evict(context, "pair-1")), {
    timeoutMs: 20_000,
    everyMs: 500,
  });
}

async function partitionedNodesAreSeenAndHeal(context: ScenarioContext): Promise<void> {
  const node = context.cluster.node(2);
  const ready = async (): Promise<boolean> => (await context.cluster.readyNodes()).includes(node.name);
  await node.partition();
  context.finally(async () => {
    if (node.condition === "partitioned") await node.heal();
  });
  await context.until(`${node.name} is NotReady`, async () => !(await ready()));
  assert.equal((await context.cluster.readyNodes()).length, SLOTS.length - 1);
  await node.heal();
  await context.until(`${node.name} is Ready again`, ready);
}

export const ground: Scenario = {
  name: "ground",
  about:
    "the cluster itself: nodes and zones, restricted pods, DNS, Services, volumes, kill, evictions, a partition",
  ci: true,
  images: "none",
  minutes: 5,
  run: async (context) => {
    const parts = [
      fiveReadyNodesInThreeZones,
      restrictedPodsRun,
      podsReachEachOther,
      volumesFollowTheirPods,
      killedContainersStartAgain,
      evictionsRespectTheBudget,
      partitionedNodesAreSeenAndHeal,
    ];
    for (const part of parts) {
      const started = performance.now();
      await part(context);
      context.say(`${part.name}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
    }
  },
};
