import { readFileSync } from "node:fs";

/** PEM files' content. `cert` and `key` go together (mutual TLS). */
export interface TlsOptions {
  /** One or several certificates. Default: the authorities that Node trusts. */
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
  /** Verify the member's certificate against this name instead of the dialled host. */
  readonly serverName?: string;
}

/**
 * TLS options, or a function that is asked for them before every connection: a client that lives longer than its
 * certificates gives a function. It must not block for long; when it throws, the attempt to connect fails with what it
 * threw, and the next one asks again.
 */
export type TlsSource = TlsOptions | (() => TlsOptions);

/** Paths of PEM files. */
export interface TlsPaths {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly serverName?: string;
}

/** A function that says where it reads from: whoever runs elsewhere can make its own. */
export type TlsFileSource = (() => TlsOptions) & { readonly paths: TlsPaths };

/**
 * TLS from files that are read anew before every connection, as those of a mounted Kubernetes Secret: renewed
 * certificates are used from the next connection on, without a restart.
 * @throws Error (also from what it returns) when a file cannot be read
 */
export function tlsFromFiles(paths: TlsPaths): TlsFileSource {
  const { ca, cert, key, serverName } = paths;
  const read = (): TlsOptions => ({
    ...(ca === undefined ? {} : { ca: readFileSync(ca) }),
    ...(cert === undefined ? {} : { cert: readFileSync(cert) }),
    ...(key === undefined ? {} : { key: readFileSync(key) }),
    ...(serverName === undefined ? {} : { serverName }),
  });
  // A wrong path is a caller's mistake, to be told at once and not by every attempt to connect.
  read();
  return Object.assign(read, { paths });
}
