/**
 * The machine's deliberately dumb twin: the list of everything that ever happened, and the state recomputed from it
 * for each question. Slow and obvious. No bounds but the ones that tests set.
 */
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type {
  Cause,
  ClientId,
  Compare,
  CompareFailure,
  Failure,
  FailureCode,
  KeyRange,
  KeyValue,
  LeaseId,
  RangeOperation,
  Revision,
  TxnCommand,
  TxnOperation,
  TxnOperationResult,
  WriteOperation,
  WriteResult,
} from "@lockstep/gateway/coordinator";
import type { Command, CommandOutcome, MachineSettings } from "../types.ts";

export interface Change {
  readonly revision: number;
  /** Latin-1. */
  readonly key: string;
  /** undefined: deleted. */
  readonly kv: KeyValue | undefined;
  readonly cause: Cause;
}

const latin1 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");
const toBytes = (key: string): Uint8Array => new Uint8Array(Buffer.from(key, "latin1"));

class Refused extends Error {
  readonly failure: Pick<Failure, "code">;
  constructor(code: FailureCode) {
    super(code);
    this.failure = { code };
  }
}

/** What the namespaces of a cell share. */
export interface Counters {
  revision: number;
  nextLease: number;
  nextClient: number;
}

/** One namespace. */
export class Model {
  readonly changes: Change[] = [];
  compactRevision = 0;
  readonly leases: Map<LeaseId, number> = new Map<LeaseId, number>();
  private readonly counters: Counters;
  private readonly clients = new Map<number, { floor: number; outcomes: Map<number, CommandOutcome> }>();
  private readonly settings: MachineSettings;

  constructor(settings: MachineSettings, counters: Counters = { revision: 1, nextLease: 1, nextClient: 1 }) {
    this.settings = settings;
    this.counters = counters;
  }

  get revision(): number {
    return this.counters.revision;
  }

  set revision(revision: number) {
    this.counters.revision = revision;
  }

  /** The state as of a revision, by key. */
  stateAt(revision: number): Map<string, KeyValue> {
    const state = new Map<string, KeyValue>();
    for (const change of this.changes) {
      if (change.revision > revision) break;
      if (change.kv === undefined) state.delete(change.key);
      else state.set(change.key, change.kv);
    }
    return new Map([...state].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Refusals have only their code: the message is for people. */
  apply(command: Command, term: number): CommandOutcome | { readonly ok: false; readonly code: FailureCode } {
    if (command.kind === "expire") {
      if (command.leaderTerm === term) {
        for (const id of command.leaseIds) if (this.leases.has(id)) this.endLease(id, "lease-expired");
      }
      return { ok: true, result: undefined, replayed: false };
    }
    if (command.kind === "retain") {
      this.compactRevision = Math.max(this.compactRevision, Math.min(command.compactRevision, this.revision));
      return { ok: true, result: undefined, replayed: false };
    }
    if (command.kind !== "client") return { ok: true, result: undefined, replayed: false };
    const { identity, operation } = command;
    if (identity.kind !== "client") return this.run(operation);
    if (identity.acknowledgedBelow > identity.sequence) return { ok: false, code: "invalid-argument" };
    const client = this.clients.get(identity.clientId);
    if (client === undefined || identity.sequence < client.floor)
      return { ok: false, code: "request-expired" };
    const first = client.outcomes.get(identity.sequence);
    if (first !== undefined) {
      return first.ok && first.result !== undefined
        ? { ok: true, result: first.result, replayed: true }
        : first;
    }
    const outcome = this.run(operation);
    client.outcomes.set(identity.sequence, outcome as CommandOutcome);
    client.floor = Math.max(client.floor, identity.acknowledgedBelow);
    return outcome;
  }

  private run(
    operation: WriteOperation,
  ): CommandOutcome | { readonly ok: false; readonly code: FailureCode } {
    const before = { count: this.changes.length, revision: this.revision };
    try {
      return { ok: true, result: this.execute(operation), replayed: false };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.changes.length = before.count;
      this.revision = before.revision;
      return { ok: false, code: error.failure.code };
    }
  }

  private execute(operation: WriteOperation): WriteResult {
    switch (operation.kind) {
      case "put":
      case "delete": {
        const [result] = this.branch([operation]);
        return result as WriteResult;
      }
      case "txn":
        return this.txn(operation);
      case "lease-grant": {
        let id = operation.leaseId;
        while (id === undefined) {
          const next = String(this.counters.nextLease++) as LeaseId;
          if (!this.leases.has(next)) id = next;
        }
        if (this.leases.has(id)) throw new Refused("lease-exists");
        const ttlMs = Math.max(operation.ttlMs, this.settings.limits.leaseTtlMsMin);
        this.leases.set(id, ttlMs);
        return { kind: "lease-grant", leaseId: id, ttlMs, revision: this.revision as Revision };
      }
      case "lease-revoke": {
        if (!this.leases.has(operation.leaseId)) throw new Refused("lease-not-found");
        const deleted = this.endLease(operation.leaseId, "lease-revoked");
        return { kind: "lease-revoke", revision: this.revision as Revision, deleted };
      }
      case "compact":
        if (operation.revision > this.revision) throw new Refused("future-revision");
        if (operation.revision <= this.compactRevision) throw new Refused("compacted");
        this.compactRevision = operation.revision;
        return { kind: "compact", revision: this.revision as Revision };
      case "register-client": {
        const clientId = this.counters.nextClient++ as ClientId;
        this.clients.set(clientId, { floor: 0, outcomes: new Map() });
        return { kind: "register-client", clientId, revision: this.revision as Revision };
      }
    }
  }

  private endLease(id: LeaseId, cause: Cause): number {
    this.leases.delete(id);
    const keys = this.keysOf(id);
    if (keys.length > 0) this.revision += 1;
    for (const key of keys) this.changes.push({ revision: this.revision, key, kv: undefined, cause });
    return keys.length;
  }

  keysOf(id: LeaseId): string[] {
    return [...this.stateAt(Infinity)].filter(([, kv]) => kv.leaseId === id).map(([key]) => key);
  }

  private txn(txn: TxnCommand): WriteResult {
    const branches = [txn.success, txn.failure];
    if (branches.some((branch) => this.writesTwice(branch))) throw new Refused("duplicate-key");
    const failures: CompareFailure[] = [];
    const state = this.stateAt(Infinity);
    for (const [index, compare] of txn.compares.entries()) {
      const actual = state.get(latin1(compare.key));
      if (holds(compare, actual)) continue;
      if (actual === undefined) failures.push({ index });
      else failures.push({ index, actual: { ...actual, value: actual.value.slice(0, 1024) } });
    }
    const succeeded = failures.length === 0;
    const responses = this.branch(succeeded ? txn.success : txn.failure);
    return { kind: "txn", succeeded, revision: this.revision as Revision, responses, failures };
  }

  private writesTwice(branch: readonly TxnOperation[]): boolean {
    const puts = branch.flatMap((o) => (o.kind === "put" ? [storedKey(o, this.revision + 1)] : []));
    if (new Set(puts).size < puts.length) return true;
    return branch.some((o) => o.kind === "delete" && puts.some((key) => inRange(key, o.range)));
  }

  /** Checks all first, then does all at one revision. */
  private branch(operations: readonly TxnOperation[]): TxnOperationResult[] {
    const base = this.revision;
    const state = this.stateAt(Infinity);
    const attaching = new Map<LeaseId, number>();
    let deletable = this.settings.limits.keysPerDeleteMax;
    for (const o of operations) {
      if (o.kind === "put" && o.leaseId !== undefined) {
        if (!this.leases.has(o.leaseId)) throw new Refused("lease-not-found");
        if (state.get(storedKey(o, base + 1))?.leaseId !== o.leaseId) {
          const count = (attaching.get(o.leaseId) ?? this.keysOf(o.leaseId).length) + 1;
          if (count > this.settings.limits.keysPerLeaseMax) throw new Refused("too-many-keys");
          attaching.set(o.leaseId, count);
        }
      } else if (o.kind === "delete") {
        const matching = [...state.keys()].filter((key) => inRange(key, o.range)).length;
        if (matching > deletable) throw new Refused("too-many-keys");
        deletable -= matching;
      } else if (o.kind === "range" && o.revision !== undefined && o.revision > 0) {
        if (o.revision > base) throw new Refused("future-revision");
        if (o.revision < this.compactRevision) throw new Refused("compacted");
      }
    }
    return operations.map((o) => this.perform(o, base));
  }

  private perform(operation: TxnOperation, base: number): TxnOperationResult {
    const state = this.stateAt(Infinity);
    const revision = (base + 1) as Revision;
    if (operation.kind === "put") {
      const key = storedKey(operation, base + 1);
      const old = state.get(key);
      const kv: KeyValue = {
        key: toBytes(key),
        value: operation.value,
        createRevision: old?.createRevision ?? revision,
        modRevision: revision,
        version: (old?.version ?? 0) + 1,
        leaseId: operation.leaseId ?? NO_LEASE,
      };
      this.revision = revision;
      this.changes.push({ revision, key, kv, cause: "client" });
      const { createRevision, version } = kv;
      const result = { kind: "put", revision, key: kv.key, createRevision, version } as const;
      return operation.returnPrevious === true && old !== undefined ? { ...result, previous: old } : result;
    }
    if (operation.kind === "range") return this.range(operation);
    const gone = [...state].filter(([key]) => inRange(key, operation.range));
    if (gone.length > 0) this.revision = revision;
    for (const [key] of gone) this.changes.push({ revision, key, kv: undefined, cause: "client" });
    const previous = operation.returnPrevious === true ? gone.map(([, kv]) => kv) : [];
    return { kind: "delete", revision: this.revision as Revision, deleted: gone.length, previous };
  }

  range(operation: RangeOperation): TxnOperationResult {
    const revision = operation.revision ?? 0;
    const state = this.stateAt(revision === 0 ? Infinity : revision);
    let all = [...state].filter(([key]) => inRange(key, operation.range)).map(([, kv]) => kv);
    const count = all.length;
    if (operation.reverse === true) all = all.reverse();
    const limit = operation.limit ?? 0;
    let kvs = operation.countOnly === true ? [] : limit === 0 ? all : all.slice(0, limit);
    if (operation.keysOnly === true) kvs = kvs.map((kv) => ({ ...kv, value: new Uint8Array(0) }));
    const more = operation.countOnly !== true && kvs.length < count;
    return { kind: "range", revision: this.revision as Revision, kvs, count, more };
  }
}

function storedKey(put: Extract<TxnOperation, { kind: "put" }>, revision: number): string {
  return latin1(put.key) + (put.sequential === true ? String(revision).padStart(16, "0") : "");
}

function inRange(key: string, range: KeyRange): boolean {
  const from = latin1(range.key);
  if (range.rangeEnd === undefined) return key === from;
  return key >= from && (range.rangeEnd.length === 0 || key < latin1(range.rangeEnd));
}

function holds(compare: Compare, actual: KeyValue | undefined): boolean {
  const { target, operator } = compare;
  let a: number | string | bigint;
  let b: number | string | bigint;
  if (target === "value") {
    if (actual === undefined) return false;
    a = latin1(actual.value);
    b = latin1(compare.operand as Uint8Array);
  } else if (target === "lease") {
    a = BigInt(actual?.leaseId ?? 0);
    b = BigInt(compare.operand as LeaseId);
  } else {
    const field = {
      version: "version",
      "create-revision": "createRevision",
      "mod-revision": "modRevision",
    } as const;
    a = actual?.[field[target]] ?? 0;
    b = compare.operand as number;
  }
  if (operator === "=") return a === b;
  if (operator === "!=") return a !== b;
  return operator === "<" ? a < b : a > b;
}
