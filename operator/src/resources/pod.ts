import type { ContainerSpec, HttpProbe, Pod, PodSpec, PodVolume } from "../api/core.ts";
import { ANNOTATION, identityOf, LABEL, memberLabels } from "../api/labels.ts";
import {
  claimName,
  memberSecretName,
  peersServiceName,
  podName,
  PORTS,
  serviceAccountName,
} from "../api/names.ts";
import type { CellMember, CoordinationCell, CoordinationCellSpec, PodOverlay } from "../api/types.ts";
import type { PodMode, PodRole } from "../plan/types.ts";
import { memberArguments, recoverArguments, TLS_PATH, VOLUME_PATH } from "./arguments.ts";
import { controlledBy } from "./owner.ts";
import { nodeAffinity } from "./placement.ts";
import { podSpecHash } from "./spec-hash.ts";

/** The member's container; what else runs in the Pod was put there by others. */
export const MEMBER_CONTAINER = "member";
/** User and group of the member's process, which the image has too. */
const MEMBER_USER = 65_532;
/** The program stops by itself within 8 seconds; the rest is for a node that is slow. */
const TERMINATION_GRACE_SECONDS = 30;
/** Group read, for the Secret's files: fsGroup makes them the member's. */
const SECRET_MODE = 0o440;

/** What a member's container asks for when the spec says nothing. */
const DEFAULT_RESOURCES = { requests: { cpu: "100m", memory: "256Mi" } } as const;

export interface MemberPodInput {
  readonly cell: CoordinationCell;
  readonly member: CellMember;
  readonly mode: PodMode;
  readonly role: PodRole;
  /** Image for a cell whose spec names none. */
  readonly defaultImage: string;
  /** Nodes of the cell's other members, without that of the member which this one replaces. */
  readonly otherNodes: readonly string[];
}

/**
 * The Pod of one member, within the restricted Pod Security profile.
 *
 * There is no preStop hook: on SIGTERM the program itself hands its leadership over before it stops. A hook would need a
 * second process with an identity that may do so, and would not run at all in the ways of stopping that skip it; what
 * the program does is part of every stop that is asked for.
 * @throws TypeError for objects that did not come from the apiserver
 */
export function memberPod(input: MemberPodInput): Pod {
  const { cell, member, mode, role } = input;
  const identity = identityOf(cell);
  const name = podName(member.metadata.name);
  const overlay = cell.spec.podTemplate?.metadata;
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name,
      namespace: identity.namespace,
      labels: { ...overlay?.labels, ...memberLabels(identity, member.metadata.name), [LABEL.role]: role },
      annotations: {
        "kubectl.kubernetes.io/default-container": MEMBER_CONTAINER,
        ...overlay?.annotations,
        [ANNOTATION.specHash]: podSpecHash(cell.spec),
        [ANNOTATION.start]: mode.kind,
      },
      ownerReferences: [controlledBy(member)],
    },
    spec: podSpec(input, name),
  };
}

function podSpec(input: MemberPodInput, name: string): PodSpec {
  const { cell, member, otherNodes, mode } = input;
  const { spec } = cell;
  const affinity = nodeAffinity({ topology: spec.topology, zone: member.spec.zone, otherNodes });
  const overlay = spec.podTemplate?.spec;
  return {
    ...podOverlay(overlay ?? {}),
    hostname: name,
    subdomain: peersServiceName(cell.metadata.name),
    serviceAccountName: overlay?.serviceAccountName ?? serviceAccountName(cell.metadata.name),
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    restartPolicy: "Always",
    terminationGracePeriodSeconds: TERMINATION_GRACE_SECONDS,
    securityContext: {
      runAsNonRoot: true,
      runAsUser: MEMBER_USER,
      runAsGroup: MEMBER_USER,
      fsGroup: MEMBER_USER,
      fsGroupChangePolicy: "OnRootMismatch",
      seccompProfile: { type: "RuntimeDefault" },
    },
    ...(affinity === undefined ? {} : { affinity: { nodeAffinity: affinity } }),
    ...(mode.kind === "recover"
      ? {
          initContainers: [
            {
              ...program(input, "recover"),
              args: recoverArguments(mode, { cell: identityOf(cell), member: member.metadata.name }),
            },
          ],
        }
      : {}),
    containers: [memberContainer(input)],
    volumes: volumes(spec, member.metadata.name),
  };
}

/** What the user adds to the Pod as such; the rest of the overlay has its own place. */
function podOverlay(overlay: PodOverlay): Partial<PodSpec> {
  const { nodeSelector, tolerations, priorityClassName, runtimeClassName, schedulerName, imagePullSecrets } =
    overlay;
  return {
    ...(nodeSelector === undefined ? {} : { nodeSelector }),
    ...(tolerations === undefined ? {} : { tolerations }),
    ...(priorityClassName === undefined ? {} : { priorityClassName }),
    ...(runtimeClassName === undefined ? {} : { runtimeClassName }),
    ...(schedulerName === undefined ? {} : { schedulerName }),
    ...(imagePullSecrets === undefined ? {} : { imagePullSecrets }),
  };
}

function memberContainer(input: MemberPodInput): ContainerSpec {
  const { cell, member, mode } = input;
  return {
    ...program(input, MEMBER_CONTAINER),
    args: memberArguments({
      cell: identityOf(cell),
      member: member.metadata.name,
      settings: cell.spec.settings,
      mode,
    }),
    ports: Object.entries(PORTS).map(([name, containerPort]) => ({ name, containerPort })),
    // Long: a log to read and a snapshot to install come before the first answer.
    startupProbe: probe("/livez", { periodSeconds: 1, timeoutSeconds: 2, failureThreshold: 1_800 }),
    readinessProbe: probe("/readyz", { periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 2 }),
    // Says only that the event loop turns: a restart cures no lost quorum and no full disk.
    livenessProbe: probe("/livez", { periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 }),
  };
}

/** The cell's program, whatever it is to do. */
function program({ cell, defaultImage }: MemberPodInput, name: string): ContainerSpec {
  const { image, imagePullPolicy, resources, podTemplate } = cell.spec;
  const env = podTemplate?.spec?.env;
  return {
    name,
    image: image ?? defaultImage,
    ...(imagePullPolicy === undefined ? {} : { imagePullPolicy }),
    ...(env === undefined ? {} : { env }),
    // A condition of the cell then says why a member does not start.
    terminationMessagePolicy: "FallbackToLogsOnError",
    resources: resources ?? DEFAULT_RESOURCES,
    volumeMounts: [
      { name: "data", mountPath: VOLUME_PATH },
      { name: "tls", mountPath: TLS_PATH, readOnly: true },
      { name: "tmp", mountPath: "/tmp" },
    ],
    securityContext: {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    },
  };
}

function probe(path: string, timing: Omit<HttpProbe, "httpGet">): HttpProbe {
  return { httpGet: { path, port: "ops" }, ...timing };
}

function volumes({ tls }: CoordinationCellSpec, member: string): readonly PodVolume[] {
  return [
    { name: "data", persistentVolumeClaim: { claimName: claimName(member) } },
    { name: "tls", secret: { secretName: secretNameOf(tls, member), defaultMode: SECRET_MODE } },
    { name: "tmp", emptyDir: { sizeLimit: "64Mi" } },
  ];
}

/** Name of the Secret with a member's certificate: its own, or what the spec calls it. */
export function secretNameOf(tls: CoordinationCellSpec["tls"], member: string): string {
  return tls.memberSecretName?.replaceAll("$(MEMBER)", member) ?? memberSecretName(member);
}
