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
  RangeFilter,
  RangeOperation,
  RangeResult,
  Revision,
  SortTarget,
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

function passes(kv: KeyValue, filter: RangeFilter = {}): boolean {
  const { minModRevision = 0, maxModRevision = Infinity } = filter;
  const { minCreateRevision = 0, maxCreateRevision = Infinity } = filter;
  return (
    kv.modRevision >= minModRevision &&
    kv.modRevision <= maxModRevision &&
    kv.createRevision >= minCreateRevision &&
    kv.createRevision <= maxCreateRevision
  );
}

function sortOrder(a: KeyValue, b: KeyValue, target: SortTarget): number {
  switch (target) {
    case "value":
      return Buffer.compare(a.value, b.value);
    case "version":
      return a.version - b.version;
    case "create-revision":
      return a.createRevision - b.createRevision;
    case "mod-revision":
      return a.modRevision - b.modRevision;
  }
}

function stateHolds(kv: KeyValue | undefined, { target, operator, operand }: Compare): boolean {
  if (target === "value") {
    return kv !== undefined && holds(operator, Buffer.compare(kv.value, operand as Uint8Array));
  }
  if (target === "lease") {
    return holds(operator, order(BigInt(kv?.leaseId ?? "0"), BigInt(operand as LeaseId)));
  }
  const actual =
    target === "version" ? kv?.version : target === "create-revision" ? kv?.createRevision : kv?.modRevision;
  return holds(operator, order(actual ?? 0, operand as number));
}

/** Which branch of a transaction is taken, and of those inside it. */
interface Decided {
  readonly succeeded: boolean;
  readonly branch: readonly TxnOperation[];
  readonly inside: readonly (Decided | undefined)[];
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
    const { keep } = operation;
    const leaseId = (keep === "lease" || keep === "both" ? before?.leaseId : operation.leaseId) ?? NO_LEASE;
    const value = (keep === "value" || keep === "both" ? before?.value : undefined) ?? operation.value;
    const kv: KeyValue = {
      key: bytesOf(key),
      value: Buffer.from(value),
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
      if (kv !== undefined) all.push(kv);
    }
    if (operation.reverse === true) all.reverse();
    const { sort, filter } = operation;
    const chosen = all.filter((kv) => passes(kv, filter));
    if (sort !== undefined) {
      const sign = sort.descending === true ? -1 : 1;
      chosen.sort((a, b) => sign * sortOrder(a, b, sort.target));
    }
    const limit = operation.limit === undefined || operation.limit === 0 ? chosen.length : operation.limit;
    const kvs = operation.countOnly === true ? [] : chosen.slice(0, limit);
    return {
      kind: "range",
      revision: current,
      kvs: operation.keysOnly === true ? kvs.map((kv) => ({ ...kv, value: EMPTY })) : kvs,
      count: all.length,
      more: operation.countOnly !== true && chosen.length > limit,
    };
  }

  /** A transaction must not stop half-way: what could fail is checked first. */
  refusalOf(operations: readonly TxnOperation[]): Failure | undefined {
    for (const operation of operations) {
      if (operation.kind === "txn") {
        const refused = this.refusalOf(this.branchOf(operation));
        if (refused !== undefined) return refused;
      }
      if (operation.kind !== "put") continue;
      const { leaseId, keep, key } = operation;
      if (leaseId !== undefined && !this.leases.has(leaseId)) {
        return refusal("lease-not-found", `no lease ${leaseId}`);
      }
      if (keep !== undefined && this.get(textOf(key)) === undefined) {
        return refusal("key-not-found", "there is no key to keep anything of");
      }
    }
    return undefined;
  }

  private branchOf({ compares, success, failure }: TxnCommand): readonly TxnOperation[] {
    return compares.every((compare) => this.compareHolds(compare)) ? success : failure;
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
    const decided = this.decide(command);
    const failure = this.refusalOf(decided.branch);
    if (failure !== undefined) return failure;
    return { ...this.carryOut(decided, revision, current), failures };
  }

  /** All conditions look at the state before the transaction, so they are judged before anything is done. */
  private decide(command: TxnCommand): Decided {
    const succeeded = command.compares.every((compare) => this.compareHolds(compare));
    const branch = succeeded ? command.success : command.failure;
    const inside = branch.map((operation) => (operation.kind === "txn" ? this.decide(operation) : undefined));
    return { succeeded, branch, inside };
  }

  private carryOut(decided: Decided, revision: Revision, current: Revision): TxnResult {
    const reflected = (): Revision => (this.events.length > 0 ? revision : current);
    const responses = decided.branch.map((operation, i): TxnOperationResult => {
      switch (operation.kind) {
        case "put":
          return this.put(operation, revision);
        case "delete":
          return this.delete(operation, revision, reflected());
        case "range":
          return this.range(operation, reflected());
        case "txn":
          return this.carryOut(decided.inside[i] ?? this.decide(operation), revision, current);
      }
    });
    return { kind: "txn", succeeded: decided.succeeded, revision: reflected(), responses, failures: [] };
  }

  private compareHolds(compare: Compare): boolean {
    const { key, rangeEnd } = compare;
    if (rangeEnd === undefined) return stateHolds(this.get(textOf(key)), compare);
    const states = this.matching({ key, rangeEnd })
      .map((found) => this.get(found))
      .filter((kv) => kv !== undefined);
    return states.length === 0
      ? stateHolds(undefined, compare)
      : states.every((kv) => stateHolds(kv, compare));
  }

  private record(key: string, version: Version): void {
    const versions = this.keys.get(key);
    if (versions === undefined) this.keys.set(key, [version]);
    else versions.push(version);
  }
}
