import type {
  Failure,
  KeyRange,
  KeyValue,
  LeaseId,
  RangeResult,
  Revision,
  TxnResult,
  WatchHandle,
  WriteOperation,
  WriteResult,
} from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import type { GrpcStatus, ServerCall } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import { prefixEnd } from "../keys.ts";
import { isLeaseId, refusal } from "../validation.ts";
import { query, submit } from "./ask.ts";
import type { Asker } from "./ask.ts";
import type { EtcdContext } from "./context.ts";
import { ETCD, statusOf } from "./errors.ts";

/** Where a recipe acts. */
export interface RecipeScope {
  readonly context: EtcdContext;
  readonly call: ServerCall;
  /** Whose time its questions have. */
  readonly asker: Asker;
  readonly namespace: string;
}

export function scopeOf(context: EtcdContext, call: ServerCall): RecipeScope {
  if (context.inFlight.closed) throw new GrpcError(ETCD.stopped);
  return { context, call, asker: call, namespace: context.namespaces.of(call) };
}

/** A place in the queue for a name: held while the key exists with this create revision. */
export interface Place {
  readonly key: Buffer;
  readonly leaseId: LeaseId;
  /** Create revision of the key: the fencing token. */
  readonly token: Revision;
  /** Everything before this revision has been looked at. */
  readonly revision: Revision;
}

/** What the keys of everybody who stands in line for a name begin with. */
function queueOf(name: Uint8Array): Buffer {
  return Buffer.concat([name, Buffer.from("/")]);
}

/** The keys of everybody who stands in line for a name. */
export function queueRange(name: Uint8Array): KeyRange {
  const key = queueOf(name);
  return { key, rangeEnd: prefixEnd(key) };
}

/** A mutation as a promise: recipes are no hot path. @throws GrpcError */
export function change<Kind extends WriteResult["kind"]>(
  { context, asker, namespace }: RecipeScope,
  operation: WriteOperation,
  kind: Kind,
): Promise<Extract<WriteResult, { readonly kind: Kind }>> {
  return new Promise((resolve, reject) => {
    submit(context, asker, { namespace, operation }, (outcome) => {
      if (!outcome.ok) reject(new GrpcError(statusOf(outcome.failure)));
      else if (isOfKind(outcome.result, kind)) resolve(outcome.result);
      else reject(new GrpcError(ANSWERED_OTHERWISE));
    });
  });
}

function isOfKind<Result extends { readonly kind: string }, Kind extends Result["kind"]>(
  result: Result,
  kind: Kind,
): result is Extract<Result, { readonly kind: Kind }> {
  return result.kind === kind;
}

const ANSWERED_OTHERWISE: GrpcStatus = statusOf(
  refusal("internal", "an operation was answered with the result of another"),
);

/** What a caller without a lease of its own gets, in seconds, as from etcd: nobody keeps it alive. */
const DRAWN_LEASE_SECONDS = 60;

/** The lease that the caller names, or a new one. */
async function leaseOf(scope: RecipeScope, leaseId: LeaseId): Promise<LeaseId> {
  if (leaseId === NO_LEASE) {
    return (await change(scope, { kind: "lease-grant", ttlMs: DRAWN_LEASE_SECONDS * 1000 }, "lease-grant"))
      .leaseId;
  }
  if (!isLeaseId(leaseId)) throw new GrpcError(ETCD.leaseNotFound);
  return leaseId;
}

/**
 * Stands in line for `name` under a lease; a place that the lease has already is kept, with `value` put if it differs.
 * @throws GrpcError
 */
export async function standInLine(
  scope: RecipeScope,
  name: Uint8Array,
  { lease, value }: { readonly lease: string; readonly value: Uint8Array },
): Promise<{ readonly place: Place; readonly existed: KeyValue | undefined }> {
  const leaseId = await leaseOf(scope, lease as LeaseId);
  const key = Buffer.concat([queueOf(name), Buffer.from(BigInt(leaseId).toString(16))]);
  const done = await change(
    scope,
    {
      kind: "txn",
      compares: [{ key, target: "create-revision", operator: "=", operand: 0 }],
      success: [{ kind: "put", key, value, leaseId }],
      failure: [{ kind: "range", range: { key } }],
    },
    "txn",
  );
  const { revision } = done;
  if (done.succeeded) return { place: { key, leaseId, token: revision, revision }, existed: undefined };
  const [existed] = rangeOf(done, 0).kvs;
  if (existed === undefined) throw new GrpcError(ETCD.timedOut);
  return { place: { key, leaseId, token: existed.createRevision, revision }, existed };
}

/** The range that the transaction's operation `i` answered with. */
export function rangeOf(result: TxnResult, i: number): RangeResult {
  const response = result.responses[i];
  if (response?.kind === "range") return response;
  throw new GrpcError(ANSWERED_OTHERWISE);
}

/**
 * Waits until nobody stands before `place`, and makes sure that the place is still there then: a lease that ended
 * meanwhile holds nothing.
 * @returns the revision at which that was so
 * @throws GrpcError
 */
export async function waitForTurn(scope: RecipeScope, name: Uint8Array, place: Place): Promise<Revision> {
  const range = queueRange(name);
  for (;;) {
    const look = await change(
      scope,
      {
        kind: "txn",
        compares: [{ key: place.key, target: "create-revision", operator: "=", operand: place.token }],
        success: [
          {
            kind: "range",
            range,
            limit: 1,
            keysOnly: true,
            sort: { target: "create-revision", descending: true },
            filter: { maxCreateRevision: place.token - 1 },
          },
        ],
        failure: [],
      },
      "txn",
    );
    if (!look.succeeded) throw new GrpcError(ETCD.leaseNotFound);
    const [before] = rangeOf(look, 0).kvs;
    if (before === undefined) return look.revision;
    await gone(scope, [before.key, place.key], look.revision);
  }
}

/** Resolves when one of the keys is deleted after `revision`. @throws GrpcError */
function gone(scope: RecipeScope, keys: readonly Uint8Array[], revision: Revision): Promise<void> {
  const { context, call, namespace } = scope;
  return new Promise((resolve, reject) => {
    const handles: WatchHandle[] = [];
    const finish = (status?: GrpcStatus): void => {
      for (const handle of handles.splice(0)) handle.cancel();
      if (status === undefined) resolve();
      else reject(new GrpcError(status));
    };
    call.onClose(() => finish(CALLER_GONE));
    for (const key of keys) {
      const request = {
        namespace,
        epoch: 0,
        range: { key },
        startRevision: (revision + 1) as Revision,
        omit: "put",
      } as const;
      const handle = context.coordinator.watch(request, {
        events: () => {
          finish();
          return true;
        },
        progress: () => undefined,
        // Whatever it was, the next look tells more.
        end: (end) => finish(end.kind === "cancelled" ? statusOf(end.failure) : undefined),
      });
      if ("code" in handle) {
        finish(statusOf(handle satisfies Failure));
        return;
      }
      handles.push(handle);
    }
  });
}

const CALLER_GONE: GrpcStatus = ETCD.watchCancelled;

/** Gives a place up, if it is still that one. Repeated by nobody: the lease ends it at the latest. */
export async function leaveLine(scope: RecipeScope, key: Uint8Array, token: Revision): Promise<TxnResult> {
  return await change(
    scope,
    {
      kind: "txn",
      compares: [{ key, target: "create-revision", operator: "=", operand: token }],
      success: [{ kind: "delete", range: { key } }],
      failure: [],
    },
    "txn",
  );
}

/** Gives up the place of a caller that does not wait any more, and so must not be waited for, whatever time it had. */
export async function giveUp(scope: RecipeScope, { key, token }: Place): Promise<void> {
  const patient: RecipeScope = { ...scope, asker: { deadlineMs: () => undefined } };
  await leaveLine(patient, key, token).catch(() => undefined);
}

/** Whoever stands first in line for a name. @throws GrpcError */
export function firstInLine(scope: RecipeScope, name: Uint8Array): Promise<RangeResult> {
  const { context, asker, namespace } = scope;
  const operation = {
    kind: "range",
    range: queueRange(name),
    limit: 1,
    sort: { target: "create-revision" },
  } as const;
  return new Promise((resolve, reject) => {
    query(context, asker, { namespace, operation, consistency: "linearizable" }, (outcome) => {
      if (!outcome.ok) reject(new GrpcError(statusOf(outcome.failure)));
      else if (isOfKind(outcome.result, "range")) resolve(outcome.result);
      else reject(new GrpcError(ANSWERED_OTHERWISE));
    });
  });
}
