/**
 * What a transaction will do, decided on the state before it: which branches are taken, what each put finds, what each
 * delete removes. Whatever can be refused is refused here, so that nothing fails half-way (B11).
 */
import type {
  CompareFailure,
  DeleteOperation,
  Failure,
  LeaseId,
  PutOperation,
  RangeOperation,
  TxnCommand,
  TxnOperation,
} from "@lockstep/gateway/coordinator";
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import { assertNever } from "../invariant.ts";
import { sequentialKey } from "./bytes.ts";
import { failedCompares } from "./compares.ts";
import type { ApplyContext } from "./context.ts";
import { leaseNotFound, refusal } from "./failures.ts";
import { KeyScan, spanOf } from "./live-scan.ts";
import { orderedRefusal } from "./ordered-range.ts";
import { rangeRefusal } from "./range.ts";
import type { KeyRecord } from "./records.ts";
import type { NamespaceState } from "./state.ts";
import { TXN_OPERATIONS_TOTAL_MAX } from "./validate.ts";

/** A put with what it writes, and where. */
export interface PutTarget {
  readonly record: KeyRecord;
  readonly key: Uint8Array;
  readonly value: Uint8Array;
  readonly leaseId: LeaseId;
}

/** One operation of a branch that is taken. */
export type Step =
  | { readonly kind: "put"; readonly operation: PutOperation; readonly target: PutTarget }
  | { readonly kind: "delete"; readonly operation: DeleteOperation; readonly records: readonly KeyRecord[] }
  | { readonly kind: "range"; readonly operation: RangeOperation }
  | { readonly kind: "txn"; readonly plan: Plan };

export interface Plan {
  readonly succeeded: boolean;
  /** Those of the compares that do not hold. */
  readonly failures: readonly CompareFailure[];
  readonly steps: readonly Step[];
}

/** Plans one command. The bounds count over everything in it. */
export class Planner {
  private readonly context: ApplyContext;
  private readonly namespace: NamespaceState;
  /** Keys that each lease gets. Room that the same transaction's deletes would make does not count. */
  private attaching: Map<LeaseId, number> | undefined;
  private deletable: number;

  constructor(context: ApplyContext, namespace: NamespaceState) {
    this.context = context;
    this.namespace = namespace;
    this.deletable = context.state.settings.limits.keysPerDeleteMax;
  }

  txn(txn: TxnCommand): Plan | Failure {
    const failures = failedCompares(this.context, this.namespace, txn.compares);
    if ("code" in failures) return failures;
    const succeeded = failures.length === 0;
    const branch = succeeded ? txn.success : txn.failure;
    const steps = new Array<Step>(branch.length);
    for (let at = 0; at < branch.length; at++) {
      const step = this.step(branch[at] as TxnOperation);
      if ("code" in step) return step;
      steps[at] = step;
    }
    return { succeeded, failures, steps };
  }

  /** `known`: the record of the operation's key, when it has been looked up already. */
  put(operation: PutOperation, known?: KeyRecord): PutTarget | Failure {
    const { context, namespace } = this;
    const revision = context.state.revision + 1;
    const key = operation.sequential === true ? sequentialKey(operation.key, revision) : operation.key;
    const record = known ?? context.keys.state(namespace.id, key, context.reader);
    const { keep } = operation;
    if (keep !== undefined && record.status !== "live") {
      return refusal("key-not-found", "the key whose value or lease is to be kept does not exist");
    }
    const keepsValue = keep === "value" || keep === "both";
    const value = keepsValue ? context.keys.answerValue(record, context.reader) : operation.value;
    if (keep === "lease" || keep === "both") return { record, key, value, leaseId: record.leaseId };
    const leaseId = operation.leaseId ?? NO_LEASE;
    const refused = leaseId === NO_LEASE ? undefined : this.attach(record, leaseId);
    return refused ?? { record, key, value, leaseId };
  }

  delete(operation: DeleteOperation): readonly KeyRecord[] | Failure {
    const records = matching(this.context, this.namespace, operation, this.deletable);
    if (records === undefined) {
      const { keysPerDeleteMax } = this.context.state.settings.limits;
      const message = `the range holds more than ${keysPerDeleteMax} keys; delete it in parts`;
      return refusal("too-many-keys", message);
    }
    this.deletable -= records.length;
    return records;
  }

  private step(operation: TxnOperation): Step | Failure {
    const { context, namespace } = this;
    switch (operation.kind) {
      case "put": {
        const target = this.put(operation);
        return "code" in target ? target : { kind: "put", operation, target };
      }
      case "delete": {
        const records = this.delete(operation);
        return "code" in records ? records : { kind: "delete", operation, records };
      }
      case "range":
        return (
          rangeRefusal(context.state, namespace, operation) ??
          orderedRefusal(context, namespace, operation) ?? { kind: "range", operation }
        );
      case "txn": {
        const plan = this.txn(operation);
        return "code" in plan ? plan : { kind: "txn", plan };
      }
      default:
        return assertNever(operation);
    }
  }

  private attach(record: KeyRecord, leaseId: LeaseId): Failure | undefined {
    const { context, namespace } = this;
    const lease = context.leases.get(namespace.id, leaseId, context.reader);
    if (!lease.exists) return leaseNotFound(leaseId);
    if (record.leaseId === leaseId) return undefined;
    const { keysPerLeaseMax } = context.state.settings.limits;
    // Far from the bound nothing needs to be counted.
    if (lease.keys + TXN_OPERATIONS_TOTAL_MAX <= keysPerLeaseMax) return undefined;
    this.attaching ??= new Map<LeaseId, number>();
    const more = (this.attaching.get(leaseId) ?? 0) + 1;
    if (lease.keys + more > keysPerLeaseMax) {
      return refusal("too-many-keys", `lease ${leaseId} holds its ${keysPerLeaseMax} keys already`);
    }
    this.attaching.set(leaseId, more);
    return undefined;
  }
}

const NO_RECORDS: readonly KeyRecord[] = [];

/** The live keys of the range in order; undefined when there are more than `max`. */
function matching(
  context: ApplyContext,
  namespace: NamespaceState,
  operation: DeleteOperation,
  max: number,
): readonly KeyRecord[] | undefined {
  const { keys, reader } = context;
  const { range } = operation;
  if (range.rangeEnd === undefined) {
    const record = keys.state(namespace.id, range.key, reader);
    if (record.status !== "live") return NO_RECORDS;
    return max > 0 ? [record] : undefined;
  }
  const span = spanOf(range);
  if (span === undefined) return NO_RECORDS;
  const scan = new KeyScan(keys, { namespaceId: namespace.id, span, reverse: false, deleted: false }, reader);
  const found: Uint8Array[] = [];
  for (let met = scan.next(); met !== undefined; met = scan.next()) {
    if (found.length >= max) return undefined;
    found.push(met.key);
  }
  const records = found.map((key) => keys.cache.obtain(namespace.id, key));
  const unknown = records.filter((record) => record.status === "unknown");
  if (unknown.length > 0) keys.load(unknown, reader);
  return records;
}
