/**
 * Our Namespaces (key spaces of tenants), planned purely: what is seen goes in; at most one action and the status come
 * out. The cell holds the truth; the object mirrors it.
 */
import { NAMESPACE_FINALIZER, wireName as wireNameOf } from "../api/names.ts";
import type { CellNamespace, CellNamespaceStatus, CoordinationCell } from "../api/types.ts";
import type { WantedCondition } from "../api/conditions.ts";
import type { NamespaceInCell } from "../cell/types.ts";
import type { PlannedEvent } from "../plan/types.ts";

/** Names the uid of a key space that an earlier object left behind (deletionPolicy Retain), to take it over. */
export const ADOPT_ANNOTATION = "lockstep.dev/adopt-uid";

export interface NamespaceObservation {
  readonly object: CellNamespace;
  /** Undefined: there is no such cell. */
  readonly cell: CoordinationCell | undefined;
  /** The cell lets objects of this Kubernetes namespace in. */
  readonly allowed: boolean;
  /** The Kubernetes namespace of the cell, or of the object, is being deleted. */
  readonly cellGoes: boolean;
  /** What the cell holds, linearizable. Undefined: it did not answer; `silence` says why. */
  readonly held: readonly NamespaceInCell[] | undefined;
  readonly silence: string;
  /** The cell refused the last attempt: its words. Undefined: it did not. */
  readonly refusal: string | undefined;
}

export type NamespaceAction =
  | { readonly kind: "add-finalizer" }
  | { readonly kind: "create"; readonly name: string; readonly uid: string }
  | { readonly kind: "delete"; readonly name: string; readonly uid: string }
  | { readonly kind: "release" };

export interface NamespaceDecision {
  readonly action: NamespaceAction | undefined;
  readonly conditions: readonly WantedCondition[];
  readonly status: Omit<CellNamespaceStatus, "conditions">;
  readonly events: readonly PlannedEvent[];
  /** Undefined: only on change. */
  readonly lookAgainMs: number | undefined;
}

/** What clients send to be in it. */
export function wireName(object: CellNamespace): string {
  return wireNameOf(object.metadata.name, object.metadata.namespace ?? "default");
}

/** Whether a cell lets the Namespaces of a Kubernetes namespace in: its own always, others as it says. */
export function isAllowed(
  cell: CoordinationCell,
  namespace: string,
  labels: Readonly<Record<string, string>>,
): boolean {
  if (cell.metadata.namespace === namespace) return true;
  const allowed = cell.spec.allowedNamespaces;
  switch (allowed?.from) {
    case "All":
      return true;
    case "Selector": {
      const wanted = Object.entries(allowed.selector?.matchLabels ?? {});
      // A selector that says nothing would match all: only `All` says that.
      return wanted.length > 0 && wanted.every(([key, value]) => labels[key] === value);
    }
    case "Same":
    case undefined:
      return false;
  }
}

const CELL_ABSENT_LOOK_MS = 30_000;
const CELL_SILENT_LOOK_MS = 5_000;
const STEADY_LOOK_MS = 60_000;

export function planNamespace(seen: NamespaceObservation): NamespaceDecision {
  const { object } = seen;
  if (object.metadata.deletionTimestamp !== undefined) return planEnd(seen);
  if (object.metadata.finalizers?.includes(NAMESPACE_FINALIZER) !== true) {
    return decide(seen, "Pending", reconciling("Starting", "Taking charge of it."), {
      action: { kind: "add-finalizer" },
    });
  }
  const { cell } = seen;
  const cellName = cellNameOf(object);
  if (cell === undefined) {
    // It may be applied in the same breath as its cell, in any order.
    return decide(
      seen,
      "Pending",
      reconciling(
        "CellMissing",
        `There is no CoordinationCell ${cellName}. Create it, or correct spec.cellRef.`,
      ),
      { lookAgainMs: CELL_ABSENT_LOOK_MS },
    );
  }
  if (!seen.allowed) {
    return decide(
      seen,
      "Stalled",
      stalled(
        "NotAllowed",
        `The cell ${cellName} does not let the Kubernetes namespace ${object.metadata.namespace ?? ""} in. Its owner can, by spec.allowedNamespaces.`,
      ),
      { lookAgainMs: CELL_ABSENT_LOOK_MS },
    );
  }
  if (cell.metadata.deletionTimestamp !== undefined) {
    return decide(seen, "Stalled", stalled("CellDeleting", `The cell ${cellName} is being deleted.`), {});
  }
  if (seen.held === undefined) {
    return decide(
      seen,
      "Pending",
      reconciling("CellUnavailable", `The cell ${cellName} did not answer: ${seen.silence}`),
      { lookAgainMs: CELL_SILENT_LOOK_MS },
    );
  }
  return planInCell(seen, seen.held);
}

function planInCell(seen: NamespaceObservation, held: readonly NamespaceInCell[]): NamespaceDecision {
  const { object } = seen;
  const name = wireName(object);
  const uid = uidOf(object);
  const present = held.find((namespace) => namespace.name === name);
  if (present === undefined) {
    const why =
      seen.refusal === undefined
        ? reconciling("Creating", `Creating ${name} in the cell ${cellNameOf(object)}.`)
        : stalled("Refused", `The cell refuses to create ${name}: ${seen.refusal}`);
    return decide(seen, seen.refusal === undefined ? "Creating" : "Stalled", why, {
      action: { kind: "create", name, uid },
      lookAgainMs: CELL_SILENT_LOOK_MS,
    });
  }
  if (present.uid !== uid) {
    return decide(
      seen,
      "Stalled",
      stalled(
        "NameTaken",
        `The cell holds ${name} of an earlier object (uid ${present.uid}), with ${String(present.keys)} keys. To take it over, set the annotation ${ADOPT_ANNOTATION}=${present.uid}; to begin anew, delete it with \`lockstep namespace delete ${name}\`.`,
      ),
      { lookAgainMs: CELL_ABSENT_LOOK_MS },
    );
  }
  return decide(
    seen,
    "Ready",
    [
      { type: "Ready", status: "True", reason: "Served", message: `Clients name it ${name}.` },
      { type: "Reconciling", status: "False", reason: "Idle", message: "" },
      { type: "Stalled", status: "False", reason: "Idle", message: "" },
    ],
    { epoch: present.epoch, lookAgainMs: STEADY_LOOK_MS },
  );
}

function planEnd(seen: NamespaceObservation): NamespaceDecision {
  const { object, cell } = seen;
  const release = (reason: string, message: string): NamespaceDecision =>
    decide(seen, "Deleting", reconciling(reason, message), { action: { kind: "release" } });
  if (object.metadata.finalizers?.includes(NAMESPACE_FINALIZER) !== true) {
    return decide(seen, "Deleting", reconciling("Deleting", "Nothing is left to do."), {});
  }
  if (object.spec.deletionPolicy === "Retain") {
    return release("Retained", "Its keys stay in the cell (deletionPolicy Retain).");
  }
  // With the whole cell its keys go anyway: nothing may wait for a cell that is on its way out.
  if (cell === undefined || seen.cellGoes || cell.metadata.deletionTimestamp !== undefined) {
    return release("CellGone", "Its cell is gone, or goes.");
  }
  if (seen.held === undefined) {
    return decide(
      seen,
      "Deleting",
      reconciling(
        "CellUnavailable",
        `The cell ${cellNameOf(object)} does not answer, so its keys cannot be deleted: ${seen.silence} To let the object go without that, set spec.deletionPolicy to Retain.`,
      ),
      { lookAgainMs: CELL_SILENT_LOOK_MS },
    );
  }
  const name = wireName(object);
  const uid = uidOf(object);
  const mine = seen.held.some((namespace) => namespace.name === name && namespace.uid === uid);
  if (!mine) return release("Deleted", "The cell does not hold it any more.");
  return decide(seen, "Deleting", reconciling("Deleting", `Deleting ${name} from the cell.`), {
    action: { kind: "delete", name, uid },
    lookAgainMs: CELL_SILENT_LOOK_MS,
  });
}

function cellNameOf(object: CellNamespace): string {
  const { name, namespace } = object.spec.cellRef;
  return namespace === undefined ? name : `${namespace}/${name}`;
}

function uidOf(object: CellNamespace): string {
  return object.metadata.annotations?.[ADOPT_ANNOTATION] ?? object.metadata.uid ?? "";
}

function reconciling(reason: string, message: string): readonly WantedCondition[] {
  return [
    { type: "Ready", status: "False", reason, message },
    { type: "Reconciling", status: "True", reason, message },
    { type: "Stalled", status: "False", reason: "Progressing", message: "" },
  ];
}

function stalled(reason: string, message: string): readonly WantedCondition[] {
  return [
    { type: "Ready", status: "False", reason, message },
    { type: "Reconciling", status: "False", reason, message },
    { type: "Stalled", status: "True", reason, message },
  ];
}

function decide(
  seen: NamespaceObservation,
  phase: string,
  conditions: readonly WantedCondition[],
  rest: {
    readonly action?: NamespaceAction;
    readonly epoch?: number;
    readonly lookAgainMs?: number;
  },
): NamespaceDecision {
  const { object } = seen;
  const ready = conditions[0];
  const was = object.status?.conditions?.find((condition) => condition.type === "Ready");
  const epoch = rest.epoch ?? object.status?.epoch;
  const changed = ready !== undefined && (was?.status !== ready.status || was.reason !== ready.reason);
  return {
    action: rest.action,
    conditions,
    status: {
      ...(object.metadata.generation === undefined ? {} : { observedGeneration: object.metadata.generation }),
      phase,
      wireName: wireName(object),
      cell: cellNameOf(object),
      ...(epoch === undefined ? {} : { epoch }),
    },
    events:
      changed && ready.message !== ""
        ? [
            {
              type: phase === "Stalled" ? "Warning" : "Normal",
              reason: ready.reason,
              message: ready.message,
            },
          ]
        : [],
    lookAgainMs: rest.lookAgainMs,
  };
}
