// What the etcd door speaks, beside the health and reflection protocols of gRPC.
export * as etcd from "./gen/etcdserverpb/rpc.ts";
export * as mvcc from "./gen/mvccpb/kv.ts";
export * as etcdLock from "./gen/v3lockpb/v3lock.ts";
export * as etcdElection from "./gen/v3electionpb/v3election.ts";
export * as health from "./gen/grpc/health/v1/health.ts";
export * as reflection from "./gen/grpc/reflection/v1/reflection.ts";
export { FILE_DESCRIPTOR_SET } from "./gen/descriptors.ts";
