import type { Node, PersistentVolumeClaim, Pod } from "../api/core.ts";
import { CELL_MEMBER } from "../api/kinds.ts";
import { identityOf, isMemberOf } from "../api/labels.ts";
import { claimName, PORTS, podName } from "../api/names.ts";
import type { CellMember, CoordinationCell } from "../api/types.ts";
import type { CellAdmin, CellConfiguration, MemberTarget } from "../cell/types.ts";
import type { CertificatesView, MemberView, NodeView, Observation } from "../plan/types.ts";
import { askCell } from "./ask.ts";
import type { Answers } from "./ask.ts";
import { isOwned } from "./belonging.ts";
import type { Caches, CellObjects, CellReader } from "./reader.ts";
import { claimView, hostLabelOf, nodeView, podView } from "./views.ts";

/** What one look at a cell is made of. */
export interface ObserveParts {
  readonly caches: Caches;
  readonly admin: CellAdmin;
  readonly wallMs: () => number;
  readonly mayRoll: boolean;
  readonly certificates: (members: readonly CellMember[], answers: Answers) => Promise<CertificatesView>;
  /** Hash of the pod that is wanted for a member now. */
  readonly wantedSpecHash: (cell: CoordinationCell, member: CellMember) => string;
  /** Shared objects that are not as they should be, by kind/name. */
  readonly outdatedObjects: (cell: CoordinationCell) => readonly string[];
  readonly obstacles: (cell: CoordinationCell) => readonly Observation["obstacles"][number][];
}

export interface Observed {
  readonly observation: Observation;
  readonly objects: CellObjects;
  readonly answers: Answers;
}

/** Looks at everything that the planner decides on. @param known see {@link askCell} */
export async function observe(
  parts: ObserveParts,
  cell: CoordinationCell,
  reader: CellReader,
  known?: CellConfiguration,
): Promise<Observed> {
  const identity = identityOf(cell);
  const { zoneKey } = cell.spec.topology;
  const objects = await reader.objects(cell);
  const members = objects.members.filter((member) => isMemberOf(member, identity));
  // In a recovery the cell that answers afterwards is another one: the planner must hear it.
  const cellId = cell.status?.operation?.kind === "Recover" ? undefined : cell.status?.cellId;
  const answers = await askCell(parts.admin, targetsOf(members, objects.pods), cellId, known);
  const nodes = parts.caches.nodes.list();
  const views = await Promise.all(
    namesOf(members, answers).map((name) =>
      memberView(
        { parts, cell, reader, answers, nodes },
        {
          name,
          object: members.find((member) => member.metadata.name === name),
          pod: objects.pods.find((pod) => pod.metadata.name === podName(name)),
          claim: objects.claims.find((claim) => claim.metadata.name === claimName(name)),
        },
      ),
    ),
  );
  const inUse = new Set(members.map((member) => claimName(member.metadata.name)));
  const owned = members
    .filter((member) => isOwned(member, identity.uid))
    .map(({ metadata }) => metadata.name);
  const observation: Observation = {
    nowMs: parts.wallMs(),
    cell,
    members: views,
    configuration: answers.configuration,
    leader: answers.leader,
    orphanedClaims: objects.claims.map((claim) => claim.metadata.name).filter((name) => !inUse.has(name)),
    nodes: nodes.map((node) => nodeView(node, zoneKey)),
    requests: openRequests(objects),
    tenants: tenantsOf(parts.caches, identity),
    namespaceTerminating: isTerminating(parts.caches, identity.namespace),
    mayRoll: parts.mayRoll,
    certificates: await parts.certificates(members, answers),
    outdatedObjects: [...parts.outdatedObjects(cell), ...owned.map((name) => `${CELL_MEMBER.kind}/${name}`)],
    obstacles: parts.obstacles(cell),
    disruptionBudget: objects.budget?.spec.minAvailable,
  };
  return { observation, objects, answers };
}

/** Members by object, and those that the cell has and Kubernetes does not know. */
function namesOf(members: readonly CellMember[], answers: Answers): readonly string[] {
  const names = members.map((member) => member.metadata.name);
  const configured = (answers.configuration?.members ?? []).map(({ name }) => name);
  return [...new Set([...names, ...configured])].sort();
}

/** Pods that have an address are asked there; its identity is proved by its certificate, not by the address. */
export function targetsOf(members: readonly CellMember[], pods: readonly Pod[]): readonly MemberTarget[] {
  return members.flatMap((member) => {
    const { name } = member.metadata;
    const ip = pods.find((pod) => pod.metadata.name === podName(name))?.status?.podIP;
    if (ip === undefined || ip === "") return [];
    return [{ memberName: name, address: `${ip.includes(":") ? `[${ip}]` : ip}:${String(PORTS.admin)}` }];
  });
}

interface Surroundings {
  readonly parts: ObserveParts;
  readonly cell: CoordinationCell;
  readonly reader: CellReader;
  readonly answers: Answers;
  readonly nodes: readonly Node[];
}

interface MemberObjects {
  readonly name: string;
  readonly object: CellMember | undefined;
  readonly pod: Pod | undefined;
  readonly claim: PersistentVolumeClaim | undefined;
}

async function memberView(around: Surroundings, found: MemberObjects): Promise<MemberView> {
  const { parts, cell, reader, answers, nodes } = around;
  const { name, object } = found;
  const { zoneKey } = cell.spec.topology;
  const volumeName = found.claim?.spec.volumeName;
  const volume = volumeName === undefined ? undefined : await reader.volume(volumeName);
  const claim =
    found.claim === undefined
      ? undefined
      : { ...claimView(found.claim, volume, zoneKey), growable: isGrowable(parts.caches, found.claim) };
  const pod = found.pod === undefined ? undefined : podView(found.pod);
  // Volumes name a host by its label, which is not always the node's name.
  const host = claim?.node;
  const byHost = host === undefined ? undefined : nodes.find((node) => hostLabelOf(node) === host);
  const nodeName = pod?.node ?? byHost?.metadata.name ?? host;
  return {
    name,
    object,
    pod,
    claim,
    node: nodeName === undefined ? undefined : await nodeOf(parts, reader, nodeName, zoneKey),
    status: answers.statuses.get(name),
    wantedSpecHash: object === undefined ? "" : parts.wantedSpecHash(cell, object),
  };
}

/** A claim of no class, or of one that is not there any more, stays as it is. */
function isGrowable({ storageClasses }: Caches, { spec }: PersistentVolumeClaim): boolean {
  if (!storageClasses.synced || spec.storageClassName === undefined) return true;
  return storageClasses.get({ name: spec.storageClassName })?.allowVolumeExpansion === true;
}

async function nodeOf(
  parts: ObserveParts,
  reader: CellReader,
  name: string,
  zoneKey: string,
): Promise<NodeView | "gone" | undefined> {
  // Before the first whole list, absence means nothing.
  if (!parts.caches.nodes.synced) return undefined;
  const node = await reader.node(name);
  return node === undefined ? "gone" : nodeView(node, zoneKey);
}

function openRequests(objects: CellObjects): Observation["requests"] {
  return objects.requests
    .filter(({ status }) => status?.phase !== "Succeeded" && status?.phase !== "Failed")
    .sort(
      (a, b) =>
        Date.parse(a.metadata.creationTimestamp ?? "") - Date.parse(b.metadata.creationTimestamp ?? "") ||
        (a.metadata.name < b.metadata.name ? -1 : 1),
    );
}

function tenantsOf(
  caches: Caches,
  cell: { readonly name: string; readonly namespace: string },
): readonly string[] {
  return caches.tenants
    .list()
    .filter(({ metadata, spec }) => {
      const namespace = spec.cellRef.namespace ?? metadata.namespace;
      return (
        spec.cellRef.name === cell.name &&
        namespace === cell.namespace &&
        metadata.deletionTimestamp === undefined &&
        // Objects of a Kubernetes namespace that goes are going too.
        !isTerminating(caches, metadata.namespace ?? "")
      );
    })
    .map(({ metadata }) => `${metadata.namespace ?? ""}/${metadata.name}`)
    .sort();
}

function isTerminating(caches: Caches, namespace: string): boolean {
  const object = caches.kubernetesNamespaces.get({ name: namespace });
  return object?.metadata.deletionTimestamp !== undefined || object?.status?.phase === "Terminating";
}
