// The contract that every door serves and every cell (or router) implements.
export * from "./coordinator/index.ts";
// What every door shares.
export type { DoorLog } from "./log.ts";
export type { BoundAddress, TlsOptions } from "./listen.ts";
export { DEFAULT_NAMESPACE } from "./validation.ts";
// The native gRPC door.
export type { NativeDoor, NativeDoorOptions, NativeDoorStats } from "./native/door.ts";
export { createNativeDoor } from "./native/door.ts";
export type { GrpcServerOptions, GrpcService, RunningGrpcServer } from "./native/grpc-server.ts";
export { startGrpcServer } from "./native/grpc-server.ts";
export type { NativeDoorLimits } from "./native/limits.ts";
export { NATIVE_DOOR_LIMITS } from "./native/limits.ts";
