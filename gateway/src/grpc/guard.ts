import type { TLSSocket } from "node:tls";
import type { DoorLog } from "../log.ts";
import type { CertificateIdentity, IdentityVerdict } from "../tls/identity.ts";
import { socketIdentity } from "../tls/identity.ts";
import { Seldom } from "../tls/seldom.ts";
import { GrpcCode } from "./call.ts";
import type { GrpcStatus } from "./call.ts";

/** A call before it is served. */
export interface GuardedCall {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly identity: CertificateIdentity;
  /** The request, undecoded; undefined for a method that streams (it is asked before its first message). */
  readonly request: Buffer | undefined;
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

/** Asks who calls, and whether they may, before every call of a listener. */
export class Guard {
  private readonly options: GuardOptions;
  private readonly seldom = new Seldom();

  constructor(options: GuardOptions) {
    this.options = options;
  }

  /** Who is at the other end of a connection. */
  read(socket: TLSSocket): IdentityVerdict {
    return socketIdentity(socket, this.options.cellUid);
  }

  /** @returns why a call is refused; undefined: it is not */
  refusal(verdict: IdentityVerdict, path: string, request: Buffer | undefined): GrpcStatus | undefined {
    const { authorize, log } = this.options;
    const reason = verdict.ok
      ? authorize?.({ path, identity: verdict.identity, request })
      : `the caller's certificate is not taken: ${verdict.reason}`;
    if (reason === undefined) return undefined;
    this.seldom.say((unsaid) => log("warn", "refused a call", { path, reason, unsaid }));
    const metadata = { "lockstep-code": "permission-denied", "lockstep-error-code": "permission-denied" };
    return { code: GrpcCode.PERMISSION_DENIED, details: reason, metadata };
  }
}
