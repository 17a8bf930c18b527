// The configuration files of the cluster's programs. Pure; JSON wherever the program reads YAML, which includes it.
import {
  APISERVER_URL,
  HOST_ADDRESS,
  IMAGES,
  POD_NETWORK,
  PROVISIONER,
  STORAGE_CLASS,
  cgroupOf,
  cniNetworkOf,
  podNetworkOf,
  type NodeFolders,
  type Slot,
} from "./layout.ts";

const json = (value: unknown): string => `${JSON.stringify(value, undefined, 2)}\n`;

/** PEM texts of an identity. */
export interface Credentials {
  readonly authority: string;
  readonly certificate: string;
  readonly key: string;
}

/** A kubeconfig that holds all it needs in itself, so that it can be copied anywhere. */
export function renderKubeconfig(credentials: Credentials): string {
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  const name = "lockstep-e2e";
  return json({
    apiVersion: "v1",
    kind: "Config",
    clusters: [
      {
        name,
        cluster: {
          server: APISERVER_URL,
          "certificate-authority-data": base64(credentials.authority),
        },
      },
    ],
    users: [
      {
        name,
        user: {
          "client-certificate-data": base64(credentials.certificate),
          "client-key-data": base64(credentials.key),
        },
      },
    ],
    contexts: [{ name, context: { cluster: name, user: name } }],
    "current-context": name,
  });
}

export function renderContainerd(folders: NodeFolders): string {
  const cri = `plugins."io.containerd.grpc.v1.cri"`;
  // restrict_oom_score_adj, disable_apparmor: a harness inside a container or a small virtual machine may do neither.
  return `version = 2
root = "${folders.root}/containerd"
state = "${folders.run}/containerd"
[grpc]
  address = "${folders.containerdSocket}"
[ttrpc]
  address = "${folders.containerdSocket}.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "${folders.root}/opt"
[${cri}]
  sandbox_image = "${IMAGES.pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [${cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [${cri}.containerd.runtimes.runc.options]
      Root = "${folders.run}/runc"
  [${cri}.registry]
    config_path = "${folders.root}/registries"
  [${cri}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "${folders.root}/cni"
`;
}

/** Every registry is one where nobody listens: an image that was not imported fails at once, not after a time-out of DNS. */
export function renderRegistries(): string {
  const nobody = "http://127.0.0.1:9";
  return `server = "${nobody}"\n[host."${nobody}"]\n  capabilities = ["pull", "resolve"]\n`;
}

/**
 * The pod network of a node: a routed link for each pod. With a bridge, a pod that reaches a neighbour through a Service
 * would get the answer past the node's address translation; here every packet is routed, so it cannot.
 */
export function renderCni(slot: Slot, folders: NodeFolders): string {
  return json({
    cniVersion: "1.0.0",
    name: cniNetworkOf(slot),
    plugins: [
      {
        type: "ptp",
        ipam: {
          type: "host-local",
          ranges: [[{ subnet: podNetworkOf(slot) }]],
          routes: [{ dst: "0.0.0.0/0" }],
          dataDir: `${folders.root}/ipam`,
        },
      },
      { type: "portmap", capabilities: { portMappings: true } },
    ],
  });
}

/** What a kubelet needs to know beside its slot. */
export interface KubeletInputs {
  readonly slot: Slot;
  readonly folders: NodeFolders;
  readonly authorityFile: string;
  readonly certificateFile: string;
  readonly keyFile: string;
}

export function renderKubelet(inputs: KubeletInputs): string {
  const { folders } = inputs;
  return json({
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: inputs.authorityFile },
    },
    authorization: { mode: "Webhook" },
    tlsCertFile: inputs.certificateFile,
    tlsPrivateKeyFile: inputs.keyFile,
    containerRuntimeEndpoint: `unix://${folders.containerdSocket}`,
    cgroupDriver: "cgroupfs",
    cgroupRoot: `/${cgroupOf(inputs.slot)}`,
    enforceNodeAllocatable: [],
    failCgroupV1: false,
    failSwapOn: false,
    oomScoreAdj: 0,
    clusterDNS: [HOST_ADDRESS],
    clusterDomain: "cluster.local",
    resolvConf: "/dev/null",
    // Kubelets remove the logs of pods that are not theirs: in one shared folder they would fight.
    podLogsDir: `${folders.root}/pod-logs`,
    volumePluginDir: `${folders.root}/volume-plugins`,
    // The device below a container's or a virtual machine's root is often not to be found.
    localStorageCapacityIsolation: false,
    // Leases are renewed at a quarter of it: five missed renewals make a node NotReady (grace period 20 s).
    nodeLeaseDurationSeconds: 16,
    nodeStatusUpdateFrequency: "4s",
    // How soon a changed Secret is in its Pods; one minute elsewhere.
    syncFrequency: "10s",
    evictionHard: { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    // Images are imported, never pulled: what the kubelet removed it could not get again.
    imageGCHighThresholdPercent: 100,
    imageGCLowThresholdPercent: 99,
  });
}

export function renderKubeProxy(nodeName: string, kubeconfigFile: string): string {
  return json({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    clientConnection: { kubeconfig: kubeconfigFile },
    mode: "iptables",
    hostnameOverride: nodeName,
    clusterCIDR: POD_NETWORK,
    // The kernel's limits are the host's, and often not writable.
    conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" },
    metricsBindAddress: "127.0.0.1:10249",
  });
}

/** Cluster DNS on the bridge's address, where every pod reaches it without a Service. */
export function renderCorefile(kubeconfigFile: string): string {
  return `.:53 {
  bind ${HOST_ADDRESS}
  kubernetes cluster.local {
    kubeconfig ${kubeconfigFile} lockstep-e2e
    ttl 1
  }
  cache 1
  errors
}
`;
}

export function renderStorageClass(): string {
  return json({
    apiVersion: "storage.k8s.io/v1",
    kind: "StorageClass",
    metadata: {
      name: STORAGE_CLASS,
      annotations: { "storageclass.kubernetes.io/is-default-class": "true" },
    },
    provisioner: PROVISIONER,
    volumeBindingMode: "WaitForFirstConsumer",
    allowVolumeExpansion: true,
    reclaimPolicy: "Delete",
  });
}
