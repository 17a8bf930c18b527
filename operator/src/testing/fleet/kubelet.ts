import type { ObjectCondition, Pod } from "../../api/core.ts";
import { toStamp } from "../../plan/time.ts";

/** Images that a node tells it has: as many as kubelets report at most, and most of a node's object. */
const IMAGES = 50;

/** A node's status as kubelets write it, at full length. */
export function nodeStatus(
  nowStamp: string,
): Readonly<Record<string, unknown>> & { readonly conditions: readonly ObjectCondition[] } {
  const condition = (type: string, status: "True" | "False", reason: string): ObjectCondition => ({
    ...{ type, status, reason, message: `${reason} since this node began` },
    ...{ lastHeartbeatTime: nowStamp, lastTransitionTime: "2026-01-01T00:00:00Z" },
  });
  const size = { cpu: "16", memory: "65536Mi", pods: "110", "ephemeral-storage": "100Gi" };
  return {
    capacity: size,
    allocatable: size,
    // Ready first: our scheduler looks there.
    conditions: [
      condition("Ready", "True", "KubeletReady"),
      condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
      condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
      condition("PIDPressure", "False", "KubeletHasSufficientPID"),
    ],
    images: Array.from({ length: IMAGES }, (_, index) => ({
      names: [`registry.example.com/team/application-${String(index)}:1.${String(index)}.0`],
      sizeBytes: 100_000_000 + index,
    })),
    nodeInfo: {
      ...{ machineID: "m", systemUUID: "s", bootID: "b", kernelVersion: "6.1.0", osImage: "Linux" },
      ...{ containerRuntimeVersion: "containerd://2.0.0", kubeletVersion: "v1.34.4", kubeProxyVersion: "" },
      ...{ operatingSystem: "linux", architecture: "amd64" },
    },
  };
}

/** A running Pod's status as kubelets write it. */
export function podStatus(of: {
  readonly pod: Pod;
  readonly ready: boolean;
  readonly ip: string;
  readonly hostIp: string;
}): Readonly<Record<string, unknown>> {
  const { pod, ready, ip, hostIp } = of;
  const now = toStamp(Date.now());
  const started = pod.metadata.creationTimestamp ?? now;
  const before = pod.status?.conditions ?? [];
  const condition = (type: string, holds: boolean): Readonly<Record<string, unknown>> => {
    const status = holds ? "True" : "False";
    const known = before.find((it) => it.type === type && it.status === status);
    return { type, status, lastTransitionTime: known?.lastTransitionTime ?? now };
  };
  const container = pod.spec.containers[0];
  const image = container?.image ?? "";
  return {
    phase: "Running",
    ...{ podIP: ip, podIPs: [{ ip }], hostIP: hostIp, hostIPs: [{ ip: hostIp }], startTime: started },
    qosClass: "Burstable",
    conditions: [
      condition("PodReadyToStartContainers", true),
      condition("Initialized", true),
      condition("Ready", ready),
      condition("ContainersReady", ready),
      condition("PodScheduled", true),
    ],
    containerStatuses: [
      {
        ...{ name: container?.name ?? "", ready, started: true, restartCount: 0, lastState: {} },
        ...{ image, imageID: `sha256:${"0".repeat(64)}`, containerID: `containerd://${"0".repeat(64)}` },
        state: { running: { startedAt: started } },
      },
    ],
  };
}
