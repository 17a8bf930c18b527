import type {
  Cause,
  ClientId,
  Coordinator,
  CoordinatorInfo,
  Failure,
  LeaderHint,
  LeaseEnd,
  LeaseId,
  Mutation,
  MutationOutcome,
  Read,
  ReadOutcome,
  ReadResult,
  Renewal,
  RenewalOutcome,
  Revision,
  TxnResult,
  WatchHandle,
  WatchRequest,
  WatchSink,
  WriteOperation,
  WriteResult,
} from "../coordinator/index.ts";
import { LIMITS } from "../coordinator/index.ts";
import { refusal } from "../validation.ts";
import { MemoryNamespace } from "./memory-namespace.ts";
import { MemoryWatch } from "./memory-watch.ts";

/** Time that moves only when told to. */
export class ManualClock {
  private time = 1_000_000;

  now(): number {
    return this.time;
  }

  advance(ms: number): void {
    this.time += ms;
  }
}

export interface MemoryCoordinatorOptions {
  /** Default: a {@link ManualClock} of its own. */
  readonly clock?: { now(): number };
  /** Namespaces that exist. Default: only `default`. */
  readonly namespaces?: readonly string[];
  /** Default: this member leads. */
  readonly leader?: LeaderHint;
}

const SELF: LeaderHint = { memberId: 1, clientAddress: "127.0.0.1:4101", httpAddress: "127.0.0.1:4102" };

function failed(failure: Failure): { readonly ok: false; readonly failure: Failure } {
  return { ok: false, failure };
}

/**
 * A coordinator in one process's memory, for the tests of doors and clients: the contract without consensus or
 * storage. Operations take effect at once and in order; answers and events are delivered together in a microtask,
 * or when {@link release} is called after {@link hold}.
 */
export class MemoryCoordinator implements Coordinator {
  readonly clock: { now(): number };
  private revision = 1;
  private leader: LeaderHint | undefined;
  private nextLease = 81;
  private nextClient = 1;
  private readonly namespaces = new Map<string, MemoryNamespace>();
  private readonly remembered = new Map<string, MutationOutcome>();
  private readonly clients = new Set<number>();
  private readonly watches = new Set<MemoryWatch>();
  private readonly leaseListeners = new Set<(end: LeaseEnd) => void>();
  private readonly leaderListeners = new Set<(leader: LeaderHint | undefined) => void>();
  private waitingReads: {
    readonly read: Read;
    readonly deliver: (outcome: ReadOutcome) => void;
    deadline: number;
  }[] = [];
  private deliveries: (() => void)[] = [];
  private scheduled = false;
  private held = false;
  private injected: Failure[] = [];

  constructor(options: MemoryCoordinatorOptions = {}) {
    this.clock = options.clock ?? new ManualClock();
    this.leader = options.leader ?? SELF;
    for (const name of options.namespaces ?? ["default"]) this.namespaces.set(name, new MemoryNamespace());
  }

  // ---- levers for tests ----

  /** Deliver nothing until {@link release}. */
  hold(): void {
    this.held = true;
  }

  release(): void {
    this.held = false;
    this.schedule();
  }

  /** Ranges inside transactions answer no more keys than this, as a bound of a reply's bytes would make them. */
  cutRangesAfter: number | undefined;

  /** The next mutation, read or renewal is refused with this. */
  failNext(failure: Failure): void {
    this.injected.push(failure);
  }

  setLeader(leader: LeaderHint | undefined): void {
    this.leader = leader;
    for (const listener of this.leaderListeners) listener(leader);
  }

  /** Ends leases and waiting reads that are due by the clock. */
  expireDue(): void {
    const now = this.clock.now();
    for (const [name, namespace] of this.namespaces) {
      for (const lease of [...namespace.leases.values()]) {
        if (lease.deadline <= now) this.endLease(name, lease.leaseId, "lease-expired");
      }
    }
    const due = this.waitingReads.filter((waiting) => waiting.deadline <= now);
    this.waitingReads = this.waitingReads.filter((waiting) => waiting.deadline > now);
    for (const { deliver } of due) {
      this.later(() => deliver(failed(refusal("deadline-exceeded", "the revision was not reached in time"))));
    }
  }

  get openWatches(): number {
    return this.watches.size;
  }

  /** Ends every watch as a hub does when its consumer never drains. */
  endWatchesSlow(): void {
    for (const watch of this.watches) watch.endSlow();
    this.watches.clear();
  }

  // ---- the contract ----

  mutate(mutation: Mutation, deliver: (outcome: MutationOutcome) => void): void {
    const outcome = this.perform(mutation);
    this.later(() => deliver(outcome));
  }

  read(read: Read, deliver: (outcome: ReadOutcome) => void): void {
    if ((read.minRevision ?? 0) > this.revision) {
      const deadline = this.clock.now() + (read.deadlineMs ?? 10_000);
      this.waitingReads.push({ read, deliver, deadline });
      return;
    }
    const outcome = this.answer(read);
    this.later(() => deliver(outcome));
  }

  renew(renewal: Renewal, deliver: (outcome: RenewalOutcome) => void): void {
    const outcome = this.extend(renewal);
    this.later(() => deliver(outcome));
  }

  watch(request: WatchRequest, sink: WatchSink): WatchHandle | Failure {
    const namespace = this.namespaces.get(request.namespace);
    if (namespace === undefined) return this.noNamespace(request.namespace);
    const next = request.startRevision ?? this.revision + 1;
    const watch = new MemoryWatch(request, sink, { namespace, next });
    this.watches.add(watch);
    this.schedule();
    return {
      createdRevision: this.revision as Revision,
      cancel: () => {
        watch.cancel();
        this.watches.delete(watch);
      },
      resume: () => {
        watch.resume();
        this.schedule();
      },
      requestProgress: () => {
        watch.wantProgress();
        this.schedule();
      },
    };
  }

  onLeaseEnd(listener: (end: LeaseEnd) => void): () => void {
    this.leaseListeners.add(listener);
    return () => this.leaseListeners.delete(listener);
  }

  onLeaderChange(listener: (leader: LeaderHint | undefined) => void): () => void {
    this.leaderListeners.add(listener);
    return () => this.leaderListeners.delete(listener);
  }

  info(): CoordinatorInfo {
    const base = { cellId: "cell-in-memory", memberId: 1, term: 1, revision: this.revision as Revision };
    return this.leader === undefined ? base : { ...base, leader: this.leader };
  }

  // ---- behind it ----

  private noNamespace(name: string): Failure {
    return refusal("namespace-not-found", `there is no namespace ${name} here`);
  }

  private perform(mutation: Mutation): MutationOutcome {
    const injected = this.injected.shift();
    if (injected !== undefined) return failed(injected);
    if (mutation.deadlineMs === 0) return failed(refusal("deadline-exceeded", "no time was given"));
    const namespace = this.namespaces.get(mutation.namespace);
    if (namespace === undefined) return failed(this.noNamespace(mutation.namespace));
    const { identity } = mutation;
    if (identity.kind === "client" && !this.clients.has(identity.clientId)) {
      const message = "the client is not registered, or was forgotten";
      return failed({ code: "request-expired", outcome: "unknown", message });
    }
    const name = JSON.stringify([mutation.namespace, identity]);
    const known = identity.kind === "none" ? undefined : this.remembered.get(name);
    if (known !== undefined) return known.ok ? { ...known, replayed: true } : known;
    const result = this.apply(mutation.namespace, namespace, mutation.operation);
    const outcome: MutationOutcome =
      "code" in result ? failed(result) : { ok: true, result, replayed: false };
    if (identity.kind !== "none") this.remembered.set(name, outcome);
    return outcome;
  }

  private apply(name: string, namespace: MemoryNamespace, operation: WriteOperation): WriteResult | Failure {
    const current = this.revision as Revision;
    const next = (current + 1) as Revision;
    switch (operation.kind) {
      case "put": {
        const failure = namespace.refusalOf([operation]);
        return failure ?? this.commit(namespace, namespace.put(operation, next));
      }
      case "delete":
        return this.commit(namespace, namespace.delete(operation, next, current));
      case "txn": {
        const result = namespace.txn(operation, next, current);
        return "code" in result ? result : this.commit(namespace, this.cut(result));
      }
      case "lease-grant": {
        const leaseId = operation.leaseId ?? (String(this.nextLease++) as LeaseId);
        if (namespace.leases.has(leaseId)) return refusal("lease-exists", `lease ${leaseId} exists`);
        const ttlMs = Math.max(operation.ttlMs, LIMITS.leaseTtlMsMin);
        const deadline = this.clock.now() + ttlMs;
        namespace.leases.set(leaseId, {
          leaseId,
          ttlMs,
          owner: operation.owner ?? "",
          deadline,
          keys: new Set(),
        });
        return { kind: "lease-grant", leaseId, ttlMs, revision: current };
      }
      case "lease-revoke": {
        if (!namespace.leases.has(operation.leaseId)) {
          return refusal("lease-not-found", `no lease ${operation.leaseId}`);
        }
        const deleted = this.endLease(name, operation.leaseId, "lease-revoked");
        return { kind: "lease-revoke", revision: this.revision as Revision, deleted };
      }
      case "compact":
        namespace.compactRevision = operation.revision;
        return { kind: "compact", revision: current };
      case "register-client": {
        const clientId = this.nextClient++ as ClientId;
        this.clients.add(clientId);
        return { kind: "register-client", clientId, revision: current };
      }
    }
  }

  private cut(result: TxnResult): TxnResult {
    const { cutRangesAfter: most } = this;
    if (most === undefined) return result;
    const responses = result.responses.map((response) =>
      response.kind === "range" && response.kvs.length > most
        ? { ...response, kvs: response.kvs.slice(0, most), more: true }
        : response,
    );
    return { ...result, responses };
  }

  /** Ends the revision if anything was written. */
  private commit<Result>(namespace: MemoryNamespace, result: Result): Result {
    const next = (this.revision + 1) as Revision;
    if (namespace.takeEvents(next).length > 0) this.revision = next;
    return result;
  }

  private endLease(name: string, leaseId: LeaseId, cause: Cause): number {
    const namespace = this.namespaces.get(name);
    const lease = namespace?.leases.get(leaseId);
    if (namespace === undefined || lease === undefined) return 0;
    const keys = [...lease.keys].sort();
    for (const key of keys) namespace.remove(key, (this.revision + 1) as Revision, cause);
    namespace.leases.delete(leaseId);
    this.commit(namespace, undefined);
    const end: LeaseEnd = { namespace: name, leaseId, cause, revision: this.revision as Revision };
    this.later(() => {
      for (const listener of this.leaseListeners) listener(end);
    });
    return keys.length;
  }

  private answer(read: Read): ReadOutcome {
    const injected = this.injected.shift();
    if (injected !== undefined) return failed(injected);
    const namespace = this.namespaces.get(read.namespace);
    if (namespace === undefined) return failed(this.noNamespace(read.namespace));
    const result = this.look(namespace, read);
    return "code" in result ? failed(result) : { ok: true, result };
  }

  private look(namespace: MemoryNamespace, { operation }: Read): ReadResult | Failure {
    const revision = this.revision as Revision;
    switch (operation.kind) {
      case "range": {
        const at = operation.revision ?? revision;
        if (at > revision) return refusal("future-revision", `revision ${at} is not there yet`);
        if (at < namespace.compactRevision) {
          const compactRevision = namespace.compactRevision as Revision;
          return { ...refusal("compacted", `history before ${compactRevision} is gone`), compactRevision };
        }
        return namespace.range(operation, revision);
      }
      case "lease-time-to-live": {
        const lease = namespace.leases.get(operation.leaseId);
        const keys = operation.keys === true && lease !== undefined ? [...lease.keys].sort() : [];
        return {
          kind: "lease-time-to-live",
          revision,
          leaseId: operation.leaseId,
          remainingMs: lease === undefined ? -1 : Math.max(0, lease.deadline - this.clock.now()),
          ttlMs: lease?.ttlMs ?? 0,
          owner: lease?.owner ?? "",
          keys: keys.map((key) => Buffer.from(key, "latin1")),
        };
      }
      case "lease-list": {
        const after = BigInt(operation.after ?? "0");
        const limit = operation.limit === undefined || operation.limit === 0 ? Infinity : operation.limit;
        const all = [...namespace.leases.values()]
          .filter((lease) => BigInt(lease.leaseId) > after)
          .sort((a, b) => (BigInt(a.leaseId) < BigInt(b.leaseId) ? -1 : 1));
        const leases = all.slice(0, limit).map(({ leaseId, ttlMs, owner }) => ({ leaseId, ttlMs, owner }));
        return { kind: "lease-list", revision, leases, more: all.length > leases.length };
      }
      case "txn-read":
        return namespace.txn(operation.txn, revision, revision);
    }
  }

  private extend({ namespace: name, leaseIds }: Renewal): RenewalOutcome {
    const injected = this.injected.shift();
    if (injected !== undefined) return failed(injected);
    const namespace = this.namespaces.get(name);
    if (namespace === undefined) return failed(this.noNamespace(name));
    const remainingMs = leaseIds.map((leaseId) => {
      const lease = namespace.leases.get(leaseId);
      if (lease === undefined) return 0;
      lease.deadline = this.clock.now() + lease.ttlMs;
      return lease.ttlMs;
    });
    return { ok: true, revision: this.revision as Revision, remainingMs };
  }

  private later(delivery: () => void): void {
    this.deliveries.push(delivery);
    this.schedule();
  }

  private schedule(): void {
    if (this.scheduled || this.held) return;
    this.scheduled = true;
    queueMicrotask(() => this.deliver());
  }

  /** Everything that is due, in one synchronous block, as the contract promises. */
  private deliver(): void {
    this.scheduled = false;
    if (this.held) return;
    const { deliveries } = this;
    this.deliveries = [];
    for (const delivery of deliveries) delivery();
    for (const watch of this.watches) {
      watch.catchUp(this.revision as Revision);
      if (!watch.isOpen) this.watches.delete(watch);
    }
    const ready = this.waitingReads.filter(({ read }) => (read.minRevision ?? 0) <= this.revision);
    if (ready.length === 0) return;
    this.waitingReads = this.waitingReads.filter((waiting) => !ready.includes(waiting));
    for (const { read, deliver } of ready) this.read(read, deliver);
  }
}
