import { type Channel, type LockstepError, type OperationResult } from "@lockstep/client";
import type { coordination } from "@lockstep/proto";
import { runClosedLoop, type Slot, type StartOperation } from "./closed-loop.ts";
import type { Corpus, Random } from "./corpus.ts";
import { problemOf } from "./load.ts";
import type { Plan } from "./tally.ts";
import { encodeOperation as encode } from "./encode-operation.ts";

const SET_UP_WIDTH = 256;
/** Leases in one renewal of a set-up. */
const RENEWALS_PER_REQUEST = 1_000;

/** A plan whose work runs out before its time. */
export function untilDone(): Plan {
  return { fromMs: 0, untilMs: Infinity };
}

export function putStep(key: Buffer, value: Buffer, leaseId: string): coordination.TxnStep {
  return { step: { $case: "put", value: { key, value, leaseId, sequential: false, returnPrevious: false } } };
}

export function grantOperation(ttlMs: number): Uint8Array {
  return encode({ $case: "leaseGrant", value: { leaseId: "0", ttlMs, owner: "" } });
}

/** Puts of random keys. */
export function putOperation(channel: Channel, corpus: Corpus, slot: Slot, random: Random): StartOperation {
  const finish = (error: LockstepError | undefined): void => slot.done(problemOf(error));
  return () => {
    channel.putWith(corpus.key(random), corpus.value(random), finish);
    return true;
  };
}

/** Starts the operation with this number and calls back when it is answered. */
export type SetUpStep = (index: number, done: (error: LockstepError | undefined) => void) => void;

/** Set-up work, some at once, not measured. @throws Error with the first refusal. */
export async function inParallel(count: number, step: SetUpStep): Promise<void> {
  let next = 0;
  const tally = await runClosedLoop({
    plan: untilDone(),
    slots: Math.min(SET_UP_WIDTH, count),
    operationOf: (slot) => {
      const finish = (error: LockstepError | undefined): void => slot.done(problemOf(error));
      return () => {
        if (next >= count) return false;
        next += 1;
        step(next - 1, finish);
        return true;
      };
    },
  });
  if (tally.errors > 0) throw new Error(`set-up: ${tally.firstError ?? "an error"}`);
}

/** @throws Error when a grant is refused. */
export async function grantAll(
  channel: Channel,
  { count, ttlMs }: { readonly count: number; readonly ttlMs: number },
): Promise<string[]> {
  const operation = grantOperation(ttlMs);
  const ids: string[] = [];
  await inParallel(count, (_, done) => {
    channel.execute(operation, { mutation: true }, (error, result: OperationResult | undefined) => {
      if (result?.kind === "lease-grant") ids.push(result.leaseId);
      done(error);
    });
  });
  if (ids.length !== count) throw new Error("set-up: a lease was not granted");
  return ids;
}

/** Renews each once. @throws Error when one has ended. */
export async function renewAll(channel: Channel, leases: readonly string[]): Promise<void> {
  const requests = Math.ceil(leases.length / RENEWALS_PER_REQUEST);
  let ended = 0;
  await inParallel(requests, (index, done) => {
    const leaseIds = leases.slice(index * RENEWALS_PER_REQUEST, (index + 1) * RENEWALS_PER_REQUEST);
    const operation = encode({ $case: "leaseRenew", value: { leaseIds } });
    channel.execute(operation, { mutation: false }, (error, result) => {
      if (result?.kind === "lease-renew") ended += result.remainingMs.filter((left) => left <= 0).length;
      done(error);
    });
  });
  if (ended > 0) throw new Error(`set-up: ${String(ended)} leases had ended before the last was granted`);
}

/** @throws Error when the condition does not come true in time. */
export async function waitUntil(what: string, limitMs: number, condition: () => boolean): Promise<void> {
  const limit = performance.now() + limitMs;
  while (!condition()) {
    if (performance.now() > limit) throw new Error(`waited too long for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
