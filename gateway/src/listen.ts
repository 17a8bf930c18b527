/** PEM texts. With `ca` (one or several certificates) a client must present a certificate that one of them signed. */
export interface TlsOptions {
  readonly key: string | Buffer;
  readonly cert: string | Buffer;
  readonly ca?: string | Buffer;
}

/** Where a listener is bound. */
export interface BoundAddress {
  readonly host: string;
  readonly port: number;
}

const LOOPBACK_V4 = /^127(?:\.\d{1,3}){3}$/;

/** Only literal addresses and `localhost` count: a name that resolves to loopback today may not tomorrow. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || LOOPBACK_V4.test(host);
}

/**
 * Without TLS only loopback may be bound: an unencrypted, unauthenticated listener would hand every lock in the
 * cell to whoever reaches the port.
 * @throws TypeError
 */
export function assertBindAllowed(host: string, tls: TlsOptions | undefined): void {
  if (tls === undefined && !isLoopback(host)) {
    throw new TypeError(
      `refusing to listen on ${host} without TLS: give a key and certificate, or bind 127.0.0.1`,
    );
  }
}

/** `host:port`, with brackets around an IPv6 address. */
export function formatAddress(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
