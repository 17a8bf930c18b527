/** Messages of the native protocol as the generated code writes them: the twin of the hand-written decoders. */
import { coordination } from "@lockstep/proto";
import type { Dice } from "./dice.ts";
import * as values from "./values.ts";

type Step = NonNullable<coordination.TxnStep["step"]>;
type StepResult = NonNullable<coordination.TxnStepResult["result"]>;
type WireOperation = NonNullable<coordination.Operation["operation"]>;
type WireResult = NonNullable<coordination.Result["result"]>;

function range(dice: Dice): coordination.KeyRange {
  return { key: values.bytes(dice), rangeEnd: dice.once(2) ? values.bytes(dice) : undefined };
}

function step(dice: Dice): Step {
  switch (dice.below(3)) {
    case 0:
      return {
        $case: "put",
        value: {
          key: values.bytes(dice),
          value: dice.once(30) ? dice.bytes(5_000) : values.bytes(dice),
          leaseId: values.leaseOrNone(dice),
          sequential: values.flag(dice),
          returnPrevious: values.flag(dice),
        },
      };
    case 1:
      return { $case: "delete", value: { range: range(dice), returnPrevious: values.flag(dice) } };
    default:
      return {
        $case: "range",
        value: {
          range: range(dice),
          revision: values.number(dice),
          limit: dice.uint32(),
          keysOnly: values.flag(dice),
          countOnly: values.flag(dice),
          reverse: values.flag(dice),
          consistency: dice.pick([0, 1, 2] as const),
          minRevision: values.number(dice),
        },
      };
  }
}

function compare(dice: Dice): coordination.Compare {
  return {
    key: values.bytes(dice),
    target: dice.pick([1, 2, 3, 4, 5] as const),
    operator: dice.pick([1, 2, 3, 4] as const),
    number: values.number(dice),
    value: values.bytes(dice),
    leaseId: values.leaseOrNone(dice),
  };
}

function operationOf(dice: Dice): WireOperation {
  switch (dice.below(12)) {
    case 0:
      return {
        $case: "leaseGrant",
        value: { leaseId: values.leaseOrNone(dice), ttlMs: values.number(dice), owner: values.text(dice) },
      };
    case 1:
      return { $case: "leaseRevoke", value: { leaseId: values.leaseOrNone(dice) } };
    case 2:
      return { $case: "compact", value: { revision: values.number(dice) } };
    case 3:
      return { $case: "registerClient", value: {} };
    case 4:
      return { $case: "leaseTimeToLive", value: { leaseId: values.lease(dice), keys: values.flag(dice) } };
    case 5:
      return { $case: "leaseList", value: { after: values.leaseOrNone(dice), limit: dice.uint32() } };
    case 6:
      return { $case: "leaseRenew", value: { leaseIds: dice.list(20, () => values.lease(dice)) } };
    case 7:
    case 8:
    case 9:
      return {
        $case: "txn",
        value: {
          compares: dice.list(5, () => compare(dice)),
          success: dice.list(5, () => ({ step: step(dice) })),
          failure: dice.list(5, () => ({ step: step(dice) })),
        },
      };
    default:
      return step(dice);
  }
}

export function operation(dice: Dice): Buffer {
  return Buffer.from(coordination.Operation.encode({ operation: operationOf(dice) }).finish());
}

function request(dice: Dice): coordination.Request {
  return {
    id: values.number(dice),
    clientId: values.number(dice),
    sequence: values.number(dice),
    acknowledgedBelow: values.number(dice),
    deadlineMs: dice.uint32(),
    operation: operation(dice),
  };
}

export function clientFrame(dice: Dice): Buffer {
  const frame: coordination.ClientFrame = {
    namespace: values.text(dice),
    epoch: values.number(dice),
    requests: dice.list(4, () => request(dice)),
    renew: dice.once(3)
      ? { id: values.number(dice), leaseIds: dice.list(20, () => values.lease(dice)) }
      : undefined,
    watchCreates: dice.list(2, () => ({
      watchId: values.number(dice),
      range: range(dice),
      startRevision: values.number(dice),
      returnPrevious: values.flag(dice),
      omitPuts: values.flag(dice),
      omitDeletes: values.flag(dice),
    })),
    watchCancels: dice.list(10, () => values.number(dice)),
    watchProgress: dice.list(10, () => values.number(dice)),
  };
  return Buffer.from(coordination.ClientFrame.encode(frame).finish());
}

export function executeRequest(dice: Dice): Buffer {
  return Buffer.from(
    coordination.ExecuteRequest.encode({
      namespace: values.text(dice),
      epoch: values.number(dice),
      clientId: values.number(dice),
      sequence: values.number(dice),
      acknowledgedBelow: values.number(dice),
      requestToken: values.text(dice),
      deadlineMs: dice.uint32(),
      operation: { operation: operationOf(dice) },
    }).finish(),
  );
}

function keyValue(dice: Dice): coordination.KeyValue {
  const { key, value, createRevision, modRevision, version, leaseId } = values.keyValue(dice);
  return { key: Buffer.from(key), value: Buffer.from(value), createRevision, modRevision, version, leaseId };
}

function stepResult(dice: Dice): StepResult {
  switch (dice.below(3)) {
    case 0:
      return {
        $case: "put",
        value: {
          revision: values.number(dice),
          key: values.bytes(dice),
          createRevision: values.number(dice),
          version: values.number(dice),
          previous: dice.once(2) ? keyValue(dice) : undefined,
        },
      };
    case 1:
      return {
        $case: "delete",
        value: {
          revision: values.number(dice),
          deleted: values.number(dice),
          previous: dice.list(4, () => keyValue(dice)),
        },
      };
    default:
      return {
        $case: "range",
        value: {
          revision: values.number(dice),
          kvs: dice.list(6, () => keyValue(dice)),
          count: values.number(dice),
          more: values.flag(dice),
        },
      };
  }
}

function resultOf(dice: Dice): WireResult {
  switch (dice.below(8)) {
    case 0:
      return {
        $case: "leaseGrant",
        value: { leaseId: values.lease(dice), ttlMs: values.number(dice), revision: values.number(dice) },
      };
    case 1:
      return {
        $case: "leaseTimeToLive",
        value: {
          revision: values.number(dice),
          leaseId: values.lease(dice),
          remainingMs: values.number(dice),
          ttlMs: values.number(dice),
          owner: values.text(dice),
          keys: dice.list(5, () => values.bytes(dice)),
        },
      };
    case 2:
      return {
        $case: "leaseRenew",
        value: { revision: values.number(dice), remainingMs: dice.list(10, () => values.number(dice)) },
      };
    case 3:
      return {
        $case: "txn",
        value: {
          succeeded: values.flag(dice),
          revision: values.number(dice),
          responses: dice.list(4, () => ({ result: stepResult(dice) })),
          failures: dice.list(3, () => ({
            index: values.number(dice) % 128,
            actual: dice.once(2) ? keyValue(dice) : undefined,
          })),
        },
      };
    default:
      return stepResult(dice);
  }
}

export function result(dice: Dice): Buffer {
  return Buffer.from(coordination.Result.encode({ result: resultOf(dice) }).finish());
}

function failure(dice: Dice): coordination.Failure {
  return {
    code: dice.pick(["compacted", "overloaded", "of-a-newer-cell"]),
    outcome: dice.pick([0, 1, 2, 3] as const),
    message: values.text(dice),
    compactRevision: values.number(dice),
    retryAfterMs: dice.uint32(),
  };
}

function watchEvents(dice: Dice): coordination.WatchEvents {
  return {
    watchId: values.number(dice),
    alsoWatchIds: dice.list(4, () => values.number(dice)),
    revision: values.number(dice),
    events: dice.list(4, () => ({
      kind: dice.pick([0, 1] as const),
      kv: keyValue(dice),
      previous: dice.once(2) ? keyValue(dice) : undefined,
      cause: dice.pick([0, 1, 2, 3] as const),
    })),
  };
}

function response(dice: Dice): coordination.Response {
  const refused = dice.once(3);
  return {
    id: values.number(dice),
    result: refused ? undefined : result(dice),
    failure: refused ? failure(dice) : undefined,
    replayed: values.flag(dice),
  };
}

function renewAck(dice: Dice): coordination.RenewAck {
  return {
    id: values.number(dice),
    revision: values.number(dice),
    remainingMs: dice.list(9, () => values.number(dice)),
    failure: dice.once(3) ? failure(dice) : undefined,
  };
}

function watchEnded(dice: Dice): coordination.WatchEnded {
  const value = values.number(dice);
  const reason = dice.pick([
    { $case: "compactRevision", value } as const,
    { $case: "resumeRevision", value } as const,
    { $case: "failure", value: failure(dice) } as const,
  ]);
  return { watchId: values.number(dice), reason };
}

function info(dice: Dice): coordination.InfoResponse {
  const address = values.text(dice);
  return {
    cellId: values.text(dice),
    memberId: values.number(dice),
    term: values.number(dice),
    revision: values.number(dice),
    leader: dice.once(2)
      ? { memberId: values.number(dice), clientAddress: address, httpAddress: address }
      : undefined,
    clientAddresses: dice.list(3, () => values.text(dice)),
  };
}

export function serverFrame(dice: Dice): Buffer {
  const frame: coordination.ServerFrame = {
    responses: dice.list(4, () => response(dice)),
    renewAck: dice.once(4) ? renewAck(dice) : undefined,
    watchCreated: dice.list(2, () => ({ watchId: values.number(dice), revision: values.number(dice) })),
    watchEvents: dice.list(2, () => watchEvents(dice)),
    watchProgress: dice.list(2, () => ({ watchId: values.number(dice), revision: values.number(dice) })),
    watchEnded: dice.list(2, () => watchEnded(dice)),
    leaseEnded: dice.list(2, () => ({
      leaseId: values.lease(dice),
      cause: dice.pick([0, 1, 2, 3] as const),
      revision: values.number(dice),
    })),
    info: dice.once(4) ? info(dice) : undefined,
  };
  return Buffer.from(coordination.ServerFrame.encode(frame).finish());
}
