// Objects as the apiserver would give them back, for tests of what is built from them.
import { API_VERSION } from "../../api/types.ts";
import type { CellMember, CoordinationCell, CoordinationCellSpec } from "../../api/types.ts";

/** A spec with the defaults filled in. */
export const CELL_SPEC: CoordinationCellSpec = {
  voters: 3,
  storage: { size: "10Gi", reclaimPolicy: "Retain" },
  topology: { zoneKey: "topology.kubernetes.io/zone", hostSpread: "Required" },
  tls: { mode: "Managed", leafDuration: "2160h", clientOverlap: "5m" },
  updatePolicy: { mode: "Rolling", minReadySeconds: 10 },
  replacementPolicy: { mode: "AfterLoss", after: "10m", slowDisk: "Report" },
};

export const CELL_UID = "3b241101-e2bb-4255-8caf-4136c566a962";

export function coordinationCell(spec: Partial<CoordinationCellSpec> = {}): CoordinationCell {
  return {
    apiVersion: API_VERSION,
    kind: "CoordinationCell",
    metadata: { name: "orders", namespace: "apps", uid: CELL_UID, generation: 1 },
    spec: { ...CELL_SPEC, ...spec },
  };
}

export function memberObject(
  name: string = "orders-x7k2p",
  spec: Partial<CellMember["spec"]> = {},
): CellMember {
  return {
    apiVersion: API_VERSION,
    kind: "CellMember",
    metadata: { name, namespace: "apps", uid: `uid-of-${name}` },
    spec: { cell: "orders", cellUid: CELL_UID, storage: { size: "10Gi" }, ...spec },
  };
}
