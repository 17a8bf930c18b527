import type { LeaseId, Revision } from "@lockstep/gateway/coordinator";
import type {
  CheckpointCommand,
  Command,
  CommandOutcome,
  LeaseChange,
  LeaseRecord,
  NamespaceId,
  RetentionPolicy,
} from "../machine/types.ts";
import type { LogIndex, Term } from "../raft/types.ts";
import type { SessionKeeper, SessionWork } from "../session/types.ts";
import type { CellState } from "./state.ts";

export interface LeadershipOptions {
  readonly sessions: SessionKeeper;
  readonly state: CellState;
  readonly monotonicMs: () => number;
  /** Proposes a command of the leader's own. */
  readonly propose: (command: Command, settled: (outcome: CommandOutcome) => void) => void;
  /** A read-index round: answers true once this member has proved that it still leads, false if it could not. */
  readonly proveLeadership: (settled: (proved: boolean) => void) => void;
  /** undefined: history is never given up by the cell itself. */
  readonly retention: RetentionPolicy | undefined;
  readonly retentionIntervalMs: number;
}

type Standing =
  | { readonly kind: "following" }
  /** Elected; leads sessions once the entry at `noopIndex` is applied here. */
  | { readonly kind: "elected"; readonly term: Term; readonly noopIndex: LogIndex }
  | { readonly kind: "leading"; readonly term: Term };

/**
 * What only a leader does on its own account: deadlines of sessions, and compaction by the retention policy. Each of
 * its commands names the leader's term and is void at apply if another term committed it.
 */
export class Leadership {
  readonly #options: LeadershipOptions;
  #standing: Standing = { kind: "following" };
  #proving = false;
  #nextRetentionMs = 0;
  readonly #retentionQueue = new Set<NamespaceId>();
  readonly #retaining = new Map<NamespaceId, Revision>();

  constructor(options: LeadershipOptions) {
    this.#options = options;
  }

  get leadsSessions(): boolean {
    return this.#standing.kind === "leading";
  }

  elected(term: Term, noopIndex: LogIndex): void {
    this.#standing = { kind: "elected", term, noopIndex };
    this.appliedTo(this.#options.state.appliedIndex);
  }

  deposed(): void {
    this.#standing = { kind: "following" };
    this.#proving = false;
    this.#retaining.clear();
    this.#retentionQueue.clear();
    this.#options.sessions.follow();
  }

  changed(changes: readonly LeaseChange[]): void {
    if (changes.length === 0) return;
    const nowMs = this.#options.monotonicMs();
    const { sessions } = this.#options;
    for (const change of changes) sessions.applied(change, nowMs);
    const standing = this.#standing;
    if (standing.kind === "leading") this.#expireAll(standing.term, sessions.expireMore(nowMs));
  }

  /** At start, and when a snapshot replaced the state: the keeper learns every lease anew. */
  reload(): void {
    const { sessions, state } = this.#options;
    sessions.load(allLeases(state));
  }

  appliedTo(index: LogIndex): void {
    const standing = this.#standing;
    if (standing.kind !== "elected" || index < standing.noopIndex) return;
    this.#standing = { kind: "leading", term: standing.term };
    this.#options.sessions.lead(standing.term, this.#options.monotonicMs());
  }

  /** @param quorumContactMs when the newest heartbeat round that a quorum answered was sent. */
  tick(nowMs: number, quorumContactMs: number): void {
    const standing = this.#standing;
    if (standing.kind !== "leading") return;
    const work = this.#options.sessions.tick(nowMs, quorumContactMs);
    this.#expireAll(standing.term, work.expire);
    for (const { namespaceId, leases } of work.checkpoint)
      this.#checkpoint(standing.term, namespaceId, leases);
    if (work.proveLeadership) this.#prove(standing.term);
    this.#retain(nowMs);
  }

  #expireAll(term: Term, expire: SessionWork["expire"]): void {
    for (const { namespaceId, leaseIds } of expire) this.#expire(term, namespaceId, leaseIds);
  }

  #expire(term: Term, namespaceId: NamespaceId, leaseIds: readonly LeaseId[]): void {
    this.#options.propose({ kind: "expire", namespaceId, leaderTerm: term, leaseIds }, (outcome) => {
      if (outcome.ok || !this.#leads(term)) return;
      const known = outcome.failure.outcome === "not-applied" ? "refused" : "unknown";
      this.#options.sessions.expiryFailed(namespaceId, leaseIds, known);
    });
  }

  #checkpoint(term: Term, namespaceId: NamespaceId, leases: CheckpointCommand["leases"]): void {
    this.#options.propose({ kind: "checkpoint", namespaceId, leaderTerm: term, leases }, (outcome) => {
      if (outcome.ok || outcome.failure.outcome !== "not-applied" || !this.#leads(term)) return;
      this.#options.sessions.checkpointFailed(
        namespaceId,
        leases.map((lease) => lease.leaseId),
      );
    });
  }

  #prove(term: Term): void {
    if (this.#proving) return;
    this.#proving = true;
    const startedMs = this.#options.monotonicMs();
    this.#options.proveLeadership((proved) => {
      this.#proving = false;
      if (!proved || !this.#leads(term)) return;
      this.#options.sessions.leadershipProved(startedMs, this.#options.monotonicMs());
    });
  }

  #leads(term: Term): boolean {
    return this.#standing.kind === "leading" && this.#standing.term === term;
  }

  #retain(nowMs: number): void {
    const { retention, state, retentionIntervalMs } = this.#options;
    if (retention === undefined) return;
    if (nowMs >= this.#nextRetentionMs) {
      this.#nextRetentionMs = nowMs + retentionIntervalMs;
      for (const { id } of state.machine.namespaces()) this.#retentionQueue.add(id);
    }
    for (const id of [...this.#retentionQueue].slice(0, RETENTION_A_TICK)) {
      this.#retentionQueue.delete(id);
      if (state.machine.namespace(id) === undefined) continue;
      const due = state.machine.retentionDue(id, retention, state.store);
      if (due === undefined || this.#retaining.get(id) === due) continue;
      this.#retaining.set(id, due);
      this.#options.propose({ kind: "retain", namespaceId: id, compactRevision: due }, () =>
        this.#retaining.delete(id),
      );
    }
  }
}

const LEASES_A_SLICE = 1024;
/** Namespaces looked at in one tick: each takes some look-ups in the history. */
const RETENTION_A_TICK = 16;

/** Rows of deleted namespaces may still be there. */
function* allLeases(state: CellState): Generator<LeaseRecord> {
  const present = new Set(state.machine.namespaces().map(({ id }) => id));
  let after: { readonly namespaceId: NamespaceId; readonly leaseId: LeaseId } | undefined;
  while (true) {
    const slice = state.machine.scanLeases(after, LEASES_A_SLICE, state.store);
    for (const lease of slice) if (present.has(lease.namespaceId)) yield lease;
    const last = slice[slice.length - 1];
    if (last === undefined || slice.length < LEASES_A_SLICE) return;
    after = { namespaceId: last.namespaceId, leaseId: last.leaseId };
  }
}
