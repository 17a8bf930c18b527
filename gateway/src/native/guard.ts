import type { ServiceDefinition, UntypedServiceImplementation } from "@grpc/grpc-js";
import { Metadata, status } from "@grpc/grpc-js";
import type { DoorLog } from "../log.ts";
import type { CertificateIdentity, IdentityVerdict } from "../tls/identity.ts";
import { readIdentity } from "../tls/identity.ts";
import { Seldom } from "../tls/seldom.ts";

/** A call before it is served. */
export interface GuardedCall {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly identity: CertificateIdentity;
  /** The decoded request; undefined when the caller streams requests. */
  readonly request: unknown;
}

/** Whether somebody may make a call. @returns why not, for the caller; undefined: go on. */
export type Authorize = (call: GuardedCall) => string | undefined;

export interface GuardOptions {
  /** The cell that callers' certificates must name. */
  readonly cellUid: string;
  /** Default: whoever is of this cell may call everything. */
  readonly authorize?: Authorize | undefined;
  readonly log: DoorLog;
}

/** What grpc-js hands to a handler, as far as it matters here. */
interface Call {
  readonly request?: unknown;
  getAuthContext(): { readonly sslPeerCertificate?: { readonly subjectaltname?: string | undefined } };
  on(event: "error", listener: () => void): unknown;
  emit(event: "error", error: object): unknown;
}
type Handler = (call: Call, callback?: (error: object) => void) => void;

const identities = new WeakMap<object, CertificateIdentity>();

/** Who makes a call, as its certificate proves; undefined without TLS, or where the listener asks for no identity. */
export function callIdentity(call: object): CertificateIdentity | undefined {
  return identities.get(call);
}

/** Puts the question who calls, and whether they may, before every method of a service. */
export function guardService(
  definition: ServiceDefinition,
  implementation: UntypedServiceImplementation,
  options: GuardOptions,
): UntypedServiceImplementation {
  const seldom = new Seldom();
  const guarded: UntypedServiceImplementation = {};
  for (const [name, { path, responseStream }] of Object.entries(definition)) {
    const handler = implementation[name] as unknown as Handler | undefined;
    if (handler === undefined) continue;
    const guardedHandler: Handler = (call, callback) => {
      const reason = judge(call, path, options);
      if (reason === undefined) {
        handler.call(implementation, call, callback);
        return;
      }
      seldom.say((unsaid) => options.log("warn", "refused a call", { path, reason, unsaid }));
      const error = refusal(reason);
      if (!responseStream && callback !== undefined) {
        callback(error);
        return;
      }
      call.on("error", () => undefined);
      call.emit("error", error);
    };
    guarded[name] = guardedHandler;
  }
  return guarded;
}

/** @returns why the call is refused. */
function judge(call: Call, path: string, { cellUid, authorize }: GuardOptions): string | undefined {
  const { sslPeerCertificate } = call.getAuthContext();
  const verdict: IdentityVerdict =
    sslPeerCertificate === undefined
      ? { ok: false, reason: "there is none" }
      : readIdentity(sslPeerCertificate.subjectaltname, cellUid);
  if (!verdict.ok) return `the caller's certificate is not taken: ${verdict.reason}`;
  identities.set(call, verdict.identity);
  return authorize?.({ path, identity: verdict.identity, request: call.request });
}

function refusal(reason: string): { code: status; details: string; metadata: Metadata } {
  const metadata = new Metadata();
  metadata.set("lockstep-code", "permission-denied");
  metadata.set("lockstep-error-code", "permission-denied");
  return { code: status.PERMISSION_DENIED, details: reason, metadata };
}
