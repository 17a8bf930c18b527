import {
  CELL_MEMBER,
  CELL_OPERATION,
  COORDINATION_CELL,
  PERSISTENT_VOLUME_CLAIM,
  POD,
  POD_DISRUPTION_BUDGET,
  SERVICE,
  SERVICE_ACCOUNT,
} from "../api/kinds.ts";
import { ANNOTATION, LABEL } from "../api/labels.ts";
import type { CoordinationCell } from "../api/types.ts";
import type { ResourceKind } from "../kube/types.ts";
import { podSpecHash } from "../resources/spec-hash.ts";
import type { Cluster } from "./cluster.ts";
import type { RaftCell } from "./raft-cell.ts";

/** What is still wrong with a cell that nothing happens to any more; empty: it is as its spec asks. */
export function endStateOf(
  cluster: Cluster,
  ref: { readonly namespace: string; readonly name: string },
): readonly string[] {
  const cell = cluster.api.get(COORDINATION_CELL, ref);
  return cell === undefined ? leftovers(cluster) : wrongs(cluster, cell);
}

function leftovers(cluster: Cluster): readonly string[] {
  const left = [CELL_MEMBER, POD, SERVICE, SERVICE_ACCOUNT, POD_DISRUPTION_BUDGET] as readonly ResourceKind[];
  return left
    .flatMap((kind) => cluster.api.list(kind))
    .map(({ kind, metadata }) => `${kind} ${metadata.name} is left`);
}

function wrongs(cluster: Cluster, cell: CoordinationCell): readonly string[] {
  const { status = {}, spec, metadata } = cell;
  if (metadata.deletionTimestamp !== undefined) return ["the cell is still there"];
  const raft = cluster.cells.get(status.cellId ?? "");
  if (raft === undefined) return ["there is no such cell"];
  const members = cluster.api.list(CELL_MEMBER);
  const conditionOf = (type: string): string | undefined =>
    status.conditions?.find((condition) => condition.type === type)?.status;
  const ready = status.conditions?.find(({ type }) => type === "Ready");
  const [budget] = cluster.api.list(POD_DISRUPTION_BUDGET);
  const quorum = Math.floor(spec.voters / 2) + 1;
  const checks: readonly (readonly [boolean, string])[] = [
    [members.length === spec.voters, `${String(members.length)} CellMembers`],
    ...raftChecks(cluster, raft, spec.voters),
    [ready?.status === "True", `Ready is ${ready?.status ?? "absent"}: ${ready?.message ?? ""}`],
    [conditionOf("Stalled") === "False" && conditionOf("Reconciling") === "False", "it is not at rest"],
    [conditionOf("Degraded") === "False", "it is degraded"],
    [conditionOf("UpToDate") === "True", "it is not up to date"],
    [status.operation === undefined, `the operation ${status.operation?.kind ?? ""} goes on`],
    [status.observedGeneration === metadata.generation, "the generation is not observed"],
    [status.admitted === true, "clients are not admitted"],
    [budget?.spec.minAvailable === quorum, `minAvailable is ${String(budget?.spec.minAvailable)}`],
    [status.voters === spec.voters && status.readyVoters === spec.voters, "the status counts other voters"],
    ...podChecks(cluster, cell),
    ...claimChecks(cluster, cell),
    ...cluster.api
      .list(CELL_OPERATION)
      .map(
        ({ metadata: { name }, status: it }) =>
          [
            it?.phase === "Succeeded" || it?.phase === "Failed",
            `the request ${name} is ${it?.phase ?? "not seen"}`,
          ] as const,
      ),
  ];
  return checks.filter(([holds]) => !holds).map(([, what]) => what);
}

function raftChecks(
  cluster: Cluster,
  raft: RaftCell,
  voters: number,
): readonly (readonly [boolean, string])[] {
  const { configuration } = raft;
  const alive = cluster.reachable(raft.id);
  return [
    [configuration.voters.length === voters, `${String(configuration.voters.length)} voters`],
    [configuration.learners.length === 0, `${String(configuration.learners.length)} learners`],
    [!raft.joint, "the configuration is joint"],
    [configuration.voters.every((id) => alive.has(id)), "a voter is not alive"],
  ];
}

function podChecks(cluster: Cluster, cell: CoordinationCell): readonly (readonly [boolean, string])[] {
  const pods = cluster.api.list(POD);
  const wanted = podSpecHash(cell.spec);
  return [
    [pods.length === cell.spec.voters, `${String(pods.length)} pods`],
    [
      pods.every(({ metadata }) => metadata.labels?.[LABEL.role] === "voter"),
      "a pod is not labelled as a voter",
    ],
    [
      pods.every(({ metadata }) => metadata.annotations?.[ANNOTATION.specHash] === wanted),
      "a pod is out of date",
    ],
    [
      pods.every(
        ({ metadata }) => !["bootstrap", "recover"].includes(metadata.annotations?.[ANNOTATION.start] ?? ""),
      ),
      "a pod would found a cell again",
    ],
    [new Set(pods.map(({ spec }) => spec.nodeName)).size === pods.length, "two members share a node"],
  ];
}

function claimChecks(cluster: Cluster, cell: CoordinationCell): readonly (readonly [boolean, string])[] {
  const claims = cluster.api.list(PERSISTENT_VOLUME_CLAIM);
  const { size, reclaimPolicy } = cell.spec.storage;
  const recoveries = cell.status?.recoveries ?? 0;
  const members = new Set(cluster.api.list(CELL_MEMBER).map(({ metadata }) => metadata.name));
  const owned = claims.filter(({ metadata }) => members.has(metadata.name));
  return [
    [owned.every(({ spec }) => spec.resources.requests.storage === size), "a claim is not grown"],
    [
      reclaimPolicy === "Retain" || recoveries > 0 || claims.length === owned.length,
      `${String(claims.length - owned.length)} claims are left`,
    ],
  ];
}
