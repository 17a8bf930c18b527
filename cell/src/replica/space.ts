import type { MemberId } from "../raft/types.ts";
import type { Disk } from "../wal/types.ts";

/**
 * Free space on the voters' volumes. Below its reserve a voter says so; the leader then refuses growth and admits
 * deletes, revokes, expiry, compaction and configuration changes (W8). It recovers by itself when space returns.
 */
export class SpaceWatch {
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #reserveBytes: number;
  #freeBytes = Number.POSITIVE_INFINITY;
  #volumeBytes = 0;
  readonly #lowPeers = new Set<MemberId>();

  constructor(disk: Disk, directory: string, reserveBytes: number) {
    this.#disk = disk;
    this.#directory = directory;
    this.#reserveBytes = reserveBytes;
  }

  get freeBytes(): number {
    return this.#freeBytes;
  }

  /** Size of the volume; it may be grown while the member runs. 0: not measured yet. */
  get volumeBytes(): number {
    return this.#volumeBytes;
  }

  /** This member is below its reserve. */
  get low(): boolean {
    return this.#freeBytes < this.#reserveBytes;
  }

  async measure(): Promise<void> {
    this.#freeBytes = await this.#disk.freeBytes(this.#directory);
    this.#volumeBytes = await this.#disk.volumeBytes(this.#directory);
  }

  told(from: MemberId, low: boolean): void {
    if (low) this.#lowPeers.add(from);
    else this.#lowPeers.delete(from);
  }

  /** Some voter, or this member, is below its reserve. */
  anyLow(voters: readonly MemberId[]): boolean {
    return this.low || voters.some((voter) => this.#lowPeers.has(voter));
  }
}
