/** Buffers stay within what production says of them, whatever the world does. */
import type { Reporter } from "../contract.ts";
import type { WatchedMember } from "./god.ts";

export interface MemberBounds {
  /** Bytes of uncommitted entries that a leader takes in. */
  readonly uncommittedBytesMax: number;
  /** Entries committed and not applied: as many as fit into the bytes that the core hands out. */
  readonly applyLagMax: number;
  /** Bytes queued for all watchers of a member, one watcher's over. */
  readonly watchPendingBytesMax: number;
  readonly watchesMax: number;
  readonly commandsPendingMax: number;
  readonly readsPendingMax: number;
}

const MEBIBYTE = 1024 * 1024;
const ENTRY_OVERHEAD_BYTES = 32;

/** Those of production's parts by default. */
export const DEFAULT_BOUNDS: MemberBounds = {
  uncommittedBytesMax: 64 * MEBIBYTE,
  applyLagMax: (16 * MEBIBYTE) / ENTRY_OVERHEAD_BYTES,
  watchPendingBytesMax: (256 + 4) * MEBIBYTE,
  watchesMax: 1_000_000,
  commandsPendingMax: 50_000,
  readsPendingMax: 50_000,
};

/** A snapshot being sent holds the log back up to this many times the bytes that are kept anyway. */
const PINNED_FACTOR = 8;
/** What a leader proposes and asks by itself comes on top of what clients may: batches of leases, proofs of leadership. */
const OWN_COMMANDS_MAX = 64;

export class BoundLaws {
  readonly #reporter: Reporter;
  readonly #bounds: MemberBounds;

  constructor(reporter: Reporter, bounds: Partial<MemberBounds> = {}) {
    this.#reporter = reporter;
    this.#bounds = { ...DEFAULT_BOUNDS, ...bounds };
  }

  check({ host, core }: WatchedMember): void {
    const { replica, hub } = core;
    const { raft, logKeepBytes } = replica.parts;
    const bounds = this.#bounds;
    const entriesKept = raft.lastIndex - raft.firstIndex + 1;
    const dataBytes = raft.logBytes - entriesKept * ENTRY_OVERHEAD_BYTES;
    this.#within(host, "bytes of the log", dataBytes, this.#logBytesMax(logKeepBytes));
    this.#within(host, "entries to apply", replica.applyLag, bounds.applyLagMax);
    this.#within(
      host,
      "commands pending",
      replica.proposals.pending,
      bounds.commandsPendingMax + OWN_COMMANDS_MAX,
    );
    this.#within(host, "reads pending", replica.reads.pending, bounds.readsPendingMax + OWN_COMMANDS_MAX);
    this.#within(host, "bytes pending for watchers", hub.pendingBytes, bounds.watchPendingBytesMax);
    this.#within(host, "watchers", hub.watchers, bounds.watchesMax);
  }

  /** Kept for members that lag, and pinned; being applied; not committed yet. */
  #logBytesMax(keepBytes: number): number {
    return (PINNED_FACTOR + 1) * keepBytes + this.#bounds.uncommittedBytesMax;
  }

  #within(host: string, what: string, value: number, max: number): void {
    if (value >= 0 && value <= max) return;
    this.#reporter.violation("bounds", `${host}: ${String(value)} ${what}, at most ${String(max)} allowed`);
  }
}
