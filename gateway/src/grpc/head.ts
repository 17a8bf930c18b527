import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import { GrpcCode } from "./call.ts";
import type { GrpcMethod, GrpcStatus } from "./call.ts";
import { trailersOf } from "./status.ts";
import { parseTimeout } from "./timeout.ts";
import type { CallHead } from "./transport-call.ts";

/** What a listener serves. */
export interface Methods {
  /** By path: `/package.Service/Method`. */
  readonly byPath: ReadonlyMap<string, GrpcMethod>;
  readonly services: ReadonlySet<string>;
}

/** What a stream's headers ask for. */
export type HeadVerdict =
  | { readonly kind: "call"; readonly method: GrpcMethod; readonly head: CallHead }
  /** Answer with these, and nothing else. */
  | { readonly kind: "refused"; readonly headers: OutgoingHttpHeaders };

const CONTENT_TYPE = "application/grpc";

/** Reads the headers that open a stream. */
export function readHead(headers: IncomingHttpHeaders, methods: Methods): HeadVerdict {
  if (headers[":method"] !== "POST") {
    const details = `a call is a POST, not a ${String(headers[":method"])}`;
    return refused({ code: GrpcCode.INTERNAL, details }, { ":status": 405, allow: "POST" });
  }
  const contentType = headers["content-type"];
  if (!isGrpc(contentType)) {
    const details = `content-type is ${JSON.stringify(contentType ?? "")}, not ${CONTENT_TYPE}`;
    return refused({ code: GrpcCode.INVALID_ARGUMENT, details }, { ":status": 415 });
  }
  const path = headers[":path"] ?? "";
  const method = methods.byPath.get(path);
  if (method === undefined) return refused(unknownMethod(path, methods.services));
  const encoding = textOf(headers["grpc-encoding"]);
  if (encoding !== undefined && encoding !== "identity" && encoding !== "gzip") {
    const details = `messages compressed with ${JSON.stringify(encoding)} cannot be read`;
    return refused({ code: GrpcCode.UNIMPLEMENTED, details }, { "grpc-accept-encoding": "identity,gzip" });
  }
  const timeout = textOf(headers["grpc-timeout"]);
  const timeoutMs = timeout === undefined ? undefined : parseTimeout(timeout);
  if (timeout !== undefined && timeoutMs === undefined) {
    return refused({
      code: GrpcCode.INTERNAL,
      details: `malformed grpc-timeout: ${JSON.stringify(timeout)}`,
    });
  }
  return { kind: "call", method, head: { path, headers, timeoutMs, encoding } };
}

function isGrpc(contentType: string | undefined): boolean {
  if (contentType === CONTENT_TYPE) return true;
  if (contentType?.startsWith(CONTENT_TYPE) !== true) return false;
  const next = contentType[CONTENT_TYPE.length];
  return next === "+" || next === ";";
}

function textOf(value: string | string[] | undefined): string | undefined {
  return typeof value === "object" ? value.join(", ") : value;
}

function unknownMethod(path: string, services: ReadonlySet<string>): GrpcStatus {
  const slash = path.lastIndexOf("/");
  const code = GrpcCode.UNIMPLEMENTED;
  if (path[0] !== "/" || slash <= 0)
    return { code, details: `malformed method name: ${JSON.stringify(path)}` };
  const [service, method] = [path.slice(1, slash), path.slice(slash + 1)];
  const details = services.has(service)
    ? `unknown method ${method} for service ${service}`
    : `unknown service ${service}`;
  return { code, details };
}

function refused(status: GrpcStatus, more: OutgoingHttpHeaders = {}): HeadVerdict {
  return { kind: "refused", headers: { ...trailersOf(status), ...more } };
}
