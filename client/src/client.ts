import { toWireRange, type Bytes, type RangeInput } from "./bytes.ts";
import type { Channel } from "./channel/channel.ts";
import { withoutResult } from "./channel/outcomes.ts";
import type { Completion } from "./channel/pending.ts";
import { DIAGNOSTICS, observed } from "./diagnostics.ts";
import { LockstepError } from "./errors.ts";
import type { ConnectOptions } from "./options.ts";
import { Barrier } from "./recipes/barrier.ts";
import type { Claim } from "./recipes/claim.ts";
import { Counter } from "./recipes/counter.ts";
import { DoubleBarrier, type DoubleBarrierOptions } from "./recipes/double-barrier.ts";
import { Election } from "./recipes/election.ts";
import { ExclusiveLock, type Lock, type LockOptions } from "./recipes/exclusive-lock.ts";
import { FairLock } from "./recipes/fair-lock.ts";
import { MultiLock } from "./recipes/multi-lock.ts";
import { ReadWriteLock } from "./recipes/read-write-lock.ts";
import { onAsked, type AskedOptions, type RevocationRequest } from "./recipes/revocation.ts";
import { Semaphore, type SemaphoreOptions } from "./recipes/semaphore.ts";
import { Service } from "./recipes/service.ts";
import { SharedValue, type SharedValueOptions } from "./recipes/shared-value.ts";
import { Transaction } from "./recipes/transaction.ts";
import { TreeView, type TreeViewOptions } from "./recipes/tree-view.ts";
import { openChannel } from "./relay/open-channel.ts";
import { REAL_RUNTIME, type Runtime } from "./runtime.ts";
import { Session, type SessionOptions } from "./session.ts";
import type {
  CallOptions,
  CellInfo,
  CompactResult,
  DeleteOptions,
  DeleteResult,
  KeyValue,
  LeaseGrantOptions,
  LeaseGrantResult,
  LeaseId,
  LeaseListResult,
  LeaseRenewResult,
  LeaseRevokeResult,
  LeaseTimeToLiveResult,
  OperationResult,
  PutOptions,
  PutResult,
  RangeOptions,
  RangeResult,
  Txn,
  TxnResult,
} from "./types.ts";
import { Watch, type WatchOptions } from "./watch.ts";
import {
  encodeDelete,
  encodeLeaseGrant,
  encodeOperation,
  encodeRange,
  encodeTxn,
} from "./wire/operations.ts";

const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;

/**
 * Connects to a cell. Resolves when a member has greeted; rejects with `unavailable` when none does in time.
 * @throws TypeError when no endpoint is given.
 */
export async function connect(options: ConnectOptions): Promise<Client> {
  if (options.endpoints.length === 0) throw new TypeError("connect needs at least one endpoint");
  const runtime = options.runtime ?? REAL_RUNTIME;
  const channel = await openChannel(options);
  await untilGreeted(channel, runtime, options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS);
  return new Client(channel, runtime);
}

async function untilGreeted(channel: Channel, runtime: Runtime, timeoutMs: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const stop = channel.onInfo(() => {
      stop();
      cancel();
      resolve();
    });
    const cancel = runtime.schedule(() => {
      stop();
      const error = channel.connectError;
      channel.close();
      reject(
        error ??
          new LockstepError("unavailable", "not-applied", `no member has greeted within ${timeoutMs} ms`),
      );
    }, timeoutMs);
  });
}

/** A process's connection to one namespace of a cell. Make one and share it. */
export class Client {
  /** The same stream without promises, for routers and load generators. */
  readonly channel: Channel;
  readonly runtime: Runtime;

  /** Use {@link connect}. */
  constructor(channel: Channel, runtime: Runtime) {
    this.channel = channel;
    this.runtime = runtime;
  }

  /** The cell as the connected member last described it; undefined while there is no connection. */
  get info(): CellInfo | undefined {
    return this.channel.info;
  }

  /** Writes a key. @returns the stored key and its revision */
  put(key: Bytes, value: Bytes, options: PutOptions = {}): Promise<PutResult> {
    return this.#call("put", options, (completion) =>
      this.channel.putWith(key, value, completion, options),
    ) as Promise<PutResult>;
  }

  /** The key's state, or undefined when there is no such key. */
  async get(
    key: Bytes,
    options: Omit<RangeOptions, "limit" | "reverse"> = {},
  ): Promise<KeyValue | undefined> {
    const result = await this.range(key, options);
    return result.kvs[0];
  }

  /** The keys of a range, or one key, with their values. */
  range(range: RangeInput, options: RangeOptions = {}): Promise<RangeResult> {
    return this.#execute("range", encodeRange(range, options), false, options);
  }

  /** Deletes a key or a range. A range of more than 10,000 keys is refused. */
  delete(range: RangeInput, options: DeleteOptions = {}): Promise<DeleteResult> {
    return this.#execute("delete", encodeDelete(range, options), true, options);
  }

  /** Runs a transaction given as data; {@link transaction} is the same with types. */
  txn(txn: Txn, options: CallOptions = {}): Promise<TxnResult> {
    return this.#execute("txn", encodeTxn(txn), true, options);
  }

  /** Grants a lease, which nobody renews: a {@link session} is one that is. */
  leaseGrant(options: LeaseGrantOptions): Promise<LeaseGrantResult> {
    return this.#execute("lease-grant", encodeLeaseGrant(options), true, options);
  }

  /** Ends a lease; its keys vanish in one revision. */
  leaseRevoke(leaseId: LeaseId, options: CallOptions = {}): Promise<LeaseRevokeResult> {
    const operation = encodeOperation({ $case: "leaseRevoke", value: { leaseId } });
    return this.#execute("lease-revoke", operation, true, options);
  }

  /** How long a lease lasts, and on demand which keys hang on it. */
  leaseTimeToLive(
    leaseId: LeaseId,
    options: CallOptions & { readonly keys?: boolean } = {},
  ): Promise<LeaseTimeToLiveResult> {
    const operation = encodeOperation({
      $case: "leaseTimeToLive",
      value: { leaseId, keys: options.keys ?? false },
    });
    return this.#execute("lease-time-to-live", operation, false, options);
  }

  /** All leases by id, from `after` (exclusive) on. */
  leaseList(
    options: CallOptions & { readonly after?: LeaseId; readonly limit?: number } = {},
  ): Promise<LeaseListResult> {
    const operation = encodeOperation({
      $case: "leaseList",
      value: { after: options.after ?? "0", limit: options.limit ?? 0 },
    });
    return this.#execute("lease-list", operation, false, options);
  }

  /** Renews leases once; a {@link session} does it by itself. A lease that is gone has 0 ms left. */
  leaseRenew(leaseIds: readonly LeaseId[], options: CallOptions = {}): Promise<LeaseRenewResult> {
    const operation = encodeOperation({ $case: "leaseRenew", value: { leaseIds: [...leaseIds] } });
    return this.#execute("lease-renew", operation, false, options);
  }

  /** Forgets history below `revision`, which stays readable. */
  compact(revision: number, options: CallOptions = {}): Promise<CompactResult> {
    const operation = encodeOperation({ $case: "compact", value: { revision } });
    return this.#execute("compact", operation, true, options);
  }

  /** Changes of a key or range, in order; resumes by itself after a broken connection. */
  watch(range: RangeInput, options: WatchOptions = {}): Watch {
    return new Watch(this.channel, toWireRange(range), options);
  }

  /** Grants a lease and keeps it alive until it is closed or lost. */
  session(options: SessionOptions): Promise<Session> {
    return Session.open(this, options);
  }

  /** Takes the exclusive lock `name`; waits until it is free, at most `waitMs`. Without options: the lock, to be taken. */
  lock(name: string): ExclusiveLock;
  lock(name: string, options: LockOptions): Promise<Lock>;
  lock(name: string, options?: LockOptions): ExclusiveLock | Promise<Lock> {
    const lock = new ExclusiveLock(this, name);
    return options === undefined ? lock : lock.acquire(options);
  }

  /** The lock `name` that serves in the order of asking. */
  fairLock(name: string): FairLock {
    return new FairLock(this, name);
  }

  /** The lock `name` that many may read or one may write. */
  readWriteLock(name: string): ReadWriteLock {
    return new ReadWriteLock(this, name);
  }

  /** The semaphore `name`, of which `permits` may be held at once. */
  semaphore(name: string, options: SemaphoreOptions): Semaphore {
    return new Semaphore(this, name, options);
  }

  /** Several exclusive locks, to be taken all or none. */
  multiLock(names: readonly string[]): MultiLock {
    return new MultiLock(this, names);
  }

  /** The election `name`: candidates lead one after the other. */
  election(name: string): Election {
    return new Election(this, name);
  }

  /** The service `name`: endpoints that are there as long as their processes, and a local set of them. */
  service<T>(name: string): Service<T> {
    return new Service<T>(this, name);
  }

  /** A local copy of a range that follows the cell; resolves when its first state is there. */
  view(range: RangeInput, options: TreeViewOptions = {}): Promise<TreeView> {
    return TreeView.open(this, range, options);
  }

  /** The JSON value of a key, known locally; resolves when its first state is. */
  value<T>(key: string, options: SharedValueOptions<T>): Promise<SharedValue<T>> {
    return SharedValue.open(this, key, options);
  }

  /** The counter `name`. */
  counter(name: string): Counter {
    return new Counter(this, name);
  }

  /** The barrier `name`: who waits at it goes on when it is lowered. */
  barrier(name: string): Barrier {
    return new Barrier(this, name);
  }

  /** The double barrier `name`: `participants` processes begin together and go on after it together. */
  doubleBarrier(name: string, options: DoubleBarrierOptions): DoubleBarrier {
    return new DoubleBarrier(this, name, options);
  }

  /** A transaction as a sentence: `client.transaction().ifHeld(lock).put(key, value).commit()`. */
  transaction(): Transaction {
    return new Transaction(this);
  }

  /** Tells of each request to give `claim` up. Ends with the claim; resolves when it listens. */
  onAsked(
    claim: Claim,
    listener: (request: RevocationRequest) => unknown,
    options: AskedOptions,
  ): Promise<void> {
    return onAsked(this, claim, listener, options);
  }

  /**
   * Ends everything: outstanding calls reject with `closed`, sessions stop being renewed (close them first to free
   * their locks at once).
   */
  close(): void {
    this.channel.close();
  }

  /** {@link close}. */
  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  #execute<K extends OperationResult["kind"]>(
    kind: K,
    operation: Uint8Array,
    mutation: boolean,
    options: CallOptions,
  ): Promise<Extract<OperationResult, { kind: K }>> {
    const { deadlineMs } = options;
    return this.#call(kind, options, (completion) =>
      this.channel.execute(
        operation,
        deadlineMs === undefined ? { mutation } : { mutation, deadlineMs },
        (error, result) => {
          if (result === undefined || result.kind === kind) completion(error, result);
          else
            completion(
              new LockstepError("protocol-error", "unknown", `expected a ${kind} result`),
              undefined,
            );
        },
      ),
    ) as Promise<Extract<OperationResult, { kind: K }>>;
  }

  #call(
    operation: string,
    options: CallOptions,
    send: (completion: Completion) => number,
  ): Promise<OperationResult> {
    return observed(
      DIAGNOSTICS.call,
      this.runtime,
      () => this.#send(options, send),
      (end) => ({ operation, ...end }),
    );
  }

  #send(options: CallOptions, send: (completion: Completion) => number): Promise<OperationResult> {
    const { signal } = options;
    if (signal?.aborted === true) return Promise.reject(cancelledError(signal, "not-applied"));
    return new Promise((resolve, reject) => {
      let id = 0;
      const onAbort = (): void =>
        this.channel.cancel(id, "cancelled", "the call was cancelled by its signal");
      id = send((error, result) => {
        signal?.removeEventListener("abort", onAbort);
        if (result !== undefined) resolve(result);
        else reject(withSignalReason(error, signal));
      });
      if (id !== 0) signal?.addEventListener("abort", onAbort, { once: true });
    });
  }
}

function cancelledError(signal: AbortSignal, outcome: "not-applied" | "unknown"): LockstepError {
  return new LockstepError("cancelled", outcome, "the call was cancelled by its signal", {
    cause: signal.reason,
  });
}

function withSignalReason(error: LockstepError | undefined, signal: AbortSignal | undefined): LockstepError {
  if (error === undefined) return withoutResult();
  if (error.code !== "cancelled" || signal === undefined || error.outcome === "applied") return error;
  return cancelledError(signal, error.outcome);
}
