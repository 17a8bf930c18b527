/** Values for valid encodings: ordinary ones, and those at which number formats change their length. */
import type {
  ClientId,
  Compare,
  Failure,
  FailureCode,
  KeyRange,
  KeyValue,
  LeaseId,
  RangeFilter,
  RangeOperation,
  ReadOperation,
  ReadResult,
  RequestIdentity,
  Revision,
  TxnCommand,
  TxnOperation,
  TxnOperationResult,
  WriteOperation,
  WriteResult,
} from "@lockstep/gateway/coordinator";
import type { CommandOutcome } from "../../../cell/src/machine/index.ts";
import type { Dice } from "./dice.ts";

const EDGES: readonly number[] = [
  0,
  1,
  127,
  128,
  16383,
  16384,
  2 ** 28 - 1,
  2 ** 28,
  2 ** 31,
  2 ** 32,
  2 ** 35,
];

/** A safe integer from 0 on. */
export function number(dice: Dice): number {
  const kind = dice.below(8);
  if (kind < 4) return dice.below(300);
  if (kind < 6) return dice.pick(EDGES);
  if (kind === 6) return dice.uint32();
  return dice.once(2) ? Number.MAX_SAFE_INTEGER : dice.below(2 ** 21) * 2 ** 32 + dice.uint32();
}

export function revision(dice: Dice): Revision {
  return number(dice) as Revision;
}

export function flag(dice: Dice): boolean {
  return dice.once(2);
}

/** A lease id that is not `"0"`. */
export function lease(dice: Dice): LeaseId {
  const id = dice.once(3)
    ? ((BigInt(dice.below(2 ** 31)) << 32n) | BigInt(dice.uint32())) + 1n
    : BigInt(dice.between(1, 500));
  return String(id > 0x7fffffffffffffffn ? 0x7fffffffffffffffn : id) as LeaseId;
}

export function leaseOrNone(dice: Dice): LeaseId {
  return dice.once(2) ? ("0" as LeaseId) : lease(dice);
}

export function bytes(dice: Dice, max = 80): Buffer {
  return dice.bytes(dice.length(max));
}

/** A key or value that is not empty. */
export function key(dice: Dice): Buffer {
  return dice.bytes(1 + dice.length(60));
}

const LETTERS = [
  "a",
  "Z",
  "0",
  "-",
  "/",
  " ",
  "ä",
  "日",
  "😀",
  "\u0000",
  "\u007f",
  "\u0080",
  "\u07ff",
  "\uffff",
];

/** Well-formed text of one to four bytes a letter. */
export function text(dice: Dice, max = 24): string {
  let drawn = "";
  for (let left = dice.length(max); left > 0; left--) drawn += dice.pick(LETTERS);
  return drawn;
}

export function range(dice: Dice): KeyRange {
  return dice.once(2) ? { key: key(dice) } : { key: bytes(dice), rangeEnd: bytes(dice) };
}

export function keyValue(dice: Dice): KeyValue {
  return {
    key: bytes(dice),
    value: bytes(dice),
    createRevision: revision(dice),
    modRevision: revision(dice),
    version: number(dice),
    leaseId: leaseOrNone(dice),
  };
}

export function rangeOperation(dice: Dice): RangeOperation {
  return {
    kind: "range",
    range: range(dice),
    ...(dice.once(3) && { revision: revision(dice) }),
    ...(dice.once(3) && { limit: number(dice) }),
    ...(dice.once(4) && { keysOnly: true }),
    ...(dice.once(4) && { countOnly: true }),
    ...order(dice),
    ...(dice.once(4) && { filter: filter(dice) }),
  };
}

/** A sort has a direction of its own. */
function order(dice: Dice): Pick<RangeOperation, "reverse" | "sort"> {
  if (dice.once(4)) return { reverse: true };
  if (!dice.once(3)) return {};
  const target = dice.pick(["version", "create-revision", "mod-revision", "value"] as const);
  return { sort: { target, ...(dice.once(2) && { descending: true }) } };
}

function filter(dice: Dice): RangeFilter {
  return {
    ...(dice.once(2) && { minModRevision: number(dice) }),
    ...(dice.once(2) && { maxModRevision: number(dice) }),
    ...(dice.once(2) && { minCreateRevision: number(dice) }),
    ...(dice.once(2) && { maxCreateRevision: number(dice) }),
  };
}

/** `depth`: how far transactions may stand in each other from here on. */
export function txnOperation(dice: Dice, depth = 0): TxnOperation {
  switch (dice.below(depth > 0 ? 4 : 3)) {
    case 0:
      return put(dice);
    case 3:
      return txn(dice, depth - 1);
    case 1:
      return { kind: "delete", range: range(dice), ...(dice.once(3) && { returnPrevious: true }) };
    default:
      return rangeOperation(dice);
  }
}

function put(dice: Dice): TxnOperation {
  const previous = dice.once(4) && { returnPrevious: true };
  if (dice.once(5)) {
    const keep = dice.pick(["value", "lease", "both"] as const);
    const value = keep === "lease" ? bytes(dice) : new Uint8Array(0);
    const leaseId = keep === "value" && dice.once(2) && { leaseId: lease(dice) };
    return { kind: "put", key: key(dice), value, keep, ...leaseId, ...previous };
  }
  return {
    kind: "put",
    key: key(dice),
    value: bytes(dice),
    ...(dice.once(3) && { leaseId: lease(dice) }),
    ...(dice.once(4) && { sequential: true }),
    ...previous,
  };
}

function txn(dice: Dice, depth: number): TxnCommand {
  return {
    kind: "txn",
    compares: dice.list(5, () => compare(dice)),
    success: dice.list(5, () => txnOperation(dice, depth)),
    failure: dice.list(5, () => txnOperation(dice, depth)),
  };
}

function readOnlyTxn(dice: Dice): TxnCommand {
  return {
    kind: "txn",
    compares: dice.list(5, () => compare(dice)),
    success: dice.list(5, () => rangeOperation(dice)),
    failure: dice.list(5, () => rangeOperation(dice)),
  };
}

function compare(dice: Dice): Compare {
  const one = compareOfKey(dice);
  return dice.once(4) ? { ...one, rangeEnd: bytes(dice) } : one;
}

function compareOfKey(dice: Dice): Compare {
  const operator = dice.pick(["=", "!=", "<", ">"] as const);
  switch (dice.below(3)) {
    case 0:
      return { key: key(dice), target: "value", operator, operand: bytes(dice) };
    case 1:
      return { key: key(dice), target: "lease", operator, operand: leaseOrNone(dice) };
    default:
      return {
        key: key(dice),
        target: dice.pick(["version", "create-revision", "mod-revision"] as const),
        operator,
        operand: number(dice),
      };
  }
}

export function writeOperation(dice: Dice): WriteOperation {
  switch (dice.below(10)) {
    case 0:
      return {
        kind: "lease-grant",
        ttlMs: number(dice),
        ...(dice.once(2) && { leaseId: lease(dice) }),
        ...(dice.once(2) && { owner: text(dice) }),
      };
    case 1:
      return { kind: "lease-revoke", leaseId: lease(dice) };
    case 2:
      return { kind: "compact", revision: revision(dice) };
    case 3:
      return { kind: "register-client" };
    case 4:
    case 5:
    case 6:
      return txn(dice, 2);
    default: {
      const operation = txnOperation(dice);
      return operation.kind === "range" ? { kind: "register-client" } : operation;
    }
  }
}

export function readOperation(dice: Dice): ReadOperation {
  switch (dice.below(5)) {
    case 2:
      return { kind: "txn-read", txn: readOnlyTxn(dice) };
    case 0:
      return { kind: "lease-time-to-live", leaseId: lease(dice), ...(dice.once(2) && { keys: true }) };
    case 1:
      return {
        kind: "lease-list",
        ...(dice.once(2) && { after: lease(dice) }),
        ...(dice.once(2) && { limit: number(dice) }),
      };
    default:
      return rangeOperation(dice);
  }
}

export function identity(dice: Dice): RequestIdentity {
  switch (dice.below(3)) {
    case 0:
      return { kind: "none" };
    case 1:
      return {
        kind: "client",
        clientId: number(dice) as ClientId,
        sequence: number(dice),
        acknowledgedBelow: number(dice),
      };
    default:
      return { kind: "token", token: text(dice) };
  }
}

const CODES: readonly FailureCode[] = [
  "compacted",
  "overloaded",
  "internal",
  "request-expired",
  "not-leader",
];

export function failure(dice: Dice): Failure {
  return {
    code: dice.pick(CODES),
    outcome: dice.pick(["not-applied", "applied", "unknown"] as const),
    message: text(dice),
    ...(dice.once(2) && { compactRevision: revision(dice) }),
    ...(dice.once(2) && { retryAfterMs: number(dice) }),
  };
}

function stepResult(dice: Dice): TxnOperationResult {
  switch (dice.below(3)) {
    case 0:
      return {
        kind: "put",
        revision: revision(dice),
        key: bytes(dice),
        createRevision: revision(dice),
        version: number(dice),
        ...(dice.once(2) && { previous: keyValue(dice) }),
      };
    case 1:
      return {
        kind: "delete",
        revision: revision(dice),
        deleted: number(dice),
        previous: dice.list(4, () => keyValue(dice)),
      };
    default:
      return {
        kind: "range",
        revision: revision(dice),
        kvs: dice.list(4, () => keyValue(dice)),
        count: number(dice),
        more: flag(dice),
      };
  }
}

export function writeResult(dice: Dice): WriteResult {
  switch (dice.below(7)) {
    case 0:
      return { kind: "lease-grant", leaseId: lease(dice), ttlMs: number(dice), revision: revision(dice) };
    case 1:
      return { kind: "lease-revoke", revision: revision(dice), deleted: number(dice) };
    case 2:
      return { kind: "compact", revision: revision(dice) };
    case 3:
      return { kind: "register-client", clientId: number(dice) as ClientId, revision: revision(dice) };
    case 4:
      return {
        kind: "txn",
        succeeded: flag(dice),
        revision: revision(dice),
        responses: dice.list(4, () => stepResult(dice)),
        failures: dice.list(3, () => ({
          index: number(dice),
          ...(dice.once(2) && { actual: keyValue(dice) }),
        })),
      };
    default: {
      const result = stepResult(dice);
      return result.kind === "range" ? { kind: "compact", revision: result.revision } : result;
    }
  }
}

export function readResult(dice: Dice): ReadResult {
  switch (dice.below(3)) {
    case 0:
      return {
        kind: "lease-time-to-live",
        revision: revision(dice),
        leaseId: lease(dice),
        remainingMs: dice.once(4) ? -1 : dice.below(1_000_000),
        ttlMs: number(dice),
        owner: text(dice),
        keys: dice.list(5, () => bytes(dice)),
      };
    case 1:
      return {
        kind: "lease-list",
        revision: revision(dice),
        leases: dice.list(5, () => ({ leaseId: lease(dice), ttlMs: number(dice), owner: text(dice) })),
        more: flag(dice),
      };
    default:
      return {
        kind: "range",
        revision: revision(dice),
        kvs: dice.list(5, () => keyValue(dice)),
        count: number(dice),
        more: flag(dice),
      };
  }
}

export function outcome(dice: Dice): CommandOutcome {
  switch (dice.below(4)) {
    case 0:
      return { ok: false, failure: failure(dice) };
    case 1:
      return { ok: true, result: undefined, replayed: false };
    default:
      return { ok: true, result: writeResult(dice), replayed: flag(dice) };
  }
}
