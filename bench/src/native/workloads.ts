import {
  encodeOperation as encode,
  type Channel,
  type LockstepError,
  type OperationResult,
  type RangeResult,
} from "@lockstep/client";
import { coordination } from "@lockstep/proto";
import { runClosedLoop, type Slot, type StartOperation } from "./closed-loop.ts";
import { Corpus, Random } from "./corpus.ts";
import { describe, problemOf, type Load, type LoadResult, type LoadSettings } from "./load.ts";
import { planFromNow, type Plan } from "./tally.ts";
import { watchFanOut } from "./watch.ts";

/** Long enough that no lease ends during a run. */
const LEASE_TTL_MS = 600_000;
const FILL_BATCH = 64;
/** Leases in one renewal frame. */
const RENEWALS_PER_REQUEST = 1_000;
const SET_UP_WIDTH = 256;
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

function putOperation(channel: Channel, corpus: Corpus, slot: Slot, random: Random): StartOperation {
  const finish = (error: LockstepError | undefined): void => slot.done(problemOf(error));
  return () => {
    channel.putWith(corpus.key(random), corpus.value(random), finish);
    return true;
  };
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

function putStep(key: Buffer, value: Buffer, leaseId: string): coordination.TxnStep {
  return { step: { $case: "put", value: { key, value, leaseId, sequential: false, returnPrevious: false } } };
}

/** A plan whose work runs out before its time. */
function untilDone(): Plan {
  return { fromMs: 0, untilMs: Infinity };
}

/** Writes every key once, 64 puts to a transaction; an operation is a key. */
const fill: Load = async (channel, settings) => {
  const corpus = new Corpus(settings.keys, settings.valueBytes);
  const begin = performance.now();
  let next = 0;
  const tally = await runClosedLoop({
    plan: untilDone(),
    slots: settings.clients,
    operationOf: (slot) => {
      const random = new Random(slot.index + 1);
      let weight = 0;
      const finish = (error: LockstepError | undefined): void => slot.done(problemOf(error), weight);
      return () => {
        const keys = corpus.keys.slice(next, next + FILL_BATCH);
        next += FILL_BATCH;
        weight = keys.length;
        if (weight === 0) return false;
        const success = keys.map((key) => putStep(key, corpus.value(random), "0"));
        const operation = encode({ $case: "txn", value: { compares: [], success, failure: [] } });
        channel.execute(operation, { mutation: true }, finish);
        return true;
      };
    },
  });
  return { tally, seconds: (performance.now() - begin) / 1000 };
};

const grantBytes = encode({ $case: "leaseGrant", value: { leaseId: "0", ttlMs: LEASE_TTL_MS, owner: "" } });

const grant: Load = (channel, settings) =>
  measured(settings, (slot) => {
    const finish = (error: LockstepError | undefined): void => slot.done(problemOf(error));
    return () => {
      channel.execute(grantBytes, { mutation: true }, finish);
      return true;
    };
  });

/** Set-up, not measured. @throws Error when a grant is refused. */
async function grantAll(channel: Channel, count: number): Promise<readonly string[]> {
  const ids: string[] = [];
  let asked = 0;
  const tally = await runClosedLoop({
    plan: untilDone(),
    slots: Math.min(SET_UP_WIDTH, count),
    operationOf: (slot) => {
      const finish = (error: LockstepError | undefined, result: OperationResult | undefined): void => {
        if (result?.kind === "lease-grant") ids.push(result.leaseId);
        slot.done(problemOf(error));
      };
      return () => {
        if (asked >= count) return false;
        asked += 1;
        channel.execute(grantBytes, { mutation: true }, finish);
        return true;
      };
    },
  });
  if (ids.length !== count) throw new Error(`set-up: ${tally.firstError ?? "a lease was not granted"}`);
  return ids;
}

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
  const leases = await grantAll(channel, settings.clients);
  return measured(settings, (slot) => lockOperation(channel, slot, leases[slot.index] ?? "0"));
};

/** `clients` renewals in flight, many leases to a frame. */
const renew: Load = async (channel, settings) => {
  const leases = await grantAll(channel, settings.leases);
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

/** By the mode's name; bench/etcdload has the same modes. */
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
};
