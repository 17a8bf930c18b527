/** Random operations over a few keys, so that they meet. For property tests. */
import fc from "fast-check";
import type {
  Compare,
  KeyRange,
  LeaseId,
  PutOperation,
  RangeFilter,
  RangeOperation,
  RangeSort,
  Revision,
  SortTarget,
  TxnCommand,
  TxnOperation,
  WriteOperation,
} from "@lockstep/gateway/coordinator";
import { bytes } from "./harness.ts";

/** Objects like those that programs write: with the usual prototype. */
export function record<T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> {
  return fc.record(model, { noNullPrototype: true });
}

export const KEYS: readonly string[] = ["a", "aa", "ab", "b", "c\xff", "c\xff\xff", "d", "z"];
const key = fc.constantFrom(...KEYS).map(bytesOf);
const value = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom("", "x", "y", "zz").map(bytes) },
  { weight: 1, arbitrary: fc.constant(new Uint8Array(1100).fill(0x61)) },
);
export const leaseId: fc.Arbitrary<LeaseId> = fc.constantFrom(
  "1",
  "2",
  "3",
  "9007199254740993",
) as fc.Arbitrary<LeaseId>;
export const past: fc.Arbitrary<Revision> = fc.nat({ max: 40 }) as fc.Arbitrary<Revision>;

export function bytesOf(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "latin1"));
}

const range: fc.Arbitrary<KeyRange> = fc.oneof(
  key.map((single) => ({ key: single })),
  fc
    .tuple(fc.constantFrom("", ...KEYS).map(bytesOf), fc.constantFrom("", ...KEYS).map(bytesOf))
    .map(([from, to]) => ({ key: from, rangeEnd: to })),
);
/** Leaves out the members that were drawn as absent. */
function present<T extends object>(of: { [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(of).filter(([, v]) => v !== undefined)) as T;
}
const maybe = <T>(of: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(of, { nil: undefined });
const flag = fc.constantFrom(true, undefined, undefined);

/** What is kept is not given as well, and a sequential put keeps nothing. */
function valid(put: PutOperation): { [K in keyof PutOperation]: PutOperation[K] | undefined } {
  const { keep } = put;
  if (keep === undefined) return put;
  if (put.sequential === true) return { ...put, keep: undefined };
  return {
    ...put,
    value: keep === "lease" ? put.value : new Uint8Array(0),
    leaseId: keep === "value" ? put.leaseId : undefined,
  };
}

const filterBound = fc.constantFrom<keyof RangeFilter>(
  "minModRevision",
  "maxModRevision",
  "minCreateRevision",
  "maxCreateRevision",
);

const putOperation: fc.Arbitrary<PutOperation> = record({
  kind: fc.constant("put" as const),
  key,
  value,
  leaseId: maybe(leaseId),
  sequential: fc.constantFrom(true, ...new Array<undefined>(7)),
  returnPrevious: flag,
  keep: fc.constantFrom<PutOperation["keep"][]>("value", "lease", "both", ...new Array<undefined>(9)),
}).map((put) => present<PutOperation>(valid(put as PutOperation)));
const deleteOperation = record({ kind: fc.constant("delete" as const), range, returnPrevious: flag }).map(
  (o) => present<Extract<TxnOperation, { kind: "delete" }>>(o as never),
);
export const rangeOperation: fc.Arbitrary<RangeOperation> = record({
  kind: fc.constant("range" as const),
  range,
  revision: maybe(past),
  limit: maybe(fc.nat({ max: 4 })),
  keysOnly: flag,
  countOnly: flag,
  reverse: flag,
  sort: maybe(
    record({
      target: fc.constantFrom<SortTarget>("version", "create-revision", "mod-revision", "value"),
      descending: fc.constantFrom(true, undefined),
    }).map((sort) => present<RangeSort>(sort)),
  ),
  filter: maybe(
    record({ bound: filterBound, at: fc.nat({ max: 12 }) }).map(({ bound, at }) => ({ [bound]: at })),
  ),
})
  // A sort has its own direction.
  .map((o) =>
    present<RangeOperation>((o.sort === undefined ? o : { ...o, reverse: undefined }) as RangeOperation),
  );
const branchOf = (operations: fc.Arbitrary<TxnOperation>): fc.Arbitrary<TxnOperation[]> =>
  fc.array(operations, { maxLength: 5 });
const plain = fc.oneof<fc.Arbitrary<TxnOperation>[]>(putOperation, deleteOperation, rangeOperation);
/** Of a compare: mostly the single key. */
const overRange = fc.option(fc.constantFrom("", ...KEYS).map(bytesOf), { nil: undefined, freq: 4 });
const operator = fc.constantFrom<Compare["operator"]>("=", "!=", "<", ">");
const compare: fc.Arbitrary<Compare> = fc
  .tuple(
    fc.oneof<fc.Arbitrary<Compare>[]>(
      record({
        key,
        target: fc.constantFrom("version" as const, "create-revision" as const, "mod-revision" as const),
        operator,
        operand: fc.integer({ min: -1, max: 12 }),
      }),
      record({ key, target: fc.constant("value" as const), operator, operand: value }),
      record({
        key,
        target: fc.constant("lease" as const),
        operator,
        operand: fc.oneof(leaseId, fc.constant("0" as LeaseId)),
      }),
    ),
    overRange,
  )
  .map(([one, rangeEnd]) => (rangeEnd === undefined ? one : { ...one, rangeEnd }));
const txnOf = (operations: fc.Arbitrary<TxnOperation>): fc.Arbitrary<TxnCommand> =>
  record({
    compares: fc.array(compare, { maxLength: 2 }),
    success: branchOf(operations),
    failure: branchOf(operations),
  }).map((txn) => ({ kind: "txn" as const, ...txn }));
/** Transactions inside a transaction, two deep. */
const nested = txnOf(fc.oneof({ weight: 4, arbitrary: plain }, { weight: 1, arbitrary: txnOf(plain) }));
export const operation: fc.Arbitrary<WriteOperation> = fc.oneof(
  { weight: 8, arbitrary: putOperation },
  { weight: 3, arbitrary: deleteOperation },
  {
    weight: 6,
    arbitrary: txnOf(fc.oneof({ weight: 6, arbitrary: plain }, { weight: 1, arbitrary: nested })),
  },
  {
    weight: 3,
    arbitrary: record({
      kind: fc.constant("lease-grant" as const),
      leaseId: maybe(leaseId),
      ttlMs: fc.nat({ max: 99 }),
    }).map((o) => present<WriteOperation>(o as never)),
  },
  { weight: 2, arbitrary: leaseId.map((id) => ({ kind: "lease-revoke" as const, leaseId: id })) },
  { weight: 1, arbitrary: past.map((at) => ({ kind: "compact" as const, revision: at })) },
  { weight: 1, arbitrary: fc.constant({ kind: "register-client" as const }) },
);
