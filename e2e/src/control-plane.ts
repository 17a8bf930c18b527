// etcd, apiserver, controller-manager, scheduler and cluster DNS, in the host's network namespace.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Api } from "./api.ts";
import { runningDaemon, startDaemon, stopDaemon, type DaemonSpec } from "./daemon.ts";
import {
  ETCD_URL,
  HOST_ADDRESS,
  PORTS,
  SERVICE_NETWORK,
  kubeconfigOf,
  logsOf,
  pkiOf,
  type Layout,
} from "./layout.ts";
import type { Programs } from "./programs.ts";
import { renderCorefile } from "./render.ts";
import { until } from "./waiting.ts";

/** The programs of the control plane. */
export type Component = "etcd" | "kube-apiserver" | "kube-controller-manager" | "kube-scheduler" | "coredns";

/** In the order in which they are started. */
export const COMPONENTS: readonly Component[] = [
  "etcd",
  "kube-apiserver",
  "kube-controller-manager",
  "kube-scheduler",
  "coredns",
];

/** A missed node lease counts after this long: node-loss scenarios would take minutes with the default of 50 s. */
const NODE_MONITOR_GRACE = "20s";

function etcdArguments(layout: Layout): readonly string[] {
  const peer = `http://127.0.0.1:${String(PORTS.etcdPeer)}`;
  return [
    `--data-dir=${join(layout.state, "etcd")}`,
    `--listen-client-urls=${ETCD_URL}`,
    `--advertise-client-urls=${ETCD_URL}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=default=${peer}`,
    // The cluster lives as long as the machine is up; its disk is better left to the tests.
    "--unsafe-no-fsync",
    "--log-level=warn",
  ];
}

function apiserverArguments(layout: Layout): readonly string[] {
  const pki = (file: string): string => join(pkiOf(layout), file);
  return [
    `--etcd-servers=${ETCD_URL}`,
    `--secure-port=${String(PORTS.apiserver)}`,
    `--bind-address=${HOST_ADDRESS}`,
    `--advertise-address=${HOST_ADDRESS}`,
    `--tls-cert-file=${pki("apiserver.crt")}`,
    `--tls-private-key-file=${pki("apiserver.key")}`,
    `--client-ca-file=${pki("ca.crt")}`,
    `--kubelet-client-certificate=${pki("admin.crt")}`,
    `--kubelet-client-key=${pki("admin.key")}`,
    `--kubelet-certificate-authority=${pki("ca.crt")}`,
    // Otherwise logs and exec look for the nodes by host name.
    "--kubelet-preferred-address-types=InternalIP",
    `--service-account-key-file=${pki("sa.pub")}`,
    `--service-account-signing-key-file=${pki("sa.key")}`,
    "--service-account-issuer=https://kubernetes.default.svc",
    `--service-cluster-ip-range=${SERVICE_NETWORK}`,
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--allow-privileged=true",
  ];
}

function controllerManagerArguments(layout: Layout): readonly string[] {
  const pki = (file: string): string => join(pkiOf(layout), file);
  return [
    `--kubeconfig=${pki("controller-manager.kubeconfig")}`,
    `--service-account-private-key-file=${pki("sa.key")}`,
    `--root-ca-file=${pki("ca.crt")}`,
    `--cluster-signing-cert-file=${pki("ca.crt")}`,
    `--cluster-signing-key-file=${pki("ca.key")}`,
    "--use-service-account-credentials=true",
    "--leader-elect=false",
    "--bind-address=127.0.0.1",
    `--secure-port=${String(PORTS.controllerManager)}`,
    `--node-monitor-grace-period=${NODE_MONITOR_GRACE}`,
    "--node-monitor-period=2s",
  ];
}

function schedulerArguments(layout: Layout): readonly string[] {
  return [
    `--kubeconfig=${join(pkiOf(layout), "scheduler.kubeconfig")}`,
    "--leader-elect=false",
    "--bind-address=127.0.0.1",
    `--secure-port=${String(PORTS.scheduler)}`,
  ];
}

/** What a component is started with. */
export function componentSpec(component: Component, layout: Layout, programs: Programs): DaemonSpec {
  const logFile = join(logsOf(layout), `${component}.log`);
  const spec = (folder: string, args: readonly string[]): DaemonSpec => ({
    name: component,
    command: join(folder, component),
    args,
    logFile,
  });
  switch (component) {
    case "etcd":
      return spec(programs.etcd, etcdArguments(layout));
    case "kube-apiserver":
      return spec(programs.kubernetes, apiserverArguments(layout));
    case "kube-controller-manager":
      return spec(programs.kubernetes, controllerManagerArguments(layout));
    case "kube-scheduler":
      return spec(programs.kubernetes, schedulerArguments(layout));
    case "coredns":
      return spec(programs.coredns, ["-conf", join(layout.state, "Corefile")]);
  }
}

/** The control plane of the running cluster. */
export class ControlPlane {
  readonly #layout: Layout;
  readonly #programs: Programs;
  readonly #api: Api;

  constructor(layout: Layout, programs: Programs, api: Api) {
    this.#layout = layout;
    this.#programs = programs;
    this.#api = api;
  }

  /** Starts all of it on an empty disk, and returns when the apiserver is ready. */
  async startAll(signal: AbortSignal): Promise<void> {
    mkdirSync(join(this.#layout.state, "etcd"), { recursive: true, mode: 0o700 });
    writeFileSync(join(this.#layout.state, "Corefile"), renderCorefile(kubeconfigOf(this.#layout)));
    await this.start("etcd");
    await this.start("kube-apiserver", signal);
    await Promise.all(COMPONENTS.slice(2).map((component) => this.start(component)));
  }

  isRunning(component: Component): boolean {
    return runningDaemon(this.#layout.run, component) !== undefined;
  }

  /** Starts a component; with the apiserver it returns when `/readyz` answers. Throws `state` when it runs already, `timeout` after a minute. */
  async start(component: Component, signal?: AbortSignal): Promise<void> {
    startDaemon(this.#layout.run, componentSpec(component, this.#layout, this.#programs));
    if (component !== "kube-apiserver") return;
    await until(
      "the apiserver is ready",
      async () => {
        if (!this.isRunning(component)) throw new Error(`it ended; see ${logsOf(this.#layout)}`);
        return (await this.#api.text("/readyz")) === "ok";
      },
      { everyMs: 100, signal },
    );
  }

  /** Ends a component: with SIGTERM, and SIGKILL after 5 s; or with SIGKILL at once (`graceMs` 0). Gone already is fine. */
  async stop(component: Component, graceMs = 5_000): Promise<void> {
    await stopDaemon(this.#layout.run, component, graceMs);
  }

  async restart(component: Component): Promise<void> {
    await this.stop(component);
    await this.start(component);
  }

  /** Starts what a scenario left stopped. */
  async restore(): Promise<void> {
    for (const component of COMPONENTS) if (!this.isRunning(component)) await this.start(component);
  }
}
