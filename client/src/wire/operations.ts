import * as coordination from "@lockstep/proto/coordination";
import { toBuffer, toWireRange, type RangeInput, type WireRange } from "../bytes.ts";
import type {
  Compare,
  CompareOperator,
  DeleteOptions,
  LeaseGrantOptions,
  RangeOptions,
  Txn,
  TxnStep,
} from "../types.ts";

type WireOperation = NonNullable<coordination.Operation["operation"]>;

const EMPTY = Buffer.alloc(0);

/** Serializes an operation for {@link Channel.execute}. */
export function encodeOperation(operation: WireOperation): Uint8Array {
  return coordination.Operation.encode({ operation }).finish();
}

function keyRange(range: WireRange): coordination.KeyRange {
  return { key: range.key, rangeEnd: range.rangeEnd };
}

function rangeOf(key: TxnStepRange): coordination.KeyRange {
  return {
    key: toBuffer(key.key),
    rangeEnd: key.rangeEnd === undefined ? undefined : toBuffer(key.rangeEnd),
  };
}

interface TxnStepRange {
  readonly key: string | Uint8Array;
  readonly rangeEnd?: string | Uint8Array;
}

function rangeFields(options: RangeOptions): Omit<coordination.RangeOperation, "range"> {
  return {
    revision: options.revision ?? 0,
    limit: options.limit ?? 0,
    keysOnly: options.keysOnly ?? false,
    countOnly: options.countOnly ?? false,
    reverse: options.reverse ?? false,
    consistency:
      options.consistency === "serializable"
        ? coordination.Consistency.SERIALIZABLE
        : coordination.Consistency.UNSPECIFIED,
    minRevision: options.minRevision ?? 0,
  };
}

export function encodeRange(range: RangeInput, options: RangeOptions): Uint8Array {
  return encodeOperation({
    $case: "range",
    value: { range: keyRange(toWireRange(range)), ...rangeFields(options) },
  });
}

export function encodeDelete(range: RangeInput, options: DeleteOptions): Uint8Array {
  return encodeOperation({
    $case: "delete",
    value: { range: keyRange(toWireRange(range)), returnPrevious: options.returnPrevious ?? false },
  });
}

export function encodeLeaseGrant(options: LeaseGrantOptions): Uint8Array {
  return encodeOperation({
    $case: "leaseGrant",
    value: { leaseId: options.leaseId ?? "0", ttlMs: options.ttlMs, owner: options.owner ?? "" },
  });
}

function wireOperator(operator: CompareOperator): coordination.CompareOperator {
  switch (operator) {
    case "=":
      return coordination.CompareOperator.EQUAL;
    case "!=":
      return coordination.CompareOperator.NOT_EQUAL;
    case "<":
      return coordination.CompareOperator.LESS;
    case ">":
      return coordination.CompareOperator.GREATER;
  }
}

function wireCompare(compare: Compare): coordination.Compare {
  const wire: coordination.Compare = {
    key: toBuffer(compare.key),
    target: coordination.CompareTarget.UNSPECIFIED,
    operator: wireOperator(compare.operator ?? "="),
    number: 0,
    value: EMPTY,
    leaseId: "0",
  };
  let operands = 0;
  if (compare.version !== undefined) {
    operands += 1;
    wire.target = coordination.CompareTarget.VERSION;
    wire.number = compare.version;
  }
  if (compare.createRevision !== undefined) {
    operands += 1;
    wire.target = coordination.CompareTarget.CREATE_REVISION;
    wire.number = compare.createRevision;
  }
  if (compare.modRevision !== undefined) {
    operands += 1;
    wire.target = coordination.CompareTarget.MOD_REVISION;
    wire.number = compare.modRevision;
  }
  if (compare.value !== undefined) {
    operands += 1;
    wire.target = coordination.CompareTarget.VALUE;
    wire.value = toBuffer(compare.value);
  }
  if (compare.leaseId !== undefined) {
    operands += 1;
    wire.target = coordination.CompareTarget.LEASE;
    wire.leaseId = compare.leaseId;
  }
  if (operands !== 1) {
    throw new TypeError(
      "a compare needs exactly one of version, createRevision, modRevision, value and leaseId",
    );
  }
  return wire;
}

function wireStep(step: TxnStep): coordination.TxnStep {
  if ("put" in step) {
    const { put } = step;
    return {
      step: {
        $case: "put",
        value: {
          key: toBuffer(put.key),
          value: toBuffer(put.value),
          leaseId: put.leaseId ?? "0",
          sequential: put.sequential ?? false,
          returnPrevious: put.returnPrevious ?? false,
        },
      },
    };
  }
  if ("delete" in step) {
    return {
      step: {
        $case: "delete",
        value: { range: rangeOf(step.delete), returnPrevious: step.delete.returnPrevious ?? false },
      },
    };
  }
  return { step: { $case: "range", value: { range: rangeOf(step.get), ...rangeFields(step.get) } } };
}

export function encodeTxn(txn: Txn): Uint8Array {
  return encodeOperation({
    $case: "txn",
    value: {
      compares: (txn.compares ?? []).map(wireCompare),
      success: (txn.success ?? []).map(wireStep),
      failure: (txn.failure ?? []).map(wireStep),
    },
  });
}
