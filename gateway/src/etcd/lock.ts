import { etcdLock } from "@lockstep/proto/etcd";
import type { GrpcService, ServerCall } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import { serviceOf } from "../grpc/service-of.ts";
import type { EtcdContext } from "./context.ts";
import { headerOf } from "./context.ts";
import { ETCD } from "./errors.ts";
import type { RecipeScope } from "./recipes.ts";
import { change, giveUp, scopeOf, standInLine, waitForTurn } from "./recipes.ts";

const NO_VALUE = new Uint8Array(0);

/** `v3lockpb.Lock`: etcd's locks, kept by the server for clients without recipes. */
export function lockService(context: EtcdContext): GrpcService {
  return serviceOf(etcdLock.LockService, {
    lock: (request: etcdLock.LockRequest, call: ServerCall) => lock(scopeOf(context, call), request),
    unlock: (request: etcdLock.UnlockRequest, call: ServerCall) => unlock(scopeOf(context, call), request),
  });
}

async function lock(
  scope: RecipeScope,
  { name, lease }: etcdLock.LockRequest,
): Promise<etcdLock.LockResponse> {
  if (name.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  const { place } = await standInLine(scope, name, { lease, value: NO_VALUE });
  try {
    const revision = await waitForTurn(scope, name, place);
    return { header: headerOf(scope.context, revision), key: place.key };
  } catch (error) {
    await giveUp(scope, place);
    throw error;
  }
}

async function unlock(scope: RecipeScope, { key }: etcdLock.UnlockRequest): Promise<etcdLock.UnlockResponse> {
  if (key.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  const { revision } = await change(scope, { kind: "delete", range: { key } }, "delete");
  return { header: headerOf(scope.context, revision) };
}
