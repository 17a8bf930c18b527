// What is written down when a scenario has failed: all that one would ask for next.
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Cluster } from "./cluster.ts";
import { logsOf } from "./layout.ts";

const QUESTION_TIMEOUT_MS = 30_000;
const LOG_LINES = "5000";
/** Pods whose logs are fetched; more than any scenario has. */
const PODS_MAX = 60;

interface PodList {
  readonly items: readonly {
    readonly metadata: { readonly name: string };
    readonly spec: { readonly containers: readonly { readonly name: string }[] };
  }[];
}

/** Writes into `folder` what the cluster and the scenario's namespace look like. Never throws: a question without an answer has its error for an answer. */
export async function writeDiagnostics(cluster: Cluster, namespace: string, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const ask = async (file: string, ...args: readonly string[]): Promise<void> => {
    const text = await answer(cluster, args);
    writeFileSync(join(folder, file), `$ kubectl ${args.join(" ")}\n${text}`);
  };
  const here = ["--namespace", namespace] as const;
  const kinds =
    "pods,pvc,pv,pdb,events,nodes,leases,deployments,statefulsets,services,endpointslices,configmaps";
  await ask("objects.txt", "get", "all,pvc,pv,pdb,nodes", "--all-namespaces", "--output=wide");
  await ask("objects.yaml", "get", kinds, ...here, "--output=yaml");
  await ask("events.txt", "get", "events", "--all-namespaces", "--sort-by=.lastTimestamp");
  await ask("describe-pods.txt", "describe", "pods", ...here);
  await ask("describe-nodes.txt", "describe", "nodes");
  await lockstepObjects(cluster, namespace, folder);
  await podLogs(cluster, namespace, folder);
  cpSync(logsOf(cluster.layout), join(folder, "cluster-logs"), { recursive: true });
}

async function answer(cluster: Cluster, args: readonly string[]): Promise<string> {
  try {
    const { stdout, stderr } = await cluster.client("kubectl", args, {
      timeoutMs: QUESTION_TIMEOUT_MS,
      allowedCodes: [0, 1],
    });
    return `${stdout}${stderr}`;
  } catch (error) {
    return `${(error as Error).message}\n`;
  }
}

/** Objects of our own kinds, whatever there are. */
async function lockstepObjects(cluster: Cluster, namespace: string, folder: string): Promise<void> {
  const kinds = await answer(cluster, ["api-resources", "--api-group=lockstep.dev", "--output=name"]);
  for (const kind of kinds.split("\n").filter((line) => line.endsWith(".lockstep.dev"))) {
    const text = await answer(cluster, ["get", kind, "--namespace", namespace, "--output=yaml"]);
    writeFileSync(join(folder, `${kind}.yaml`), text);
  }
}

async function podLogs(cluster: Cluster, namespace: string, folder: string): Promise<void> {
  let pods: PodList["items"] = [];
  try {
    pods = (await cluster.kubectlJson<PodList>(["get", "pods", "--namespace", namespace])).items;
  } catch {
    return;
  }
  for (const pod of pods.slice(0, PODS_MAX))
    for (const container of pod.spec.containers) {
      const which = ["logs", pod.metadata.name, "--namespace", namespace, `--container=${container.name}`];
      const name = `logs-${pod.metadata.name}-${container.name}`;
      const current = await answer(cluster, [...which, `--tail=${LOG_LINES}`]);
      writeFileSync(join(folder, `${name}.txt`), current);
      const previous = await answer(cluster, [...which, `--tail=${LOG_LINES}`, "--previous"]);
      if (!previous.includes("not found")) writeFileSync(join(folder, `${name}-previous.txt`), previous);
    }
}
