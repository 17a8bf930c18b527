import type { CoordinatorInfo } from "../coordinator/index.ts";
import type { HeaderFacts } from "./wire/encode-kv.ts";

const CLUSTER_ID_HEX_DIGITS = 13;

/**
 * etcd's number of a cluster: the first 52 bits of the cell's id, so that every client can hold it.
 * Never 0, which would mean "none".
 */
export function clusterIdOf(cellId: string): number {
  const digits = cellId.replaceAll(/[^0-9a-f]/gi, "").slice(0, CLUSTER_ID_HEX_DIGITS);
  return digits === "" ? 1 : Number.parseInt(digits, 16) || 1;
}

/** What answers say about their sender. Kept until it changes: most answers have nothing else to look up. */
export class AnswerFacts implements HeaderFacts {
  clusterId = 1;
  memberId = 0;
  term = 0;
  private cellId: string | undefined;

  /** Takes what the coordinator says now. */
  update(info: CoordinatorInfo): void {
    if (info.cellId !== this.cellId) {
      this.cellId = info.cellId;
      this.clusterId = clusterIdOf(info.cellId);
    }
    this.memberId = info.memberId;
    this.term = info.term;
  }
}
