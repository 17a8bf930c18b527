import { readFile } from "node:fs/promises";
import { isIPv6 } from "node:net";
import { join } from "node:path";
import type { Cluster, User } from "@kubernetes/client-node";

/** What TLS needs to know of a cluster; the names are those of `node:tls`. */
export interface ClusterTls {
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

export interface Credentials {
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: ClusterTls;
}

/** One apiserver and who we are to it. */
export interface ClusterAccess {
  /** `https://host:port`, maybe with a path. */
  readonly server: string;
  /** An HTTP proxy on the way; absent: none. */
  readonly proxyUrl?: string;
  /** The namespace that this access names as its own; absent: it names none. */
  readonly namespace?: string;
  /** The credentials of this moment: asked for again and again, because tokens and certificates are renewed in place. */
  credentials(): Promise<Credentials>;
}

const SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";

export interface InClusterOptions {
  readonly host: string;
  readonly port: string;
  /** Folder with `ca.crt`, `token` and `namespace`; default: where kubelet mounts it. */
  readonly folder?: string;
}

/**
 * The access of a pod, by its service account. Reads three files rather than asking `@kubernetes/client-node`: that
 * library costs some 60 MB and seconds of start, and a pod needs nothing else of it.
 */
export async function inClusterAccess(options: InClusterOptions): Promise<ClusterAccess> {
  const folder = options.folder ?? SERVICE_ACCOUNT;
  const host = isIPv6(options.host) ? `[${options.host}]` : options.host;
  const namespace = (await readFile(join(folder, "namespace"), "utf8")).trim();
  return {
    server: `https://${host}:${options.port}`,
    ...(namespace === "" ? {} : { namespace }),
    async credentials() {
      const [ca, token] = await Promise.all([
        readFile(join(folder, "ca.crt")),
        readFile(join(folder, "token"), "utf8"),
      ]);
      return { headers: { authorization: `Bearer ${token.trim()}` }, tls: { ca } };
    },
  };
}

export interface KubeconfigOptions {
  /** The file's path; the files that `contents` names are relative to the process's folder. */
  readonly source: { readonly path: string } | { readonly contents: string };
  /** Default: the file's current-context. */
  readonly context?: string;
}

/**
 * The access that a kubeconfig describes: client certificates, tokens, basic authentication, exec plugins, OIDC and what
 * else `@kubernetes/client-node` knows. SOCKS proxies are refused.
 * @throws Error when the file, the context or its cluster is missing
 */
export async function kubeconfigAccess(options: KubeconfigOptions): Promise<ClusterAccess> {
  const { KubeConfig } = await import("@kubernetes/client-node");
  const config = new KubeConfig();
  if ("path" in options.source) config.loadFromFile(options.source.path);
  else config.loadFromString(options.source.contents);
  if (options.context !== undefined) config.setCurrentContext(options.context);
  const name = config.getCurrentContext();
  // The library's types promise lists that a file need not have.
  const contexts = config.getContexts() as { name: string; namespace?: string }[] | undefined;
  const context = contexts?.find((each) => each.name === name);
  const cluster: Cluster | null = config.getCurrentCluster();
  if (context === undefined || cluster === null) throw new Error(`kubeconfig: no context "${name}"`);
  if (cluster.proxyUrl?.startsWith("socks") === true)
    throw new Error("kubeconfig: SOCKS proxies are not supported");
  const user: User | null = config.getCurrentUser();
  return {
    server: cluster.server,
    ...(cluster.proxyUrl === undefined ? {} : { proxyUrl: cluster.proxyUrl }),
    ...(context.namespace === undefined ? {} : { namespace: context.namespace }),
    async credentials() {
      const found: FoundOptions = { headers: {} };
      await config.applyToHTTPSOptions(found);
      return toCredentials(found, user);
    },
  };
}

/** What the library fills in, of node:https's options. */
interface FoundOptions extends ClusterTls {
  headers: Record<string, string>;
  auth?: string;
}

function toCredentials(found: FoundOptions, user: User | null): Credentials {
  const basic =
    found.auth === undefined || user?.username === undefined
      ? {}
      : { authorization: `Basic ${Buffer.from(found.auth).toString("base64")}` };
  const headers = Object.entries(found.headers).map(([name, value]) => [name.toLowerCase(), value.trim()]);
  return {
    headers: { ...basic, ...(Object.fromEntries(headers) as Record<string, string>) },
    tls: {
      ...(found.ca === undefined ? {} : { ca: found.ca }),
      ...(found.cert === undefined ? {} : { cert: found.cert }),
      ...(found.key === undefined ? {} : { key: found.key }),
      ...(found.servername === undefined ? {} : { servername: found.servername }),
      ...(found.rejectUnauthorized === undefined ? {} : { rejectUnauthorized: found.rejectUnauthorized }),
    },
  };
}
