import type { Connection, ConnectionEvents } from "./connection.ts";
import type { TransportContext, TransportTls } from "./options.ts";
import type { PeerCertificateNames } from "./types.ts";

/** A connection that somebody dialled; who it is, its first frame says. Either method is called, once, at once. */
export interface Arrival {
  /** With TLS: the names in the certificate that the other side proved to own. */
  readonly certificate: PeerCertificateNames | undefined;
  open(events: ConnectionEvents): Connection;
  /** Ends it without a word. */
  refuse(): void;
}

export interface PeerListener {
  /** host:port that is bound. */
  readonly address: string;
  /** Renewed certificates, for connections to come. Only for a listener that was opened with TLS. */
  updateTls(tls: TransportTls): void;
  /** Stops listening and ends what has not arrived yet; resolves, at the latest, once no accepted connection is left. */
  close(): Promise<void>;
}

/** How connections between members come to be: sockets on a real machine; the simulator brings its own. */
export interface PeerNetwork {
  /**
   * Begins to connect; what is written meanwhile goes out once that is done. A failure closes the connection.
   *
   * @throws TransportError `bad-address`
   */
  dial(address: string, context: TransportContext, events: ConnectionEvents): Connection;
  /** @throws TransportError `insecure-listen` (no TLS on a host that is not loopback), `listen-failed` */
  listen(
    at: { readonly host: string; readonly port: number },
    context: TransportContext,
    arrived: (arrival: Arrival) => void,
  ): Promise<PeerListener>;
}
