import { connect as connectPlain, createServer as createPlainServer, isIP } from "node:net";
import type { Server, Socket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import type { PeerCertificate, Server as TlsServer, TLSSocket } from "node:tls";
import { formatAddress, isLoopback, parseAddress } from "./address.ts";
import { TransportError } from "./errors.ts";
import type { Arrival, PeerListener, PeerNetwork } from "./network.ts";
import type { TransportContext, TransportTls } from "./options.ts";
import { SocketConnection } from "./socket-connection.ts";
import type { PeerCertificateNames } from "./types.ts";

const SOCKETS_MAX = 1_024;
const TLS_HANDSHAKE_MS_MAX = 5_000;

/** TCP between real machines, with TLS where the transport was given certificates. */
export const SOCKET_NETWORK: PeerNetwork = {
  dial: (address, context, events) =>
    new SocketConnection(connect(address, context.tls), true, context, events),
  listen: async (at, context, arrived) => {
    if (context.tls === undefined && !isLoopback(at.host)) {
      throw new TransportError(
        "insecure-listen",
        `the peer listener may bind ${at.host} only with TLS; without it use a loopback host such as 127.0.0.1`,
      );
    }
    const listener = new SocketListener(context, arrived);
    await listener.listen(at.host, at.port);
    return listener;
  },
};

function connect(address: string, tls: TransportTls | undefined): Socket {
  const { host, port } = parseAddress(address);
  if (tls === undefined) return connectPlain({ host, port });
  // The name in the certificate is checked against the host; SNI knows no IP addresses.
  return connectTls({ host, port, ...tls, ...(isIP(host) === 0 ? { servername: host } : {}) });
}

class SocketListener implements PeerListener {
  address = "";
  readonly #context: TransportContext;
  readonly #arrived: (arrival: Arrival) => void;
  readonly #server: Server;
  #tlsServer: TlsServer | undefined;
  /** Raw sockets whose TLS handshake is not done. */
  readonly #shakingHands = new Set<Socket>();

  constructor(context: TransportContext, arrived: (arrival: Arrival) => void) {
    this.#context = context;
    this.#arrived = arrived;
    const { tls } = context;
    if (tls === undefined) this.#server = createPlainServer((socket) => this.#accept(socket, undefined));
    else this.#server = this.#tlsServer = this.#createTlsServer(tls);
    this.#server.maxConnections = SOCKETS_MAX;
  }

  listen(host: string, port: number): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    this.#server.once("error", (error) => {
      const where = formatAddress(host, port);
      reject(new TransportError("listen-failed", `cannot listen on ${where}: ${error.message}`, error));
    });
    this.#server.listen({ host, port }, () => {
      this.#server.removeAllListeners("error");
      this.#server.on("error", (error) => {
        this.#context.log("warn", "the peer listener reports an error", { reason: error.message });
      });
      const bound = this.#server.address();
      this.address = formatAddress(host, bound !== null && typeof bound === "object" ? bound.port : port);
      resolve(undefined);
    });
    return promise;
  }

  updateTls(tls: TransportTls): void {
    this.#tlsServer?.setSecureContext({ ...tls, minVersion: "TLSv1.3" });
  }

  close(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#server.close(() => resolve(undefined));
    for (const socket of this.#shakingHands) socket.destroy();
    return promise;
  }

  #createTlsServer(tls: TransportTls): TlsServer {
    const server = createTlsServer(
      {
        ...tls,
        requestCert: true,
        rejectUnauthorized: true,
        minVersion: "TLSv1.3",
        handshakeTimeout: TLS_HANDSHAKE_MS_MAX,
      },
      (socket) => this.#accept(socket, certificateNames(socket)),
    );
    server.on("connection", (socket: Socket) => {
      this.#shakingHands.add(socket);
      socket.once("close", () => this.#shakingHands.delete(socket));
    });
    server.on("secureConnection", (socket) => {
      for (const raw of this.#shakingHands) {
        if (raw.remotePort === socket.remotePort && raw.remoteAddress === socket.remoteAddress) {
          this.#shakingHands.delete(raw);
        }
      }
    });
    server.on("tlsClientError", (error) => {
      this.#context.log("warn", "a peer connection failed in the TLS handshake", { reason: error.message });
    });
    return server;
  }

  #accept(socket: Socket, certificate: PeerCertificateNames | undefined): void {
    this.#arrived({
      certificate,
      open: (events) => new SocketConnection(socket, false, this.#context, events),
      refuse: () => {
        socket.on("error", () => undefined);
        socket.destroy();
      },
    });
  }
}

function certificateNames(socket: TLSSocket): PeerCertificateNames {
  // A certificate may have no subject at all, whatever the types say.
  const certificate = socket.getPeerCertificate();
  const subject = certificate.subject as PeerCertificate["subject"] | undefined;
  const name: string | string[] | undefined = subject?.CN;
  return {
    commonName: Array.isArray(name) ? name.join(",") : (name ?? ""),
    alternativeNames: certificate.subjectaltname ?? "",
  };
}
