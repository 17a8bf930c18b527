import { ServerCredentials } from "@grpc/grpc-js";
import type { TlsOptions } from "../listen.ts";
import { TLS_HANDSHAKE_MS_MAX, usableContextOptions } from "../tls/secure-context.ts";

/**
 * Credentials of a gRPC listener that can be replaced while it serves: what is open stays open, connections to come
 * meet the new ones. Those that grpc-js makes from a key and certificate stay as they were made.
 */
export class RenewableCredentials extends ServerCredentials {
  /** @throws Error when key or certificate cannot be used */
  constructor(tls: TlsOptions) {
    const mutual = tls.ca !== undefined;
    super(
      { requestCert: mutual, rejectUnauthorized: mutual, handshakeTimeout: TLS_HANDSHAKE_MS_MAX },
      usableContextOptions(tls),
    );
  }

  /** @throws Error when key or certificate cannot be used; the old ones go on */
  renew(tls: TlsOptions): void {
    this.updateSecureContextOptions(usableContextOptions(tls));
  }

  override _equals(other: ServerCredentials): boolean {
    return other === this;
  }
}
