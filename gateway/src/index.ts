// The contract that every door serves and every cell (or router) implements.
export * from "./coordinator/index.ts";
// What every door shares.
export type { DoorLog } from "./log.ts";
export type { BoundAddress, TlsOptions } from "./listen.ts";
// Who calls, as certificates prove it.
export type { CertificateIdentity, IdentityKind, IdentityVerdict } from "./tls/identity.ts";
export { identityUri, isCellUid, readIdentity } from "./tls/identity.ts";
export { TLS_HANDSHAKE_MS_MAX, secureContextOptions, usableContextOptions } from "./tls/secure-context.ts";
export { Seldom } from "./tls/seldom.ts";
export type { Authorize, GuardedCall } from "./grpc/guard.ts";
export { requestIdentity } from "./http/server.ts";
export { DEFAULT_NAMESPACE } from "./validation.ts";
// What every gRPC door stands on.
export type {
  GrpcCodeName,
  GrpcMethod,
  GrpcService,
  GrpcStatus,
  Message,
  ServerCall,
  StreamCall,
  StreamMethod,
  UnaryCall,
  UnaryMethod,
} from "./grpc/call.ts";
export { GrpcCode } from "./grpc/call.ts";
export { GrpcError } from "./grpc/error.ts";
export type { GrpcServerOptions, RunningGrpcServer } from "./grpc/server.ts";
export { startGrpcServer } from "./grpc/server.ts";
export type { AnswerStream, Implementation, ServiceDefinition } from "./grpc/service-of.ts";
export { serviceOf } from "./grpc/service-of.ts";
// The native gRPC door.
export type { NativeDoor, NativeDoorOptions, NativeDoorStats } from "./native/door.ts";
export { createNativeDoor } from "./native/door.ts";
export type { NativeDoorLimits } from "./native/limits.ts";
export { NATIVE_DOOR_LIMITS } from "./native/limits.ts";
// The etcd v3 door.
export type { EtcdDoor, EtcdDoorOptions, EtcdDoorStats } from "./etcd/door.ts";
export { createEtcdDoor } from "./etcd/door.ts";
export type { EtcdDoorLimits } from "./etcd/limits.ts";
export { ETCD_DOOR_LIMITS } from "./etcd/limits.ts";
export type { ControlErrorCode, ControlMember, ControlStatus, EtcdControl } from "./etcd/control.ts";
export { ControlError } from "./etcd/control.ts";
export { healthService } from "./etcd/health.ts";
export { reflectionServices } from "./etcd/reflection.ts";
// The HTTP/JSON door.
export type { HttpDoorOptions, RunningHttpDoor } from "./http/server.ts";
export { startHttpDoor } from "./http/server.ts";
export type { HttpDoorLimits } from "./http/limits.ts";
export { HTTP_DOOR_LIMITS } from "./http/limits.ts";
// What a refusal looks like at each door.
export type { HttpProblemCode, StatusEntry } from "./status-map.ts";
export { HTTP_STATUS_MAP, STATUS_MAP, grpcStatus } from "./status-map.ts";
