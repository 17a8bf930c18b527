/** What the planner sees of Kubernetes' own objects: plain facts, made from raw JSON that may lack anything. */
import type {
  ContainerStatus,
  Node,
  ObjectCondition,
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  TerminatedState,
} from "../api/core.ts";
import { ANNOTATION } from "../api/labels.ts";
import { quantityValue } from "../api/quantity.ts";
import type { ClaimView, NodeView, PodMode, PodView } from "../plan/types.ts";

type Trouble = PodView["trouble"];

/** Reasons of a waiting container that do not pass by themselves, or only after somebody did something. */
const STUCK_REASONS = new Set([
  "CrashLoopBackOff",
  "CreateContainerConfigError",
  "CreateContainerError",
  "ErrImageNeverPull",
  "ErrImagePull",
  "ImageInspectError",
  "ImagePullBackOff",
  "InvalidImageName",
  "RunContainerError",
]);
const IMAGE_REASONS = new Set(["ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName"]);
/** Kubernetes' own words say what is wrong, and not what to do. */
const ADVICE = {
  image: "Correct spec.image, or see to it that the nodes can pull it (podTemplate.spec.imagePullSecrets).",
  placement: "Lower spec.resources, correct spec.podTemplate.spec, or add nodes.",
} as const;
const HOST_LABEL = "kubernetes.io/hostname";
const MESSAGE_LENGTH_MAX = 1_000;

export function podView(pod: Pod): PodView {
  const { metadata, spec, status } = pod;
  const annotations = metadata.annotations ?? {};
  const ready = conditionOf(status?.conditions, "Ready");
  return {
    name: metadata.name,
    uid: metadata.uid ?? "",
    phase: status?.phase ?? "Pending",
    node: spec.nodeName,
    ready: ready?.status === "True",
    terminating: metadata.deletionTimestamp !== undefined,
    start: startOf(annotations[ANNOTATION.start]),
    specHash: annotations[ANNOTATION.specHash] ?? "",
    image: spec.containers[0]?.image ?? "",
    createdAtMs: timeOf(metadata.creationTimestamp) ?? 0,
    readySinceMs: ready?.status === "True" ? timeOf(ready.lastTransitionTime) : undefined,
    restarts: (status?.containerStatuses ?? []).reduce((sum, container) => sum + container.restartCount, 0),
    trouble: podTrouble(pod),
    labels: metadata.labels ?? {},
  };
}

function startOf(annotation: string | undefined): PodMode["kind"] {
  switch (annotation) {
    case "bootstrap":
    case "join":
    case "recover":
      return annotation;
    default:
      return "existing";
  }
}

function podTrouble({ spec, status }: Pod): Trouble {
  if (status?.phase === "Failed") {
    return trouble(status.reason ?? "Failed", status.message ?? "The pod failed.");
  }
  const containers = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  for (const container of containers) {
    const found = containerTrouble(container);
    if (found !== undefined) return found;
  }
  const scheduled = conditionOf(status?.conditions, "PodScheduled");
  if (spec.nodeName === undefined && scheduled?.status === "False") {
    const message = `${asSentence(scheduled.message ?? "No node suits it")} ${ADVICE.placement}`;
    return trouble(scheduled.reason ?? "Unschedulable", message);
  }
  return undefined;
}

function containerTrouble(container: ContainerStatus): Trouble {
  const { name, image, state, lastState, ready } = container;
  const waiting = state?.waiting;
  if (waiting?.reason !== undefined && STUCK_REASONS.has(waiting.reason)) {
    const what = asSentence(`${name} (${image ?? ""}): ${waiting.message ?? waiting.reason}`);
    if (IMAGE_REASONS.has(waiting.reason)) return trouble(waiting.reason, `${what} ${ADVICE.image}`);
    const before = lastState?.terminated;
    return trouble(waiting.reason, before === undefined ? what : describeEnd(name, before));
  }
  const ended = state?.terminated;
  if (ended !== undefined && ended.exitCode !== 0 && !ready) {
    return trouble(ended.reason ?? "Error", describeEnd(name, ended));
  }
  return undefined;
}

function describeEnd(name: string, { exitCode, message }: TerminatedState): string {
  const words = lastWords(message ?? "");
  return asSentence(`${name} ended with code ${String(exitCode)}${words === "" ? "" : `: ${words}`}`);
}

interface LogLine {
  readonly msg?: unknown;
  readonly reason?: unknown;
  readonly err?: { readonly message?: unknown };
}

/** The last line that a program wrote; of a line of our members' logs only what a person reads. */
function lastWords(text: string): string {
  const line = text.trim().split("\n").at(-1) ?? "";
  if (!line.startsWith("{")) return line;
  try {
    const { msg, reason, err } = JSON.parse(line) as LogLine;
    const parts = [msg, reason, err?.message].filter((part) => typeof part === "string");
    return parts.length === 0 ? line : parts.join(": ");
  } catch {
    // Cut off by the kubelet.
    return line;
  }
}

function asSentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function trouble(reason: string, message: string): NonNullable<Trouble> {
  return { reason, message: message.slice(0, MESSAGE_LENGTH_MAX) };
}

/** @param volume the bound PersistentVolume, which says where it can be used; undefined: not bound, or not readable. */
export function claimView(
  claim: PersistentVolumeClaim,
  volume: PersistentVolume | undefined,
  zoneKey: string,
): ClaimView {
  const { metadata, spec, status } = claim;
  return {
    name: metadata.name,
    uid: metadata.uid ?? "",
    phase: status?.phase ?? "Pending",
    terminating: metadata.deletionTimestamp !== undefined,
    requestedBytes: quantityValue(spec.resources.requests.storage),
    capacityBytes: quantityValue(status?.capacity?.storage ?? "0"),
    zone: pinnedTo(volume, zoneKey),
    node: pinnedTo(volume, HOST_LABEL),
    trouble: claimTrouble(claim),
  };
}

function claimTrouble({ status }: PersistentVolumeClaim): ClaimView["trouble"] {
  if (status?.phase === "Lost") return trouble("VolumeLost", "Its volume does not exist any more.");
  // Kubernetes names its own conditions of a failed change so (ControllerResizeError, NodeResizeError, ModifyVolumeError).
  const failed = status?.conditions?.find(({ type, status: is }) => type.endsWith("Error") && is === "True");
  return failed === undefined ? undefined : trouble(failed.type, failed.message ?? failed.reason ?? "");
}

/** The one value of `label` that a volume is tied to; undefined: none, or several. */
function pinnedTo(volume: PersistentVolume | undefined, label: string): string | undefined {
  const terms = volume?.spec.nodeAffinity?.required?.nodeSelectorTerms ?? [];
  const values = terms.map(
    (term) =>
      (term.matchExpressions ?? []).find(
        ({ key, operator, values: allowed }) => key === label && operator === "In" && allowed.length === 1,
      )?.values[0],
  );
  const [first] = values;
  return values.every((value) => value === first) ? first : undefined;
}

export function nodeView(node: Node, zoneKey: string): NodeView {
  return {
    name: node.metadata.name,
    zone: node.metadata.labels?.[zoneKey],
    ready: conditionOf(node.status?.conditions, "Ready")?.status === "True",
    schedulable: node.spec?.unschedulable !== true,
  };
}

/** The name by which volumes are tied to a node; usually the node's own. */
export function hostLabelOf(node: Node): string {
  return node.metadata.labels?.[HOST_LABEL] ?? node.metadata.name;
}

function conditionOf(
  conditions: readonly ObjectCondition[] | undefined,
  type: string,
): ObjectCondition | undefined {
  return conditions?.find((condition) => condition.type === type);
}

function timeOf(text: string | undefined): number | undefined {
  const time = Date.parse(text ?? "");
  return Number.isNaN(time) ? undefined : time;
}
