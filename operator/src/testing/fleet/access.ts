import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import * as kinds from "../../api/kinds.ts";
import { createAuthority, issueLeaf } from "../../certificates/issue.ts";
import {
  createHttpTransport,
  createKubeClient,
  EVENTS,
  kubeconfigAccess,
  LEASES,
  REAL_RUNTIME,
  Rest,
} from "../../kube/index.ts";
import type { KubeClient, ObjectRef, ResourceKind } from "../../kube/index.ts";
import { FakeApiServer, serveFake } from "../../kube/testing/index.ts";
import type { FakeKind } from "../../kube/testing/index.ts";

/** The apiserver that the operator is measured against, as the world around the operator uses it. */
export interface FleetApi {
  /** In words, for the report. */
  readonly kind: string;
  readonly host: string;
  readonly port: string;
  /** PEM: who signed the apiserver's certificate. */
  readonly ca: string;
  readonly token: string;
  readonly rest: Rest;
  readonly kube: KubeClient;
  /** Does what a scheduler does. */
  bind(pod: ObjectRef, node: string): Promise<void>;
  /** What the operator asked for, as the apiserver counts it, by verb and resource; undefined: it is not asked. */
  requests(): ReadonlyMap<string, number> | undefined;
  close(): Promise<void>;
}

const DAY_MS = 86_400_000;
const OPERATOR_AGENT = "lockstep-operator/";

/** An apiserver in this process: everything but the objects' defaults and the bookkeeping of their fields is there. */
export async function simulatedApi(): Promise<FleetApi> {
  const nowMs = Date.now();
  const authority = await createAuthority({ cellUid: "apiserver", nowMs, durationMs: DAY_MS });
  const leaf = await issueLeaf(authority, {
    identity: "lockstep://fleet/apiserver/one",
    dnsNames: ["localhost"],
    isServer: true,
    nowMs,
    durationMs: DAY_MS,
  });
  const server = new FakeApiServer({ runtime: REAL_RUNTIME, kinds: servedKinds() });
  const counts = new Map<string, number>();
  const token = randomBytes(16).toString("hex");
  const http = await serveFake({
    server,
    tls: { cert: leaf.certificate, key: leaf.key },
    authenticate: (request) => {
      if (request.headers.authorization !== `Bearer ${token}`) return 401;
      count(counts, request);
      return undefined;
    },
  });
  const { hostname, port } = new URL(http.url);
  const client = clientOf({ server: http.url, ca: authority.certificate, token });
  return {
    ...{ kind: "simulated apiserver", host: hostname, port, ca: authority.certificate, token },
    rest: client.rest,
    kube: client.kube,
    bind: (pod, node) => {
      server.store.patch(kinds.POD, pod, { spec: { nodeName: node } }, { manager: "scheduler" });
      return Promise.resolve();
    },
    requests: () => new Map(counts),
    close: async () => {
      await client.close();
      await http.close();
    },
  };
}

function servedKinds(): readonly FakeKind[] {
  const graceful = new Set<ResourceKind>([kinds.POD]);
  const plain = new Set<ResourceKind>([kinds.SECRET, kinds.SERVICE_ACCOUNT, kinds.STORAGE_CLASS]);
  const all = [...Object.values(kinds), EVENTS, LEASES] as unknown as readonly ResourceKind[];
  return all.map((kind) => ({
    kind,
    status: !plain.has(kind) && kind !== (EVENTS as unknown) && kind !== (LEASES as unknown),
    graceful: graceful.has(kind),
  }));
}

/**
 * An apiserver that runs already, empty and alone: no scheduler, controller manager or kubelet may compete with the
 * world that the fleet brings along.
 * @throws TypeError when the kubeconfig's user has no bearer token, which is what pods have
 */
export async function realApi(kubeconfig: string): Promise<FleetApi> {
  const access = await kubeconfigAccess({ source: { path: kubeconfig } });
  const { headers, tls } = await access.credentials();
  const token = /^Bearer (.+)$/.exec(headers["authorization"] ?? "")?.[1];
  if (token === undefined || tls.ca === undefined) {
    throw new TypeError("the kubeconfig must name a certificate authority and a user with a token");
  }
  const url = new URL(access.server);
  const ca = tls.ca.toString();
  const client = clientOf({ server: access.server, ca, token });
  return {
    ...{ kind: "kube-apiserver", host: url.hostname, port: url.port === "" ? "443" : url.port, ca, token },
    rest: client.rest,
    kube: client.kube,
    bind: async ({ namespace, name }, node) => {
      await client.rest.call({
        ...{ verb: "create", resource: "bindings", method: "POST", contentType: "application/json" },
        path: `/api/v1/namespaces/${namespace ?? ""}/pods/${name}/binding`,
        body: {
          ...{ apiVersion: "v1", kind: "Binding", metadata: { name } },
          target: { apiVersion: "v1", kind: "Node", name: node },
        },
      });
    },
    requests: () => undefined,
    close: client.close,
  };
}

function clientOf(to: { readonly server: string; readonly ca: string; readonly token: string }): {
  readonly rest: Rest;
  readonly kube: KubeClient;
  readonly close: () => Promise<void>;
} {
  const transport = createHttpTransport({
    access: {
      server: to.server,
      credentials: () =>
        Promise.resolve({ headers: { authorization: `Bearer ${to.token}` }, tls: { ca: to.ca } }),
    },
    userAgent: "lockstep-fleet/1",
  });
  const rest = new Rest({ transport, runtime: REAL_RUNTIME });
  const kube = createKubeClient({ rest, fieldManager: "lockstep-fleet" });
  return { rest, kube, close: () => transport.close() };
}

function count(counts: Map<string, number>, request: IncomingMessage): void {
  if (request.headers["user-agent"]?.startsWith(OPERATOR_AGENT) !== true) return;
  const url = new URL(request.url ?? "", "http://apiserver");
  const path = url.pathname.split("/").slice(url.pathname.startsWith("/api/") ? 3 : 4);
  const rest = path[0] === "namespaces" && path.length > 2 ? path.slice(2) : path;
  const [plural = "", name, subresource] = rest;
  const key = `${verbOf(request.method ?? "", name, url)} ${plural}${subresource === undefined ? "" : `/${subresource}`}`;
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

function verbOf(method: string, name: string | undefined, url: URL): string {
  switch (method) {
    case "GET":
      if (url.searchParams.get("watch") === "true") return "watch";
      return name === undefined ? "list" : "get";
    case "POST":
      return "create";
    case "DELETE":
      return "delete";
    default:
      return "patch";
  }
}
