/** Objects that a cell has once. Labels say whose they are; no owner does, and the operator takes them away at last. */
import type {
  NetworkPolicy,
  NetworkPolicyPeer,
  PodDisruptionBudget,
  Service,
  ServiceAccount,
} from "../api/core.ts";
import { cellLabels, clientSelector, identityOf, memberSelector, voterSelector } from "../api/labels.ts";
import {
  clientServiceName,
  disruptionBudgetName,
  networkPolicyName,
  peersServiceName,
  PORTS,
  serviceAccountName,
} from "../api/names.ts";
import type { CoordinationCell } from "../api/types.ts";
import type { ObjectMeta } from "../kube/types.ts";

type PortName = keyof typeof PORTS;

/** For applications: ready voters. @param admitted false: nobody is behind it yet */
export function clientService(cell: CoordinationCell, admitted: boolean): Service {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: metadataOf(cell, clientServiceName(cell.metadata.name), "client"),
    spec: {
      type: "ClusterIP",
      selector: clientSelector(identityOf(cell), admitted),
      ports: servicePorts(["client", "http"]),
    },
  };
}

/** Host names of the members. They must resolve before a member is ready, since it becomes ready through its peers. */
export function peersService(cell: CoordinationCell): Service {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: metadataOf(cell, peersServiceName(cell.metadata.name), "peers"),
    spec: {
      type: "ClusterIP",
      clusterIP: "None",
      publishNotReadyAddresses: true,
      selector: memberSelector(identityOf(cell)),
      ports: servicePorts(["client", "http", "peer", "admin", "ops"]),
    },
  };
}

/**
 * Keeps evictions away from the quorum.
 * @param minAvailable how many ready voters must stay; as many as there are: none may be evicted
 * @throws RangeError for a count that is none
 */
export function disruptionBudget(cell: CoordinationCell, minAvailable: number): PodDisruptionBudget {
  if (!Number.isInteger(minAvailable) || minAvailable < 0) {
    throw new RangeError(`minAvailable must be a whole number, not ${String(minAvailable)}`);
  }
  return {
    apiVersion: "policy/v1",
    kind: "PodDisruptionBudget",
    metadata: metadataOf(cell, disruptionBudgetName(cell.metadata.name), "member"),
    spec: {
      minAvailable,
      selector: { matchLabels: voterSelector(identityOf(cell)) },
      // A sick voter may be evicted while the others hold the quorum, and only then.
      unhealthyPodEvictionPolicy: "IfHealthyBudget",
    },
  };
}

/** Without rights and without a token: a member never speaks to the apiserver. */
export function serviceAccount(cell: CoordinationCell): ServiceAccount {
  return {
    apiVersion: "v1",
    kind: "ServiceAccount",
    metadata: metadataOf(cell, serviceAccountName(cell.metadata.name), "member"),
    automountServiceAccountToken: false,
  };
}

/** Where the operator runs, for the rule that lets it in. */
export interface OperatorPods {
  readonly namespace: string;
  /** Labels of its Pods. */
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * Who may open connections to members: each other, the operator, applications, and anybody to probes and metrics, which
 * hold no data.
 */
export function networkPolicy(cell: CoordinationCell, operator: OperatorPods): NetworkPolicy {
  const members: NetworkPolicyPeer = { podSelector: { matchLabels: memberSelector(identityOf(cell)) } };
  const operators: NetworkPolicyPeer = {
    namespaceSelector: namespaceNamed(operator.namespace),
    podSelector: { matchLabels: operator.labels },
  };
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: metadataOf(cell, networkPolicyName(cell.metadata.name), "member"),
    spec: {
      podSelector: { matchLabels: memberSelector(identityOf(cell)) },
      policyTypes: ["Ingress"],
      ingress: [
        // A member that joins asks the others for admission on their admin port.
        { from: [members], ports: policyPorts(["peer", "admin"]) },
        { from: [operators], ports: policyPorts(["admin"]) },
        { from: [...clientPeers(cell), operators], ports: policyPorts(["client", "http"]) },
        { ports: policyPorts(["ops"]) },
      ],
    },
  };
}

/** Namespaces that may keep keys in the cell are those whose Pods may reach it. */
function clientPeers({ spec: { allowedNamespaces } }: CoordinationCell): readonly NetworkPolicyPeer[] {
  const own: NetworkPolicyPeer = { podSelector: {} };
  switch (allowedNamespaces?.from) {
    case undefined:
    case "Same":
      return [own];
    case "All":
      return [{ namespaceSelector: {} }];
    case "Selector": {
      const matchLabels = allowedNamespaces.selector?.matchLabels;
      return matchLabels === undefined ? [own] : [own, { namespaceSelector: { matchLabels } }];
    }
  }
}

function namespaceNamed(name: string): { readonly matchLabels: Readonly<Record<string, string>> } {
  return { matchLabels: { "kubernetes.io/metadata.name": name } };
}

function metadataOf(cell: CoordinationCell, name: string, component: string): ObjectMeta {
  const identity = identityOf(cell);
  return { name, namespace: identity.namespace, labels: cellLabels(identity, component) };
}

function servicePorts(names: readonly PortName[]): Service["spec"]["ports"] {
  return names.map((name) => ({ name, port: PORTS[name], targetPort: name, protocol: "TCP" }));
}

function policyPorts(
  names: readonly PortName[],
): readonly { readonly protocol: "TCP"; readonly port: number }[] {
  return names.map((name) => ({ protocol: "TCP", port: PORTS[name] }));
}
