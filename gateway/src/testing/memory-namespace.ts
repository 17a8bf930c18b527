import type {
  Cause,
  Compare,
  CompareFailure,
  CompareOperator,
  DeleteOperation,
  DeleteResult,
  Failure,
  KeyRange,
  KeyValue,
  LeaseId,
  PutOperation,
  PutResult,
  RangeOperation,
  RangeResult,
  Revision,
  TxnCommand,
  TxnOperation,
  TxnOperationResult,
  TxnResult,
  WatchEvent,
} from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import { refusal } from "../validation.ts";

/** One state of one key; `version` 0 marks a deletion. */
type Version = KeyValue;

export interface MemoryLease {
  readonly leaseId: LeaseId;
  readonly ttlMs: number;
  readonly owner: string;
  deadline: number;
  readonly keys: Set<string>;
}

/** Bytes as text that sorts the same way. */
export function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}

function bytesOf(text: string): Buffer {
  return Buffer.from(text, "latin1");
}

const EMPTY = new Uint8Array(0);
const ACTUAL_VALUE_BYTES_MAX = 1024;

function holds(operator: CompareOperator, order: number): boolean {
  switch (operator) {
    case "=":
      return order === 0;
    case "!=":
      return order !== 0;
    case "<":
      return order < 0;
    case ">":
      return order > 0;
  }
}

function order(left: number | bigint, right: number | bigint): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

/**
 * Keys, history and leases of one namespace, kept the simplest way that can be right: every version of every key in
 * a list. Writes land at the revision given by the caller.
 */
export class MemoryNamespace {
  readonly leases: Map<LeaseId, MemoryLease> = new Map<LeaseId, MemoryLease>();
  readonly log: { readonly revision: Revision; readonly events: WatchEvent[] }[] = [];
  compactRevision = 0;
  private readonly keys = new Map<string, Version[]>();
  private events: WatchEvent[] = [];

  /** What the writes since the last call did; kept in the log under `revision`. */
  takeEvents(revision: Revision): readonly WatchEvent[] {
    const { events } = this;
    this.events = [];
    if (events.length > 0) this.log.push({ revision, events });
    return events;
  }

  get(key: string, at: number = Number.MAX_SAFE_INTEGER): KeyValue | undefined {
    const found = this.keys.get(key)?.findLast((version) => version.modRevision <= at);
    return found === undefined || found.version === 0 ? undefined : found;
  }

  matching(range: KeyRange): string[] {
    const start = textOf(range.key);
    if (range.rangeEnd === undefined) return [start];
    const end = textOf(range.rangeEnd);
    return [...this.keys.keys()].filter((key) => key >= start && (end === "" || key < end)).sort();
  }

  put(operation: PutOperation, revision: Revision): PutResult {
    const suffix = operation.sequential === true ? String(revision).padStart(16, "0") : "";
    const key = textOf(operation.key) + suffix;
    const before = this.get(key);
    const leaseId = operation.leaseId ?? NO_LEASE;
    const kv: KeyValue = {
      key: bytesOf(key),
      value: Buffer.from(operation.value),
      createRevision: before?.createRevision ?? revision,
      modRevision: revision,
      version: (before?.version ?? 0) + 1,
      leaseId,
    };
    if (before !== undefined) this.leases.get(before.leaseId)?.keys.delete(key);
    this.leases.get(leaseId)?.keys.add(key);
    this.record(key, kv);
    this.events.push(
      before === undefined
        ? { kind: "put", kv, cause: "client" }
        : { kind: "put", kv, previous: before, cause: "client" },
    );
    const result = {
      kind: "put" as const,
      revision,
      key: kv.key,
      createRevision: kv.createRevision,
      version: kv.version,
    };
    return operation.returnPrevious === true && before !== undefined
      ? { ...result, previous: before }
      : result;
  }

  delete(operation: DeleteOperation, revision: Revision, current: Revision): DeleteResult {
    const previous: KeyValue[] = [];
    for (const key of this.matching(operation.range)) {
      const before = this.remove(key, revision, "client");
      if (before !== undefined) previous.push(before);
    }
    return {
      kind: "delete",
      revision: previous.length > 0 ? revision : current,
      deleted: previous.length,
      previous: operation.returnPrevious === true ? previous : [],
    };
  }

  remove(key: string, revision: Revision, cause: Cause): KeyValue | undefined {
    const before = this.get(key);
    if (before === undefined) return undefined;
    this.leases.get(before.leaseId)?.keys.delete(key);
    const kv: KeyValue = {
      key: before.key,
      value: EMPTY,
      createRevision: 0 as Revision,
      modRevision: revision,
      version: 0,
      leaseId: NO_LEASE,
    };
    this.record(key, kv);
    this.events.push({ kind: "delete", kv, previous: before, cause });
    return before;
  }

  range(operation: RangeOperation, current: Revision): RangeResult {
    const all: KeyValue[] = [];
    for (const key of this.matching(operation.range)) {
      const kv = this.get(key, operation.revision);
      if (kv !== undefined) all.push(operation.keysOnly === true ? { ...kv, value: EMPTY } : kv);
    }
    if (operation.reverse === true) all.reverse();
    const limit = operation.limit === undefined || operation.limit === 0 ? all.length : operation.limit;
    const kvs = operation.countOnly === true ? [] : all.slice(0, limit);
    return {
      kind: "range",
      revision: current,
      kvs,
      count: all.length,
      more: operation.countOnly !== true && all.length > limit,
    };
  }

  /** A transaction must not stop half-way: what could fail is checked first. */
  missingLease(operations: readonly TxnOperation[]): Failure | undefined {
    for (const operation of operations) {
      if (operation.kind !== "put" || operation.leaseId === undefined) continue;
      if (!this.leases.has(operation.leaseId))
        return refusal("lease-not-found", `no lease ${operation.leaseId}`);
    }
    return undefined;
  }

  txn(command: TxnCommand, revision: Revision, current: Revision): TxnResult | Failure {
    const failures: CompareFailure[] = [];
    command.compares.forEach((compare, index) => {
      if (this.compareHolds(compare)) return;
      const actual = this.get(textOf(compare.key));
      failures.push(
        actual === undefined
          ? { index }
          : { index, actual: { ...actual, value: actual.value.subarray(0, ACTUAL_VALUE_BYTES_MAX) } },
      );
    });
    const succeeded = failures.length === 0;
    const branch = succeeded ? command.success : command.failure;
    const failure = this.missingLease(branch);
    if (failure !== undefined) return failure;
    const responses: TxnOperationResult[] = branch.map((operation) => {
      switch (operation.kind) {
        case "put":
          return this.put(operation, revision);
        case "delete":
          return this.delete(operation, revision, current);
        case "range":
          return this.range(operation, this.events.length > 0 ? revision : current);
      }
    });
    return {
      kind: "txn",
      succeeded,
      revision: this.events.length > 0 ? revision : current,
      responses,
      failures,
    };
  }

  private compareHolds(compare: Compare): boolean {
    const kv = this.get(textOf(compare.key));
    const { target, operator, operand } = compare;
    if (target === "value") {
      return kv !== undefined && holds(operator, Buffer.compare(kv.value, operand as Uint8Array));
    }
    if (target === "lease") {
      return holds(operator, order(BigInt(kv?.leaseId ?? "0"), BigInt(operand as LeaseId)));
    }
    const actual =
      target === "version"
        ? kv?.version
        : target === "create-revision"
          ? kv?.createRevision
          : kv?.modRevision;
    return holds(operator, order(actual ?? 0, operand as number));
  }

  private record(key: string, version: Version): void {
    const versions = this.keys.get(key);
    if (versions === undefined) this.keys.set(key, [version]);
    else versions.push(version);
  }
}
