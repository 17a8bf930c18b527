import * as coordination from "@lockstep/proto/coordination";

interface StoreListener {
  events(events: readonly coordination.WatchEvent[], revision: number): void;
  leaseEnded(ended: coordination.LeaseEnded): void;
}

interface Lease {
  readonly ttlMs: number;
  readonly owner: string;
}

type WireResult = NonNullable<coordination.Result["result"]>;

class Refusal extends Error {
  readonly code: string;

  constructor(code: string) {
    super(`refused by the fake: ${code}`);
    this.code = code;
  }
}

/** A cell's state in the plainest form: what the client's tests need of it, without consensus or time. */
export class FakeStore {
  revision = 1;
  compactRevision = 0;
  readonly kvs: Map<string, coordination.KeyValue> = new Map<string, coordination.KeyValue>();
  readonly leases: Map<string, Lease> = new Map<string, Lease>();
  readonly history: { readonly revision: number; readonly events: coordination.WatchEvent[] }[] = [];
  /** Executions of mutations; a replayed one does not count. */
  executions = 0;
  readonly clients: Map<number, Map<number, coordination.Response>> = new Map<
    number,
    Map<number, coordination.Response>
  >();
  readonly #listeners = new Set<StoreListener>();
  #nextLease = 7_000;
  #nextClient = 100;
  #events: coordination.WatchEvent[] = [];

  subscribe(listener: StoreListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Executes a request, or answers a retried one with its first outcome. */
  request(request: coordination.Request, operation: coordination.Operation): coordination.Response {
    const { id, clientId, sequence } = request;
    if (clientId === 0) return this.#execute(id, operation);
    const row = this.clients.get(clientId);
    if (row === undefined) return failed(id, "request-expired", coordination.Outcome.UNKNOWN);
    for (const known of row.keys()) if (known < request.acknowledgedBelow) row.delete(known);
    const first = row.get(sequence);
    if (first !== undefined) return { ...first, id, replayed: true };
    const response = this.#execute(id, operation);
    row.set(sequence, response);
    return response;
  }

  renew(leaseIds: readonly string[]): number[] {
    return leaseIds.map((id) => this.leases.get(id)?.ttlMs ?? 0);
  }

  /** Ends a lease the way an expiry does. */
  expire(leaseId: string): void {
    this.#endLease(leaseId, coordination.Cause.LEASE_EXPIRED);
  }

  covers(range: coordination.KeyRange, key: Buffer): boolean {
    if (range.rangeEnd === undefined) return range.key.equals(key);
    return (
      Buffer.compare(key, range.key) >= 0 &&
      (range.rangeEnd.length === 0 || Buffer.compare(key, range.rangeEnd) < 0)
    );
  }

  #execute(id: number, operation: coordination.Operation): coordination.Response {
    if (operation.operation === undefined) return failed(id, "unsupported", coordination.Outcome.NOT_APPLIED);
    try {
      const result = this.#apply(operation.operation);
      return {
        id,
        result: Buffer.from(coordination.Result.encode({ result }).finish()),
        failure: undefined,
        replayed: false,
      };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return failed(id, error.code, coordination.Outcome.NOT_APPLIED);
    }
  }

  #apply(operation: NonNullable<coordination.Operation["operation"]>): WireResult {
    switch (operation.$case) {
      case "put":
        this.executions += 1;
        return this.#change(() => ({ $case: "put", value: this.#put(operation.value) }));
      case "delete":
        this.executions += 1;
        return this.#change(() => ({ $case: "delete", value: this.#delete(operation.value) }));
      case "txn":
        this.executions += 1;
        return this.#change(() => ({ $case: "txn", value: this.#txn(operation.value) }));
      case "range":
        return { $case: "range", value: this.#range(operation.value) };
      case "leaseGrant": {
        const leaseId = operation.value.leaseId === "0" ? String(this.#nextLease++) : operation.value.leaseId;
        const { ttlMs, owner } = operation.value;
        this.leases.set(leaseId, { ttlMs, owner });
        return { $case: "leaseGrant", value: { leaseId, ttlMs, revision: this.revision } };
      }
      case "leaseRevoke": {
        const { leaseId } = operation.value;
        if (!this.leases.has(leaseId)) throw new Refusal("lease-not-found");
        const deleted = this.#endLease(leaseId, coordination.Cause.LEASE_REVOKED);
        return { $case: "leaseRevoke", value: { revision: this.revision, deleted } };
      }
      case "leaseTimeToLive": {
        const { leaseId } = operation.value;
        const lease = this.leases.get(leaseId);
        const keys = [...this.kvs.values()].filter((kv) => kv.leaseId === leaseId).map((kv) => kv.key);
        return {
          $case: "leaseTimeToLive",
          value: {
            revision: this.revision,
            leaseId,
            remainingMs: lease?.ttlMs ?? -1,
            ttlMs: lease?.ttlMs ?? 0,
            owner: lease?.owner ?? "",
            keys: operation.value.keys ? keys : [],
          },
        };
      }
      case "leaseList": {
        const leases = [...this.leases].map(([leaseId, lease]) => ({ leaseId, ...lease }));
        return { $case: "leaseList", value: { revision: this.revision, leases, more: false } };
      }
      case "leaseRenew":
        return {
          $case: "leaseRenew",
          value: { revision: this.revision, remainingMs: this.renew(operation.value.leaseIds) },
        };
      case "compact":
        this.compactRevision = operation.value.revision - 1;
        return { $case: "compact", value: { revision: this.revision } };
      case "registerClient": {
        const clientId = this.#nextClient++;
        this.clients.set(clientId, new Map());
        return { $case: "registerClient", value: { clientId, revision: this.revision } };
      }
    }
  }

  /** Runs a change at the next revision, which stands only if something changed. */
  #change<T>(change: () => T): T {
    this.revision += 1;
    this.#events = [];
    let result: T;
    try {
      result = change();
    } catch (error) {
      this.revision -= 1;
      throw error;
    }
    if (this.#events.length === 0) this.revision -= 1;
    else this.#publish();
    return result;
  }

  #publish(): void {
    const events = this.#events;
    this.history.push({ revision: this.revision, events });
    for (const listener of this.#listeners) listener.events(events, this.revision);
  }

  #put(put: coordination.PutOperation): coordination.PutResult {
    if (put.leaseId !== "0" && !this.leases.has(put.leaseId)) throw new Refusal("lease-not-found");
    const suffix = put.sequential ? String(this.revision).padStart(16, "0") : "";
    const key = Buffer.concat([put.key, Buffer.from(suffix)]);
    const before = this.kvs.get(key.toString("latin1"));
    const kv: coordination.KeyValue = {
      key,
      value: put.value,
      createRevision: before?.createRevision ?? this.revision,
      modRevision: this.revision,
      version: (before?.version ?? 0) + 1,
      leaseId: put.leaseId,
    };
    this.kvs.set(key.toString("latin1"), kv);
    this.#events.push({
      kind: coordination.WatchEvent_Kind.PUT,
      kv,
      previous: before,
      cause: coordination.Cause.CLIENT,
    });
    return {
      revision: this.revision,
      key,
      createRevision: kv.createRevision,
      version: kv.version,
      previous: put.returnPrevious ? before : undefined,
    };
  }

  #select(range: coordination.KeyRange | undefined): coordination.KeyValue[] {
    if (range === undefined) throw new Refusal("invalid-argument");
    return [...this.kvs.values()]
      .filter((kv) => this.covers(range, kv.key))
      .sort((a, b) => Buffer.compare(a.key, b.key));
  }

  #delete(operation: coordination.DeleteOperation, cause: coordination.Cause = coordination.Cause.CLIENT) {
    const gone = this.#select(operation.range);
    for (const kv of gone) this.#remove(kv, cause);
    return {
      revision: gone.length > 0 ? this.revision : this.revision - 1,
      deleted: gone.length,
      previous: operation.returnPrevious ? gone : [],
    };
  }

  #remove(kv: coordination.KeyValue, cause: coordination.Cause): void {
    this.kvs.delete(kv.key.toString("latin1"));
    this.#events.push({
      kind: coordination.WatchEvent_Kind.DELETE,
      kv: {
        ...kv,
        value: Buffer.alloc(0),
        createRevision: 0,
        version: 0,
        leaseId: "0",
        modRevision: this.revision,
      },
      previous: kv,
      cause,
    });
  }

  #range(operation: coordination.RangeOperation): coordination.RangeResult {
    const all = this.#select(operation.range);
    if (operation.reverse) all.reverse();
    const kvs = operation.limit > 0 ? all.slice(0, operation.limit) : all;
    return {
      revision: this.revision,
      kvs: operation.countOnly
        ? []
        : operation.keysOnly
          ? kvs.map((kv) => ({ ...kv, value: Buffer.alloc(0) }))
          : kvs,
      count: all.length,
      more: kvs.length < all.length,
    };
  }

  #txn(txn: coordination.TxnOperation): coordination.TxnResult {
    const failures = txn.compares.flatMap((compare, index) => {
      const actual = this.kvs.get(compare.key.toString("latin1"));
      return holds(compare, actual) ? [] : [{ index, actual }];
    });
    const succeeded = failures.length === 0;
    const responses = (succeeded ? txn.success : txn.failure).map(({ step }): coordination.TxnStepResult => {
      switch (step?.$case) {
        case "put":
          return { result: { $case: "put", value: this.#put(step.value) } };
        case "delete":
          return { result: { $case: "delete", value: this.#delete(step.value) } };
        case "range":
          return { result: { $case: "range", value: this.#range(step.value) } };
        // The client sends none.
        case "txn":
        case undefined:
          throw new Refusal("invalid-argument");
      }
    });
    const revision = this.#events.length > 0 ? this.revision : this.revision - 1;
    return { succeeded, revision, responses, failures };
  }

  #endLease(leaseId: string, cause: coordination.Cause): number {
    this.leases.delete(leaseId);
    const gone = [...this.kvs.values()].filter((kv) => kv.leaseId === leaseId);
    this.#events = [];
    if (gone.length > 0) {
      this.revision += 1;
      for (const kv of gone) this.#remove(kv, cause);
      this.#publish();
    }
    for (const listener of this.#listeners) listener.leaseEnded({ leaseId, cause, revision: this.revision });
    return gone.length;
  }
}

function failed(id: number, code: string, outcome: coordination.Outcome): coordination.Response {
  return {
    id,
    result: undefined,
    replayed: false,
    failure: { code, outcome, message: `refused by the fake: ${code}`, compactRevision: 0, retryAfterMs: 0 },
  };
}

function holds(compare: coordination.Compare, actual: coordination.KeyValue | undefined): boolean {
  const order = compareTo(compare, actual);
  if (order === undefined) return false;
  switch (compare.operator) {
    case coordination.CompareOperator.EQUAL:
      return order === 0;
    case coordination.CompareOperator.NOT_EQUAL:
      return order !== 0;
    case coordination.CompareOperator.LESS:
      return order < 0;
    case coordination.CompareOperator.GREATER:
      return order > 0;
    case coordination.CompareOperator.UNSPECIFIED:
      throw new Refusal("invalid-argument");
  }
}

function compareTo(
  compare: coordination.Compare,
  actual: coordination.KeyValue | undefined,
): number | undefined {
  switch (compare.target) {
    case coordination.CompareTarget.VERSION:
      return (actual?.version ?? 0) - compare.number;
    case coordination.CompareTarget.CREATE_REVISION:
      return (actual?.createRevision ?? 0) - compare.number;
    case coordination.CompareTarget.MOD_REVISION:
      return (actual?.modRevision ?? 0) - compare.number;
    case coordination.CompareTarget.VALUE:
      return actual === undefined ? undefined : Buffer.compare(actual.value, compare.value);
    case coordination.CompareTarget.LEASE:
      return Number(BigInt(actual?.leaseId ?? "0") - BigInt(compare.leaseId));
    case coordination.CompareTarget.UNSPECIFIED:
      throw new Refusal("invalid-argument");
  }
}
