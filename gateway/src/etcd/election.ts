import { etcdElection } from "@lockstep/proto/etcd";
import type { Failure, KeyValue, LeaseId, Revision, WatchHandle } from "../coordinator/index.ts";
import type { GrpcService, ServerCall } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import type { AnswerStream } from "../grpc/service-of.ts";
import { serviceOf } from "../grpc/service-of.ts";
import type { EtcdContext } from "./context.ts";
import { headerOf } from "./context.ts";
import { ETCD, statusOf } from "./errors.ts";
import type { RecipeScope } from "./recipes.ts";
import {
  change,
  firstInLine,
  giveUp,
  leaveLine,
  queueRange,
  scopeOf,
  standInLine,
  waitForTurn,
} from "./recipes.ts";

/** `v3electionpb.Election`: etcd's elections, kept by the server for clients without recipes. */
export function electionService(context: EtcdContext): GrpcService {
  return serviceOf(etcdElection.ElectionService, {
    campaign: (request: etcdElection.CampaignRequest, call: ServerCall) =>
      campaign(scopeOf(context, call), request),
    proclaim: (request: etcdElection.ProclaimRequest, call: ServerCall) =>
      proclaim(scopeOf(context, call), request),
    leader: (request: etcdElection.LeaderRequest, call: ServerCall) =>
      leader(scopeOf(context, call), request),
    observe: (request: etcdElection.LeaderRequest, stream: Observing) =>
      observe(scopeOf(context, stream), request, stream),
    resign: (request: etcdElection.ResignRequest, call: ServerCall) =>
      resign(scopeOf(context, call), request),
  });
}

type Observing = AnswerStream<etcdElection.LeaderResponse>;

async function campaign(
  scope: RecipeScope,
  { name, lease, value }: etcdElection.CampaignRequest,
): Promise<etcdElection.CampaignResponse> {
  if (name.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  const { place, existed } = await standInLine(scope, name, { lease, value });
  const { key, token, leaseId } = place;
  try {
    if (existed !== undefined && !value.equals(existed.value)) {
      await putValue(scope, { key, token, leaseId, value });
    }
    const revision = await waitForTurn(scope, name, place);
    return { header: headerOf(scope.context, revision), leader: { name, key, rev: token, lease: leaseId } };
  } catch (error) {
    await giveUp(scope, place);
    throw error;
  }
}

interface Claim {
  readonly key: Uint8Array;
  readonly token: Revision;
  readonly leaseId: LeaseId;
  readonly value: Uint8Array;
}

/** @returns the revision of the put @throws GrpcError when the claim does not stand any more */
async function putValue(scope: RecipeScope, { key, token, leaseId, value }: Claim): Promise<Revision> {
  const done = await change(
    scope,
    {
      kind: "txn",
      compares: [{ key, target: "create-revision", operator: "=", operand: token }],
      success: [{ kind: "put", key, value, leaseId }],
      failure: [],
    },
    "txn",
  );
  if (!done.succeeded) throw new GrpcError(ETCD.electionNotLeader);
  return done.revision;
}

async function proclaim(
  scope: RecipeScope,
  { leader: claim, value }: etcdElection.ProclaimRequest,
): Promise<etcdElection.ProclaimResponse> {
  if (claim === undefined) throw new GrpcError(ETCD.electionWithoutLeader);
  if (claim.key.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  const { key, rev, lease } = claim;
  const revision = await putValue(scope, { key, token: rev as Revision, leaseId: lease as LeaseId, value });
  return { header: headerOf(scope.context, revision) };
}

async function resign(
  scope: RecipeScope,
  { leader: claim }: etcdElection.ResignRequest,
): Promise<etcdElection.ResignResponse> {
  if (claim === undefined) throw new GrpcError(ETCD.electionWithoutLeader);
  if (claim.key.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  const { revision } = await leaveLine(scope, claim.key, claim.rev as Revision);
  return { header: headerOf(scope.context, revision) };
}

async function leader(
  scope: RecipeScope,
  { name }: etcdElection.LeaderRequest,
): Promise<etcdElection.LeaderResponse> {
  if (name.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  const { kvs, revision } = await firstInLine(scope, name);
  const [kv] = kvs;
  if (kv === undefined) throw new GrpcError(ETCD.electionNoLeader);
  return leaderMessage(scope.context, kv, revision);
}

function leaderMessage(context: EtcdContext, kv: KeyValue, revision: Revision): etcdElection.LeaderResponse {
  const { key, value, createRevision, modRevision, version, leaseId } = kv;
  return {
    header: headerOf(context, revision),
    kv: {
      key: Buffer.from(key),
      value: Buffer.from(value),
      createRevision,
      modRevision,
      version,
      lease: leaseId,
    },
  };
}

/** Tells the leader, and every later one and what it proclaims, until the client goes away. */
async function observe(
  scope: RecipeScope,
  { name }: etcdElection.LeaderRequest,
  stream: Observing,
): Promise<void> {
  if (name.length === 0) throw new GrpcError(ETCD.keyNotProvided);
  const queue = new QueueWatch(scope, name);
  stream.onClose(() => queue.close());
  try {
    let told: Revision | undefined;
    while (!stream.cancelled && !queue.isClosed) {
      const { kvs, revision } = await firstInLine(scope, name);
      const [kv] = kvs;
      if (kv !== undefined && kv.modRevision !== told) {
        told = kv.modRevision;
        await stream.write(leaderMessage(scope.context, kv, revision));
      }
      await queue.changed();
    }
  } finally {
    queue.close();
  }
}

/** Says when something in the queue for a name has changed; what happened in between does not matter. */
class QueueWatch {
  isClosed = false;
  private readonly scope: RecipeScope;
  private readonly name: Uint8Array;
  private handle: WatchHandle | undefined;
  private isChanged = false;
  private failure: Failure | undefined;
  private wake: () => void = () => undefined;

  /** @throws GrpcError */
  constructor(scope: RecipeScope, name: Uint8Array) {
    this.scope = scope;
    this.name = name;
    this.watch();
    if (this.failure !== undefined) throw new GrpcError(statusOf(this.failure));
  }

  close(): void {
    this.isClosed = true;
    this.handle?.cancel();
    this.wake();
  }

  /** Resolves at the first change since it last did, and when closed. @throws GrpcError */
  async changed(): Promise<void> {
    if (!this.isChanged && !this.isClosed && this.failure === undefined) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
    this.isChanged = false;
    if (this.failure !== undefined) throw new GrpcError(statusOf(this.failure));
  }

  private watch(): void {
    const { context, namespace } = this.scope;
    const request = { namespace, epoch: 0, range: queueRange(this.name) };
    const handle = context.coordinator.watch(request, {
      events: () => {
        this.touch();
        return true;
      },
      progress: () => undefined,
      end: (end) => {
        if (end.kind === "cancelled") {
          this.failure = end.failure;
          this.wake();
          return;
        }
        // From within the hub's own delivery, so not at once.
        queueMicrotask(() => {
          if (!this.isClosed) this.watch();
          this.touch();
        });
      },
    });
    if ("code" in handle) this.failure = handle;
    else this.handle = handle;
  }

  private touch(): void {
    this.isChanged = true;
    this.wake();
  }
}
