import { constants } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { SecureContextOptions } from "node:tls";
import type { TlsOptions } from "../listen.ts";

/** A connection that has not finished its handshake by then is dropped. */
export const TLS_HANDSHAKE_MS_MAX = 5_000;

/**
 * What every listener of a cell serves with: TLS 1.3, and no resumed sessions. A resumed session is trusted without
 * its certificate being looked at again, so a ticket would outlive the authority that vouched for its owner; and
 * connections here are few and long, so there is nothing to save. (In TLS 1.3 the option makes tickets mere names of
 * sessions that the server keeps, and none is kept here.)
 */
export function secureContextOptions(tls: TlsOptions): SecureContextOptions {
  return {
    key: tls.key,
    cert: tls.cert,
    ...(tls.ca === undefined ? {} : { ca: tls.ca }),
    minVersion: "TLSv1.3",
    secureOptions: constants.SSL_OP_NO_TICKET,
  };
}

/**
 * The same, after it was tried: a listener that is given something unusable would refuse everybody.
 * @throws Error that says what is wrong with key or certificate
 */
export function usableContextOptions(tls: TlsOptions): SecureContextOptions {
  const options = secureContextOptions(tls);
  createSecureContext(options);
  return options;
}
