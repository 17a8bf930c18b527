import { type Channel, type LockstepError, type OperationResult, type RangeResult } from "@lockstep/client";
import { coordination } from "@lockstep/proto";
import { runClosedLoop, type Slot, type StartOperation } from "./closed-loop.ts";
import { Corpus, Random } from "./corpus.ts";
import { describe, problemOf, type Load, type LoadResult, type LoadSettings } from "./load.ts";
import { massExpiry } from "./expiry.ts";
import { failover } from "./failover.ts";
import { mutex } from "./mutex.ts";
import { grantAll, grantOperation, putOperation, putStep, untilDone } from "./operations.ts";
import { scale } from "./scale.ts";
import { storm } from "./storm.ts";
import { planFromNow } from "./tally.ts";
import { watchFanOut } from "./watch.ts";
import { encodeOperation as encode } from "./encode-operation.ts";

/** Long enough that no lease ends during a run. */
const LEASE_TTL_MS = 600_000;
const FILL_BATCH = 64;
/** Leases in one renewal frame. */
const RENEWALS_PER_REQUEST = 1_000;
const MISSING = "a filled key was not found with its value";
const LOST = "a lock that nobody else wants was not free, or was lost";
const ENDED = "a lease that was being renewed has ended";
const WRONG_ANSWER = "an answer of another kind than asked for";

async function measured(
  settings: LoadSettings,
  operationOf: (slot: Slot) => StartOperation,
  slots: number = settings.clients,
): Promise<LoadResult> {
  const plan = planFromNow(settings.warmupSeconds, settings.measureSeconds);
  const tally = await runClosedLoop({ plan, slots, operationOf });
  return { tally, seconds: settings.measureSeconds };
}

interface GetFields {
  readonly corpus: Corpus;
  readonly slot: Slot;
  readonly random: Random;
  readonly serializable: boolean;
}

function getOperation(channel: Channel, { corpus, slot, random, serializable }: GetFields): StartOperation {
  const options = { serializable };
  const finish = (error: LockstepError | undefined, result: RangeResult | undefined): void => {
    if (error !== undefined) slot.done(describe(error));
    else slot.done(result?.kvs[0]?.value.length === corpus.valueBytes ? undefined : MISSING);
  };
  return () => {
    channel.getWith(corpus.key(random), finish, options);
    return true;
  };
}

const put: Load = (channel, settings) => {
  const corpus = new Corpus(settings.keys, settings.valueBytes);
  return measured(settings, (slot) => putOperation(channel, corpus, slot, new Random(slot.index + 1)));
};

function gets(serializable: boolean): Load {
  return (channel, settings) => {
    const corpus = new Corpus(settings.keys, settings.valueBytes);
    return measured(settings, (slot) =>
      getOperation(channel, { corpus, slot, random: new Random(slot.index + 1), serializable }),
    );
  };
}

const mixed: Load = (channel, settings) => {
  const corpus = new Corpus(settings.keys, settings.valueBytes);
  return measured(settings, (slot) => {
    const random = new Random(slot.index + 1);
    const write = putOperation(channel, corpus, slot, random);
    const read = getOperation(channel, { corpus, slot, random, serializable: false });
    return () => (random.below(100) < settings.readPercent ? read() : write());
  });
};

const NO_BYTES = Buffer.alloc(0);

/** Writes every key once, 64 puts to a transaction; an operation is a key. */
const fill: Load = async (channel, settings) => {
  const corpus = new Corpus(settings.keys, settings.valueBytes);
  const begin = performance.now();
  let next = settings.firstKey;
  const tally = await runClosedLoop({
    plan: untilDone(),
    slots: settings.clients,
    operationOf: (slot) => {
      const random = new Random(slot.index + 1);
      let weight = 0;
      const finish = (error: LockstepError | undefined): void => slot.done(problemOf(error), weight);
      return () => {
        const first = next;
        weight = Math.min(FILL_BATCH, corpus.keyCount - first);
        if (weight <= 0) return false;
        next += weight;
        const success = Array.from({ length: weight }, (_, nth) =>
          putStep(corpus.keyAt(first + nth), corpus.value(random), "0"),
        );
        const operation = encode({ $case: "txn", value: { compares: [], success, failure: [] } });
        channel.execute(operation, { mutation: true }, finish);
        return true;
      };
    },
  });
  return { tally, seconds: (performance.now() - begin) / 1000 };
};

const grantBytes = grantOperation(LEASE_TTL_MS);

const grant: Load = (channel, settings) =>
  measured(settings, (slot) => {
    const finish = (error: LockstepError | undefined): void => slot.done(problemOf(error));
    return () => {
      channel.execute(grantBytes, { mutation: true }, finish);
      return true;
    };
  });

function compare(key: Buffer, target: coordination.CompareTarget, number: number): coordination.Compare {
  const operator = coordination.CompareOperator.EQUAL;
  return { key, target, operator, number, value: NO_BYTES, leaseId: "0" };
}

/** Create the lock's key under a lease if it is not there. The same bytes each time. */
function claimBytes(key: Buffer, leaseId: string): Uint8Array {
  const compares = [compare(key, coordination.CompareTarget.VERSION, 0)];
  const success = [putStep(key, Buffer.from("owner"), leaseId)];
  return encode({ $case: "txn", value: { compares, success, failure: [] } });
}

/** Delete it if it is still the one that was created at `revision`. */
function releaseBytes(key: Buffer, revision: number): Uint8Array {
  const compares = [compare(key, coordination.CompareTarget.CREATE_REVISION, revision)];
  const range = { key, rangeEnd: undefined };
  const success: coordination.TxnStep[] = [
    { step: { $case: "delete", value: { range, returnPrevious: false } } },
  ];
  return encode({ $case: "txn", value: { compares, success, failure: [] } });
}

/** An operation is the pair of claim and release. */
function lockOperation(channel: Channel, slot: Slot, leaseId: string): StartOperation {
  const key = Buffer.from(`/locks/${String(slot.index).padStart(8, "0")}`);
  const claim = claimBytes(key, leaseId);
  const options = { mutation: true };
  const failed = (
    error: LockstepError | undefined,
    result: OperationResult | undefined,
  ): string | undefined => {
    if (error !== undefined) return describe(error);
    if (result?.kind !== "txn") return WRONG_ANSWER;
    return result.succeeded ? undefined : LOST;
  };
  const released = (error: LockstepError | undefined, result: OperationResult | undefined): void =>
    slot.done(failed(error, result));
  const claimed = (error: LockstepError | undefined, result: OperationResult | undefined): void => {
    const problem = failed(error, result);
    if (problem !== undefined || result?.kind !== "txn") slot.done(problem);
    else channel.execute(releaseBytes(key, result.revision), options, released);
  };
  return () => {
    channel.execute(claim, options, claimed);
    return true;
  };
}

const txnLock: Load = async (channel, settings) => {
  const leases = await grantAll(channel, { count: settings.clients, ttlMs: LEASE_TTL_MS });
  return measured(settings, (slot) => lockOperation(channel, slot, leases[slot.index] ?? "0"));
};

/** `clients` renewals in flight, many leases to a frame. */
const renew: Load = async (channel, settings) => {
  const leases = await grantAll(channel, { count: settings.leases, ttlMs: LEASE_TTL_MS });
  const perRequest = Math.min(RENEWALS_PER_REQUEST, settings.clients, settings.leases);
  const batches: Uint8Array[] = [];
  for (let from = 0; from + perRequest <= leases.length; from += perRequest) {
    const leaseIds = leases.slice(from, from + perRequest);
    batches.push(encode({ $case: "leaseRenew", value: { leaseIds } }));
  }
  const slots = Math.max(1, Math.floor(settings.clients / perRequest));
  const operationOf = (slot: Slot): StartOperation => {
    let turn = slot.index;
    const finish = (error: LockstepError | undefined, result: OperationResult | undefined): void => {
      if (error !== undefined) slot.done(describe(error));
      else if (result?.kind !== "lease-renew") slot.done(WRONG_ANSWER);
      else slot.done(result.remainingMs.every((left) => left > 0) ? undefined : ENDED, perRequest);
    };
    return () => {
      const batch = batches[turn % batches.length];
      turn += slots;
      if (batch === undefined) return false;
      channel.execute(batch, { mutation: false }, finish);
      return true;
    };
  };
  return measured(settings, operationOf, slots);
};

/** By the mode's name; bench/etcdload has the same modes but storm. */
export const LOADS: Readonly<Partial<Record<string, Load>>> = {
  fill,
  put,
  get: gets(false),
  serializable: gets(true),
  mixed,
  txnlock: txnLock,
  grant,
  renew,
  watch: watchFanOut,
  mutex,
  expiry: massExpiry,
  failover,
  scale,
  storm,
};
