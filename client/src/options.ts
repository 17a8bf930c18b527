import type { TlsSource } from "./channel/tls.ts";
import type { Transport } from "./channel/transport.ts";
import type { Runtime } from "./runtime.ts";

/** Where and how a client connects. */
export interface ConnectOptions {
  /** `host:port` of members' client listeners; any of them will do, more are learned. At least one. */
  readonly endpoints: readonly string[];
  /** Name of the key space; default: "default". */
  readonly namespace?: string;
  /**
   * Mutual TLS, with a certificate that names the cell (docs/security.md); absent: plain text, which a member serves on
   * loopback only. A function is asked before every connection: give `tlsFromFiles({ ca, cert, key })` when
   * certificates are renewed while the program runs.
   */
  readonly tls?: TlsSource;
  /**
   * The connection and the renewals live in a thread of their own, so that a busy main loop loses no session (default
   * true; one thread for all clients of the process). `false` keeps them on the main thread, for places without
   * `node:worker_threads` and for short programs: there, a callback that takes long delays renewals, and one that takes
   * longer than the TTL loses the session. So does a `tls` function other than that of `tlsFromFiles`.
   */
  readonly worker?: boolean;
  /** Deadline of calls that do not bring their own. Default 10,000 ms. */
  readonly deadlineMs?: number;
  /** How long {@link connect} tries before it gives up. Default 10,000 ms. */
  readonly connectTimeoutMs?: number;
  /**
   * `client` (default): every mutation carries a registered id, so that a retry returns the first outcome and runs
   * once. `none`: no ids; a mutation whose answer is lost ends with outcome `unknown`.
   */
  readonly identity?: "client" | "none";
  /** Requests that may wait for answers at once; more are refused with `overloaded`. Default and most: 65,536. */
  readonly requestsMax?: number;
  /** Bytes of those. Default 64 MiB. */
  readonly pendingBytesMax?: number;
  /** Routing epoch of the namespace, if known; default: any. */
  readonly epoch?: number;
  /** For tests and simulation. */
  readonly runtime?: Runtime;
  /** For tests and simulation. */
  readonly transport?: Transport;
}
