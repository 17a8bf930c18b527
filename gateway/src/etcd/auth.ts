import { etcd } from "@lockstep/proto/etcd";
import type { GrpcMethod, GrpcService, UnaryMethod } from "../grpc/call.ts";
import type { EtcdContext } from "./context.ts";
import { finish, headerOf } from "./context.ts";
import { ETCD } from "./errors.ts";

/** Everything that etcd's users, roles and passwords are managed with. */
const METHODS = [
  "AuthEnable",
  "Authenticate",
  "UserAdd",
  "UserGet",
  "UserList",
  "UserDelete",
  "UserChangePassword",
  "UserGrantRole",
  "UserRevokeRole",
  "RoleAdd",
  "RoleGet",
  "RoleList",
  "RoleDelete",
  "RoleGrantPermission",
  "RoleRevokePermission",
];

/** `etcdserverpb.Auth`: a cell knows its callers by their certificates, not by users and passwords. */
export function authService(context: EtcdContext): GrpcService {
  const notEnabled: UnaryMethod = { kind: "unary", serve: (call) => call.fail(ETCD.authNotEnabled) };
  const methods = new Map<string, GrpcMethod>(METHODS.map((name) => [name, notEnabled]));
  methods.set("AuthStatus", {
    kind: "unary",
    serve: (call) => {
      const { revision } = context.coordinator.info();
      const status = { header: headerOf(context, revision), enabled: false, authRevision: 0 };
      call.respond(etcd.AuthStatusResponse.encode(status).finish());
    },
  });
  // What is off may be switched off.
  methods.set("AuthDisable", {
    kind: "unary",
    serve: (call) => {
      call.respond(finish(context, context.coordinator.info().revision));
    },
  });
  return { name: "etcdserverpb.Auth", methods };
}
