// Objects that scenarios make for themselves.

/** What a pod of the base image runs with. */
export interface NodePod {
  readonly name: string;
  readonly image: string;
  /** JavaScript, run as an ES module by Node inside the pod. */
  readonly script: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** The Node that it must run on. Absent: the scheduler chooses. */
  readonly nodeName?: string;
  /** A claim, mounted at /data. */
  readonly claim?: string;
  /** Default: Never. */
  readonly restartPolicy?: "Always" | "Never";
}

/** A script that stays until it is told to end. */
export const IDLE = "process.on('SIGTERM', () => process.exit(0)); setInterval(() => undefined, 60_000);";

/** A pod that the `restricted` Pod Security profile admits: user 1000, read-only root, no capabilities. */
export function nodePod(pod: NodePod): object {
  const { claim } = pod;
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: pod.name, labels: { app: pod.name, ...pod.labels } },
    spec: {
      restartPolicy: pod.restartPolicy ?? "Never",
      terminationGracePeriodSeconds: 5,
      ...(pod.nodeName === undefined ? {} : { nodeSelector: { "kubernetes.io/hostname": pod.nodeName } }),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: 1000,
        fsGroup: 1000,
        seccompProfile: { type: "RuntimeDefault" },
      },
      containers: [
        {
          name: "main",
          image: pod.image,
          imagePullPolicy: "Never",
          command: ["node", "--input-type=module", "--eval", pod.script],
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          },
          ...(claim === undefined ? {} : { volumeMounts: [{ name: "data", mountPath: "/data" }] }),
        },
      ],
      ...(claim === undefined
        ? {}
        : { volumes: [{ name: "data", persistentVolumeClaim: { claimName: claim } }] }),
    },
  };
}

/** A claim of the default StorageClass. */
export function claim(name: string, storage: string): object {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name },
    spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage } } },
  };
}

/** The fields of a pod that scenarios look at. */
export interface PodObject {
  readonly metadata: { readonly name: string; readonly uid: string };
  readonly spec: { readonly nodeName?: string };
  readonly status?: {
    readonly phase?: string;
    readonly podIP?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly { readonly restartCount: number; readonly ready: boolean }[];
  };
}

export const isReady = (pod: PodObject): boolean =>
  pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;
