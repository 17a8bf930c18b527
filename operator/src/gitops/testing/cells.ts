// Cells in every phase, with the status that the planner writes for them.
import type { CellConfiguration, MemberStatus } from "../../cell/types.ts";
import type { CoordinationCell, CoordinationCellSpec, CoordinationCellStatus } from "../../api/types.ts";
import { plan } from "../../plan/plan.ts";
import type { MemberView, Observation } from "../../plan/types.ts";
import { coordinationCell, memberObject } from "../../resources/testing/objects.ts";

export const NOW_MS: number = Date.parse("2026-05-01T12:00:00Z");
const CELL_ID = "cell-1";
const NAMES = ["orders-a", "orders-b", "orders-c"] as const;
const HOUR_MS = 3_600_000;
const CLAIM_BYTES = 10 * 2 ** 30;

/** What differs from three healthy voters in three zones of five nodes. */
export interface Scene {
  readonly spec?: Partial<CoordinationCellSpec>;
  readonly status?: CoordinationCellStatus;
  readonly deleting?: boolean;
  /** Members whose pod and process do not answer. */
  readonly down?: readonly string[];
  readonly obstacles?: Observation["obstacles"];
  /** Nothing of the cell is there yet. */
  readonly empty?: boolean;
}

function memberStatus(name: string, id: number): MemberStatus {
  return {
    cellId: CELL_ID,
    memberId: id,
    name,
    incarnation: `incarnation-${name}`,
    version: "0.1.0",
    formatVersion: 1,
    formatVersionMax: 1,
    role: id === 1 ? "leader" : "follower",
    term: 2,
    leaderId: 1,
    lastIndex: 100,
    commitIndex: 100,
    appliedIndex: 100,
    revision: 50,
    configurationIndex: 9,
    joint: false,
    alarms: [],
    progress: [],
    freeBytes: 9e9,
    volumeBytes: 1e10,
    ready: true,
    notReady: "",
    syncP90Us: 2_000,
    tls: undefined,
  };
}

function memberView(name: string, id: number, isDown: boolean): MemberView {
  const node = { name: `node-${String(id)}`, zone: `zone-${String(id)}`, ready: !isDown, schedulable: true };
  return {
    name,
    object: memberObject(name, { zone: node.zone }),
    pod: {
      name,
      uid: `pod-${name}`,
      phase: "Running",
      node: node.name,
      ready: !isDown,
      terminating: false,
      start: "existing",
      specHash: "h",
      image: "lockstep-cell:0.1.0",
      createdAtMs: NOW_MS - HOUR_MS,
      readySinceMs: isDown ? undefined : NOW_MS - HOUR_MS,
      restarts: 0,
      trouble: undefined,
      labels: { "lockstep.dev/role": "voter" },
    },
    claim: {
      name,
      uid: `claim-${name}`,
      phase: "Bound",
      terminating: false,
      requestedBytes: CLAIM_BYTES,
      capacityBytes: CLAIM_BYTES,
      zone: node.zone,
      node: node.name,
      trouble: undefined,
    },
    node,
    status: isDown ? undefined : memberStatus(name, id),
    wantedSpecHash: "h",
  };
}

function configurationOf(): CellConfiguration {
  return {
    cellId: CELL_ID,
    configurationIndex: 9,
    joint: false,
    leaderId: 1,
    members: NAMES.map((name, index) => ({
      id: index + 1,
      name,
      incarnation: `incarnation-${name}`,
      kind: "voter",
    })),
    removedIds: [],
  };
}

function observation(scene: Scene): Observation {
  const down = scene.down ?? [];
  const isEmpty = scene.empty === true;
  const object = coordinationCell(scene.spec);
  const cell: CoordinationCell = {
    ...object,
    metadata: {
      ...object.metadata,
      finalizers: ["lockstep.dev/cell"],
      ...(scene.deleting === true ? { deletionTimestamp: new Date(NOW_MS).toISOString() } : {}),
    },
    ...(isEmpty ? {} : { status: { cellId: CELL_ID, admitted: true, voters: 3, ...scene.status } }),
  };
  const hasQuorum = !isEmpty && down.length < 2;
  const leader = memberStatus(NAMES[0], 1);
  return {
    nowMs: NOW_MS,
    cell,
    members: isEmpty ? [] : NAMES.map((name, index) => memberView(name, index + 1, down.includes(name))),
    configuration: hasQuorum ? configurationOf() : undefined,
    leader: hasQuorum
      ? {
          ...leader,
          progress: NAMES.slice(1).map((name, index) => ({
            memberId: index + 2,
            state: down.includes(name) ? "probe" : "replicate",
            match: 100,
            recentlyActive: !down.includes(name),
            silentMs: down.includes(name) ? 60_000 : 0,
          })),
        }
      : undefined,
    orphanedClaims: [],
    nodes: [1, 2, 3, 4, 5].map((id) => ({
      name: `node-${String(id)}`,
      zone: `zone-${String(((id - 1) % 3) + 1)}`,
      ready: true,
      schedulable: true,
    })),
    requests: [],
    tenants: [],
    namespaceTerminating: false,
    mayRoll: true,
    certificates: { kind: "ready", message: "", notAfterMs: NOW_MS + 1_000 * HOUR_MS, due: undefined },
    outdatedObjects: [],
    obstacles: scene.obstacles ?? [],
    disruptionBudget: 2,
  };
}

/** The cell as it stands in the apiserver after the planner looked at it. */
export function plannedCell(scene: Scene): CoordinationCell {
  const seen = observation(scene);
  return { ...seen.cell, status: plan(seen).status };
}
