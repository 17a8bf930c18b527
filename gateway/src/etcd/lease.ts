import type { LeaseId, LeaseListResult, LeaseTimeToLiveResult } from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import { etcd } from "@lockstep/proto/etcd";
import type { GrpcService, UnaryCall } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import { isLeaseId } from "../validation.ts";
import { mutate, read } from "./ask.ts";
import type { EtcdContext, Serve } from "./context.ts";
import { decoded, finish, unary } from "./context.ts";
import { ETCD } from "./errors.ts";
import { KeepAlives } from "./keep-alive.ts";

/** etcd's bound of a TTL, in seconds. */
const TTL_SECONDS_MAX = 9_000_000_000;
const LEASES_PAGE = 1_000;
const consistency = "linearizable";

/** `etcdserverpb.Lease`. */
export function leaseService(context: EtcdContext): GrpcService {
  const leases = new Leases(context);
  const keepAlives = new KeepAlives(context);
  const serve = (method: Serve): ReturnType<typeof unary> => unary(context, method);
  const list: Serve = (call, _request, namespace) => leases.list(call, namespace);
  return {
    name: "etcdserverpb.Lease",
    methods: new Map<
      string,
      GrpcService["methods"] extends ReadonlyMap<string, infer Method> ? Method : never
    >([
      ["LeaseGrant", serve((call, request, namespace) => leases.grant(call, request, namespace))],
      ["LeaseRevoke", serve((call, request, namespace) => leases.revoke(call, request, namespace))],
      ["LeaseKeepAlive", { kind: "stream", serve: (call) => keepAlives.open(call) }],
      ["LeaseTimeToLive", serve((call, request, namespace) => leases.timeToLive(call, request, namespace))],
      ["LeaseLeases", serve(list)],
    ]),
  };
}

/** What etcd says in whole seconds. A lease that lives is never told to be at 0, which means that it ended. */
export function secondsOf(ms: number): number {
  return ms < 0 ? -1 : Math.max(ms > 0 ? 1 : 0, Math.floor(ms / 1000));
}

class Leases {
  private readonly context: EtcdContext;

  constructor(context: EtcdContext) {
    this.context = context;
  }

  grant(call: UnaryCall, request: Buffer, namespace: string): void {
    const { TTL, ID } = decoded(etcd.LeaseGrantRequest, request);
    if (TTL > TTL_SECONDS_MAX) throw new GrpcError(ETCD.leaseTtlTooLarge);
    // Too short a TTL is raised to the cell's minimum; none at all is the shortest of them.
    const ttlMs = Math.max(1, TTL * 1000);
    const operation = { kind: "lease-grant", ttlMs } as const;
    const chosen = ID === NO_LEASE ? operation : { ...operation, leaseId: ID as LeaseId };
    mutate(this.context, call, { namespace, operation: chosen }, (result) => {
      if (result.kind !== "lease-grant") return;
      const { writer } = this.context;
      writer.uint(0x18, Math.ceil(result.ttlMs / 1000));
      writer.int64(0x10, result.leaseId);
      call.respond(finish(this.context, result.revision));
    });
  }

  revoke(call: UnaryCall, request: Buffer, namespace: string): void {
    const leaseId = decoded(etcd.LeaseRevokeRequest, request).ID;
    if (!isLeaseId(leaseId)) throw new GrpcError(ETCD.leaseNotFound);
    const operation = { kind: "lease-revoke", leaseId: leaseId as LeaseId } as const;
    mutate(this.context, call, { namespace, operation }, (result) => {
      if (result.kind === "lease-revoke") call.respond(finish(this.context, result.revision));
    });
  }

  timeToLive(call: UnaryCall, request: Buffer, namespace: string): void {
    const { ID, keys } = decoded(etcd.LeaseTimeToLiveRequest, request);
    if (!isLeaseId(ID)) {
      this.answerTimeToLive(call, { ...NO_SUCH_LEASE, leaseId: ID as LeaseId, revision: this.revision() });
      return;
    }
    const operation = { kind: "lease-time-to-live", leaseId: ID as LeaseId, keys } as const;
    read(this.context, call, { namespace, operation, consistency }, (result) => {
      if (result.kind === "lease-time-to-live") this.answerTimeToLive(call, result);
    });
  }

  list(call: UnaryCall, namespace: string, found: LeaseId[] = []): void {
    const after = found.at(-1);
    const operation = { kind: "lease-list", limit: LEASES_PAGE } as const;
    const page = after === undefined ? operation : { ...operation, after };
    read(this.context, call, { namespace, operation: page, consistency }, (result) => {
      if (result.kind !== "lease-list") return;
      for (const { leaseId } of result.leases) found.push(leaseId);
      if (result.more && !call.cancelled) this.list(call, namespace, found);
      else this.answerList(call, result, found);
    });
  }

  private revision(): LeaseTimeToLiveResult["revision"] {
    return this.context.coordinator.info().revision;
  }

  private answerTimeToLive(call: UnaryCall, result: LeaseTimeToLiveResult): void {
    const { writer } = this.context;
    for (let i = result.keys.length - 1; i >= 0; i -= 1) writer.requiredBytes(0x2a, result.keys[i] ?? EMPTY);
    writer.uint(0x20, Math.ceil(result.ttlMs / 1000));
    writer.signed(0x18, secondsOf(result.remainingMs));
    writer.int64(0x10, result.leaseId);
    call.respond(finish(this.context, result.revision));
  }

  private answerList(call: UnaryCall, { revision }: LeaseListResult, found: readonly LeaseId[]): void {
    const { writer } = this.context;
    for (let i = found.length - 1; i >= 0; i -= 1) {
      const before = writer.length;
      writer.int64(0x08, found[i] ?? NO_LEASE);
      writer.close(0x12, before);
    }
    call.respond(finish(this.context, revision));
  }
}

const EMPTY = new Uint8Array(0);
const NO_SUCH_LEASE = {
  kind: "lease-time-to-live",
  remainingMs: -1,
  ttlMs: 0,
  owner: "",
  keys: [],
} as const;
