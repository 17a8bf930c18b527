/** What must hold in every history. A law that is broken is told once, with the time. */
import type { PersistentVolumeClaim, Pod } from "../api/core.ts";
import { CELL_NAMESPACE, COORDINATION_CELL, POD_DISRUPTION_BUDGET } from "../api/kinds.ts";
import type { CoordinationCell } from "../api/types.ts";
import type { KubeObject } from "../kube/types.ts";
import type { Write } from "./apiserver.ts";
import type { Cluster } from "./cluster.ts";
import type { RaftCell } from "./raft-cell.ts";

/** Kinds of the objects without which a cell does not serve. Member Secrets are owned as pods are. */
const NEEDED: ReadonlySet<string> = new Set([
  "CellMember",
  "Pod",
  "PersistentVolumeClaim",
  "Service",
  "ServiceAccount",
  "PodDisruptionBudget",
]);
/** What happened so lately, nobody can be blamed for not knowing. */
const FORGIVEN_MS = 15_000;

export class Laws {
  readonly broken: string[] = [];
  readonly #cluster: () => Cluster;
  /** uid by kind/name: a name that comes again with another uid is a second identity. */
  readonly #uids = new Map<string, string>();
  /** Ids of cells that a status ever named. */
  readonly #known = new Set<string>();
  /** True while the operator writes: the world does its own deeds through the same apiserver. */
  isOperator = false;
  isPaused = false;
  /** The cell waits for its tenants, and no pass goes on that began before. */
  isHeld = false;

  constructor(cluster: () => Cluster) {
    this.#cluster = cluster;
  }

  readonly break = (law: string): void => {
    this.broken.push(law);
  };

  /** After each write at the apiserver. */
  readonly observe = (write: Write): void => {
    const cellId = (write.after as CoordinationCell | undefined)?.status?.cellId;
    if (cellId !== undefined && !this.#known.has(cellId)) this.#judgeFounding(cellId);
    this.#judgeIdentity(write);
    this.#judgeWaiting(write);
    if (!this.isOperator) return;
    const cell = this.cellObject();
    const isGoing = cell === undefined || cell.metadata.deletionTimestamp !== undefined;
    // The operator writes nothing but finalizers on a cell, and one that is paused needs its own too.
    const isFinalizer = write.kind === "CoordinationCell" && write.verb === "patch";
    if (this.isPaused && !isGoing && write.verb !== "status" && !isFinalizer)
      this.break(`${write.verb} ${write.kind} while paused`);
    if (write.kind === "Pod" && write.verb === "delete") this.#judgePodDeletion(write.before as Pod);
    if (write.kind === "PersistentVolumeClaim" && write.verb === "delete") {
      this.#judgeClaimDeletion(write.before as PersistentVolumeClaim);
    }
  };

  /** A change of voters was accepted by the cell. */
  readonly decided = (cell: RaftCell, before: readonly number[], after: readonly number[]): void => {
    const cluster = this.#cluster();
    const alive = cluster.lately(cell.id, FORGIVEN_MS);
    const count = (ids: readonly number[]): number => ids.filter((id) => alive.has(id)).length;
    if (count(after) < quorum(after.length)) {
      this.break(`a change leaves ${String(count(after))} of ${String(after.length)} voters alive`);
    }
    const sickStay = before.filter((id) => after.includes(id) && !alive.has(id));
    const wellLeave = before.filter((id) => !after.includes(id) && alive.has(id));
    if (sickStay.length > 0 && wellLeave.length > 0 && after.length <= before.length) {
      this.break(`the healthy voter ${String(wellLeave[0])} leaves while ${String(sickStay[0])} is sick`);
    }
    const [budget] = cluster.api.list(POD_DISRUPTION_BUDGET);
    if (budget === undefined || budget.spec.minAvailable < before.length) {
      this.break(
        `a change begins with minAvailable ${String(budget?.spec.minAvailable)} of ${String(before.length)}`,
      );
    }
    if (!after.includes(cell.leaderId) && before.length > 1)
      this.break("the leader is removed without a transfer");
  };

  /** A second cell may only come from a recovery. */
  #judgeFounding(cellId: string): void {
    const { founded } = this.#cluster();
    if (this.#known.size > 0 && founded.includes(cellId)) this.break(`a second cell is founded: ${cellId}`);
    this.#known.add(cellId);
  }

  /** Once a step: a member whose cell nobody has written down yet may have founded one over data. */
  readonly look = (): void => {
    const { founded } = this.#cluster();
    const known = founded.findIndex((id) => this.#known.has(id));
    if (known >= 0 && known < founded.length - 1) this.break("a cell is founded when there is one already");
  };

  /** A cell in deletion that somebody still uses keeps all that it needs, whoever would take it. */
  #judgeWaiting({ verb, kind, before, isCascade }: Write): void {
    if (verb !== "delete" || !NEEDED.has(kind) || !this.#waitsForTenants()) return;
    // A pod that the operator ends is made anew on its volume.
    const isOperators = this.isOperator && this.isHeld && kind !== "Pod";
    if (!isCascade && !isOperators) return;
    this.break(`the ${kind} ${before?.metadata.name ?? ""} is deleted while tenants use the cell`);
  }

  #waitsForTenants(): boolean {
    const isGoing = this.cellObject()?.metadata.deletionTimestamp !== undefined;
    return isGoing && this.#cluster().api.list(CELL_NAMESPACE).length > 0;
  }

  #judgeIdentity({ verb, kind, after }: Write): void {
    if (verb !== "create" || after === undefined) return;
    if (kind === "CellMember" || kind === "PersistentVolumeClaim") {
      const key = `${kind}/${after.metadata.name}`;
      const uid = this.#uids.get(key);
      if (uid !== undefined && uid !== after.metadata.uid) this.break(`${key} is made a second time`);
      this.#uids.set(key, after.metadata.uid ?? "");
    }
  }

  /** A pod that the operator ends must not take the majority with it. */
  #judgePodDeletion(pod: Pod): void {
    const cluster = this.#cluster();
    if (this.#isGoing(pod)) return;
    const process = cluster.processes.get(pod.metadata.uid ?? "");
    const cell = cluster.cells.get(process?.disk.cellId ?? "");
    if (process === undefined || cell === undefined) return;
    const { voters, old } = cell.configuration;
    const id = process.disk.memberId;
    if (voters.length === 1 && old === undefined) return;
    const lately = cluster.lately(cell.id, FORGIVEN_MS);
    const now = cluster.reachable(cell.id);
    for (const half of [voters, ...(old === undefined ? [] : [old])]) {
      if (!half.includes(id) || !now.has(id)) continue;
      const others = half.filter((other) => other !== id && lately.has(other)).length;
      const before = half.filter((other) => now.has(other)).length;
      if (before >= quorum(half.length) && others < quorum(half.length)) {
        this.break(`the pod of voter ${process.name} is ended, and ${String(others)} others are alive`);
      }
      const sick = half.find((other) => other !== id && !lately.has(other));
      if (sick !== undefined && cluster.isReady(process)) {
        this.break(`the healthy voter ${process.name} is restarted while ${String(sick)} is sick`);
      }
    }
  }

  /** A volume that voted goes only if the spec says so. */
  #judgeClaimDeletion(claim: PersistentVolumeClaim): void {
    const cluster = this.#cluster();
    const cell = this.cellObject();
    if (cell?.spec.storage.reclaimPolicy !== "Retain") return;
    const disk = cluster.diskOf(claim);
    const raft = cluster.cells.get(disk?.cellId ?? "");
    // Of a cell that nobody ever heard of, nothing is lost.
    if (!this.#known.has(disk?.cellId ?? "")) return;
    const hasVoted = disk !== undefined && raft?.everVoted.has(disk.memberId) === true;
    if (hasVoted) this.break(`the claim ${claim.metadata.name} is deleted under reclaimPolicy Retain`);
  }

  cellObject(): CoordinationCell | undefined {
    return this.#cluster().api.list(COORDINATION_CELL)[0];
  }

  #isGoing(object: KubeObject): boolean {
    const cell = this.cellObject();
    return (
      cell === undefined ||
      cell.metadata.deletionTimestamp !== undefined ||
      cell.status?.operation?.kind === "Recover" ||
      object.metadata.deletionTimestamp !== undefined
    );
  }
}

function quorum(voters: number): number {
  return Math.floor(voters / 2) + 1;
}
