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
  TxnResult,
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
        const { responses } = this.txn({ kind: "txn", compares: [], success: [operation], failure: [] });
        return responses[0] as WriteResult;
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

  private txn(txn: TxnCommand): TxnResult {
    this.checkTxn(txn, this.settings.limits.txnOperationsMax);
    const failures: CompareFailure[] = [];
    const state = this.stateAt(Infinity);
    for (const [index, compare] of txn.compares.entries()) {
      const compared = comparedWith(compare, state);
      const failing = compared.find((kv) => !holds(compare, kv));
      if (compared.every((kv) => holds(compare, kv))) continue;
      if (failing === undefined) failures.push({ index });
      else failures.push({ index, actual: { ...failing, value: failing.value.slice(0, 1024) } });
    }
    const decided = decide(txn, state);
    this.check(decided, { base: this.revision, state, attaching: new Map(), deleted: { count: 0 } });
    const responses = this.carryOut(decided, { base: this.revision, state });
    return {
      kind: "txn",
      succeeded: decided.succeeded,
      revision: this.revision as Revision,
      responses,
      failures,
    };
  }

  /** Both branches, and those of transactions inside. */
  private checkTxn(txn: TxnCommand, budget: number): void {
    const most = Math.max(txn.compares.length, txn.success.length, txn.failure.length);
    if (most > budget) throw new Refused("too-many-operations");
    for (const branch of [txn.success, txn.failure]) {
      for (const o of branch) if (o.kind === "txn") this.checkTxn(o, budget - most);
      if (this.writesTwice(branch)) throw new Refused("duplicate-key");
    }
  }

  /** Tries every way that the branches of transactions inside could be taken. */
  private writesTwice(branch: readonly TxnOperation[]): boolean {
    return waysThrough(branch).some((way) => {
      const puts = way.flatMap((o) => (o.kind === "put" ? [storedKey(o, this.revision + 1)] : []));
      if (new Set(puts).size < puts.length) return true;
      return way.some((o) => o.kind === "delete" && puts.some((key) => inRange(key, o.range)));
    });
  }

  /** Whatever could be refused, before anything is done. */
  private check(decided: Decided, checking: Checking): void {
    const { base, state, attaching, deleted } = checking;
    const { limits } = this.settings;
    for (const [i, o] of decided.branch.entries()) {
      if (o.kind === "txn") this.check(decided.inside[i] as Decided, checking);
      if (o.kind === "put") {
        const old = state.get(storedKey(o, base + 1));
        if (o.keep !== undefined && old === undefined) throw new Refused("key-not-found");
        if (o.leaseId === undefined) continue;
        if (!this.leases.has(o.leaseId)) throw new Refused("lease-not-found");
        if (old?.leaseId === o.leaseId) continue;
        const count = (attaching.get(o.leaseId) ?? this.keysOf(o.leaseId).length) + 1;
        if (count > limits.keysPerLeaseMax) throw new Refused("too-many-keys");
        attaching.set(o.leaseId, count);
      } else if (o.kind === "delete") {
        deleted.count += [...state.keys()].filter((key) => inRange(key, o.range)).length;
        if (deleted.count > limits.keysPerDeleteMax) throw new Refused("too-many-keys");
      } else if (o.kind === "range" && o.revision !== undefined && o.revision > 0) {
        if (o.revision > base) throw new Refused("future-revision");
        if (o.revision < this.compactRevision) throw new Refused("compacted");
      }
    }
  }

  /** `state`: before the outermost transaction; what is kept of a key is of then. */
  private carryOut(
    decided: Decided,
    at: { readonly base: number; readonly state: ReadonlyMap<string, KeyValue> },
  ): TxnOperationResult[] {
    return decided.branch.map((o, i) => {
      if (o.kind !== "txn") return this.perform(o, at);
      const { succeeded } = decided.inside[i] as Decided;
      const responses = this.carryOut(decided.inside[i] as Decided, at);
      return { kind: "txn", succeeded, revision: this.revision as Revision, responses, failures: [] };
    });
  }

  private perform(
    operation: Exclude<TxnOperation, TxnCommand>,
    { base, state: before }: { readonly base: number; readonly state: ReadonlyMap<string, KeyValue> },
  ): TxnOperationResult {
    const state = this.stateAt(Infinity);
    const revision = (base + 1) as Revision;
    if (operation.kind === "put") {
      const key = storedKey(operation, base + 1);
      const old = state.get(key);
      const { keep } = operation;
      const kept = before.get(key);
      const kv: KeyValue = {
        key: toBytes(key),
        value: (keep === "value" || keep === "both" ? kept?.value : undefined) ?? operation.value,
        createRevision: old?.createRevision ?? revision,
        modRevision: revision,
        version: (old?.version ?? 0) + 1,
        leaseId: (keep === "lease" || keep === "both" ? kept?.leaseId : operation.leaseId) ?? NO_LEASE,
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
    const { sort, filter = {} } = operation;
    if (operation.countOnly !== true) {
      all = all.filter(
        (kv) =>
          kv.modRevision >= (filter.minModRevision ?? 0) &&
          kv.modRevision <= (filter.maxModRevision ?? Infinity) &&
          kv.createRevision >= (filter.minCreateRevision ?? 0) &&
          kv.createRevision <= (filter.maxCreateRevision ?? Infinity),
      );
    }
    const passing = all.length;
    if (operation.reverse === true) all = all.reverse();
    if (sort !== undefined) {
      const by = {
        version: (kv: KeyValue) => kv.version,
        "create-revision": (kv: KeyValue) => kv.createRevision,
        "mod-revision": (kv: KeyValue) => kv.modRevision,
        value: (kv: KeyValue) => latin1(kv.value),
      }[sort.target];
      const sign = sort.descending === true ? -1 : 1;
      all = all.toSorted((a, b) => (by(a) === by(b) ? 0 : by(a) < by(b) ? -sign : sign));
    }
    const limit = operation.limit ?? 0;
    let kvs = operation.countOnly === true ? [] : limit === 0 ? all : all.slice(0, limit);
    if (operation.keysOnly === true) kvs = kvs.map((kv) => ({ ...kv, value: new Uint8Array(0) }));
    const more = operation.countOnly !== true && kvs.length < passing;
    return { kind: "range", revision: this.revision as Revision, kvs, count, more };
  }
}

/** Which branches are taken, all decided on one state. */
interface Decided {
  readonly succeeded: boolean;
  readonly branch: readonly TxnOperation[];
  /** Of each operation that is a transaction. */
  readonly inside: readonly (Decided | undefined)[];
}

interface Checking {
  readonly base: number;
  readonly state: ReadonlyMap<string, KeyValue>;
  readonly attaching: Map<LeaseId, number>;
  readonly deleted: { count: number };
}

function decide(txn: TxnCommand, state: ReadonlyMap<string, KeyValue>): Decided {
  const succeeded = txn.compares.every((compare) =>
    comparedWith(compare, state).every((kv) => holds(compare, kv)),
  );
  const branch = succeeded ? txn.success : txn.failure;
  return { succeeded, branch, inside: branch.map((o) => (o.kind === "txn" ? decide(o, state) : undefined)) };
}

/** A range without keys compares like one that is missing. */
function comparedWith(
  { key, rangeEnd }: Compare,
  state: ReadonlyMap<string, KeyValue>,
): readonly (KeyValue | undefined)[] {
  if (rangeEnd === undefined) return [state.get(latin1(key))];
  const found = [...state].filter(([at]) => inRange(at, { key, rangeEnd })).map(([, kv]) => kv);
  return found.length === 0 ? [undefined] : found;
}

/** Each list of plain operations that a branch may come to. */
function waysThrough(branch: readonly TxnOperation[]): Exclude<TxnOperation, TxnCommand>[][] {
  return branch.reduce<Exclude<TxnOperation, TxnCommand>[][]>(
    (ways, operation) => {
      const nexts =
        operation.kind === "txn"
          ? [...waysThrough(operation.success), ...waysThrough(operation.failure)]
          : [[operation]];
      return ways.flatMap((way) => nexts.map((next) => [...way, ...next]));
    },
    [[]],
  );
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
