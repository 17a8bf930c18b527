/** Objects of Kubernetes itself and of cert-manager: only the fields that this operator reads or writes. */
import type { KubeObject } from "../kube/types.ts";
import type { Toleration } from "./types.ts";

export interface EnvironmentVariable {
  readonly name: string;
  readonly value: string;
}

export interface HttpProbe {
  readonly httpGet: { readonly path: string; readonly port: string | number };
  readonly periodSeconds: number;
  readonly timeoutSeconds: number;
  readonly failureThreshold: number;
}

export interface ContainerSpec {
  readonly name: string;
  readonly image: string;
  readonly imagePullPolicy?: "Always" | "IfNotPresent" | "Never";
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly EnvironmentVariable[];
  readonly terminationMessagePolicy?: "File" | "FallbackToLogsOnError";
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
  readonly resources?: {
    readonly requests?: Readonly<Record<string, number | string>>;
    readonly limits?: Readonly<Record<string, number | string>>;
  };
  readonly volumeMounts?: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly readOnly?: boolean;
  }[];
  readonly startupProbe?: HttpProbe;
  readonly readinessProbe?: HttpProbe;
  readonly livenessProbe?: HttpProbe;
  readonly securityContext?: {
    readonly allowPrivilegeEscalation: boolean;
    readonly readOnlyRootFilesystem: boolean;
    readonly capabilities: { readonly drop: readonly string[] };
  };
}

export interface NodeSelectorTerm {
  readonly matchExpressions?: readonly NodeSelectorRequirement[];
  readonly matchFields?: readonly NodeSelectorRequirement[];
}

export interface NodeSelectorRequirement {
  readonly key: string;
  readonly operator: "In" | "NotIn";
  readonly values: readonly string[];
}

export interface NodeAffinity {
  readonly requiredDuringSchedulingIgnoredDuringExecution?: {
    readonly nodeSelectorTerms: readonly NodeSelectorTerm[];
  };
  readonly preferredDuringSchedulingIgnoredDuringExecution?: readonly {
    readonly weight: number;
    readonly preference: NodeSelectorTerm;
  }[];
}

export interface PodSpec {
  /** Set by the scheduler. */
  readonly nodeName?: string;
  readonly containers: readonly ContainerSpec[];
  readonly initContainers?: readonly ContainerSpec[];
  readonly hostname?: string;
  readonly subdomain?: string;
  readonly serviceAccountName?: string;
  readonly automountServiceAccountToken?: boolean;
  readonly enableServiceLinks?: boolean;
  readonly restartPolicy?: "Always";
  readonly terminationGracePeriodSeconds?: number;
  readonly nodeSelector?: Readonly<Record<string, string>>;
  readonly tolerations?: readonly Toleration[];
  readonly priorityClassName?: string;
  readonly runtimeClassName?: string;
  readonly schedulerName?: string;
  readonly imagePullSecrets?: readonly { readonly name: string }[];
  readonly affinity?: { readonly nodeAffinity: NodeAffinity };
  readonly securityContext?: {
    readonly runAsNonRoot: boolean;
    readonly runAsUser: number;
    readonly runAsGroup: number;
    readonly fsGroup: number;
    readonly fsGroupChangePolicy: "OnRootMismatch" | "Always";
    readonly seccompProfile: { readonly type: "RuntimeDefault" };
  };
  readonly volumes?: readonly PodVolume[];
}

export interface PodVolume {
  readonly name: string;
  readonly persistentVolumeClaim?: { readonly claimName: string };
  readonly secret?: { readonly secretName: string; readonly defaultMode: number };
  readonly emptyDir?: { readonly sizeLimit: string };
}

export interface ObjectCondition {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  readonly reason?: string;
  readonly message?: string;
  readonly lastTransitionTime?: string;
}

export interface ContainerStatus {
  readonly name: string;
  readonly ready: boolean;
  readonly restartCount: number;
  readonly image?: string;
  readonly state?: {
    readonly waiting?: { readonly reason?: string; readonly message?: string };
    readonly running?: { readonly startedAt?: string };
    readonly terminated?: TerminatedState;
  };
  /** How it ended before it was started anew. */
  readonly lastState?: { readonly terminated?: TerminatedState };
}

export interface TerminatedState {
  readonly reason?: string;
  readonly message?: string;
  readonly exitCode: number;
}

export interface Pod extends KubeObject {
  readonly spec: PodSpec;
  readonly status?: {
    readonly phase?: "Pending" | "Running" | "Succeeded" | "Failed" | "Unknown";
    readonly reason?: string;
    readonly message?: string;
    readonly podIP?: string;
    readonly conditions?: readonly ObjectCondition[];
    readonly containerStatuses?: readonly ContainerStatus[];
    readonly initContainerStatuses?: readonly ContainerStatus[];
  };
}

export interface PersistentVolumeClaim extends KubeObject {
  readonly spec: {
    readonly accessModes: readonly string[];
    readonly storageClassName?: string;
    readonly volumeName?: string;
    readonly resources: { readonly requests: { readonly storage: string } };
  };
  readonly status?: {
    readonly phase?: "Pending" | "Bound" | "Lost";
    readonly capacity?: { readonly storage?: string };
    readonly conditions?: readonly ObjectCondition[];
  };
}

export interface PersistentVolume extends KubeObject {
  readonly spec: {
    readonly nodeAffinity?: {
      readonly required?: { readonly nodeSelectorTerms: readonly NodeSelectorTerm[] };
    };
  };
}

export interface Service extends KubeObject {
  readonly spec: {
    readonly type?: "ClusterIP";
    readonly clusterIP?: string;
    readonly publishNotReadyAddresses?: boolean;
    readonly selector: Readonly<Record<string, string>>;
    readonly ports: readonly {
      readonly name: string;
      readonly port: number;
      readonly targetPort: string | number;
      readonly protocol: "TCP";
      readonly appProtocol?: string;
    }[];
  };
}

export interface ServiceAccount extends KubeObject {
  readonly automountServiceAccountToken?: boolean;
}

export interface Secret extends KubeObject {
  readonly type?: string;
  /** Base64. */
  readonly data?: Readonly<Record<string, string>>;
}

export interface PodDisruptionBudget extends KubeObject {
  readonly spec: {
    readonly minAvailable: number;
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly unhealthyPodEvictionPolicy?: "IfHealthyBudget" | "AlwaysAllow";
  };
}

export interface NetworkPolicyPeer {
  readonly podSelector?: LabelSelector;
  readonly namespaceSelector?: LabelSelector;
}

export interface LabelSelector {
  readonly matchLabels?: Readonly<Record<string, string>>;
}

export interface NetworkPolicy extends KubeObject {
  readonly spec: {
    readonly podSelector: LabelSelector;
    readonly policyTypes: readonly ("Ingress" | "Egress")[];
    readonly ingress: readonly {
      /** Absent: from anywhere. */
      readonly from?: readonly NetworkPolicyPeer[];
      readonly ports: readonly { readonly protocol: "TCP"; readonly port: number }[];
    }[];
  };
}

export interface Node extends KubeObject {
  readonly spec?: {
    readonly unschedulable?: boolean;
    readonly taints?: readonly { readonly key: string; readonly value?: string; readonly effect: string }[];
  };
  readonly status?: { readonly conditions?: readonly ObjectCondition[] };
}

export interface StorageClass extends KubeObject {
  readonly provisioner: string;
  readonly allowVolumeExpansion?: boolean;
  readonly volumeBindingMode?: "Immediate" | "WaitForFirstConsumer";
}

/** The Namespace of Kubernetes itself. */
export interface KubernetesNamespace extends KubeObject {
  readonly status?: { readonly phase?: "Active" | "Terminating" };
}

/** cert-manager.io/v1. */
export interface Certificate extends KubeObject {
  readonly spec: {
    readonly secretName: string;
    readonly duration: string;
    readonly renewBefore: string;
    readonly uris: readonly string[];
    readonly dnsNames?: readonly string[];
    readonly usages: readonly string[];
    readonly privateKey: {
      readonly algorithm: "ECDSA";
      readonly size: 256;
      readonly rotationPolicy: "Always";
    };
    readonly issuerRef: { readonly name: string; readonly kind: string; readonly group: string };
    readonly secretTemplate?: { readonly labels: Readonly<Record<string, string>> };
  };
  readonly status?: { readonly conditions?: readonly ObjectCondition[] };
}
