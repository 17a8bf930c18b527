import { connect as connectPlain, createServer as createPlainServer, isIP } from "node:net";
import type { Server, Socket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import type { ConnectionOptions, PeerCertificate, Server as TlsServer } from "node:tls";
import { Seldom, TLS_HANDSHAKE_MS_MAX, secureContextOptions } from "@lockstep/gateway";
import { formatAddress, isLoopback, parseAddress } from "./address.ts";
import { TransportError } from "./errors.ts";
import type { Arrival, PeerListener, PeerNetwork } from "./network.ts";
import type { TransportContext, TransportTls } from "./options.ts";
import { SocketConnection } from "./socket-connection.ts";
import type { PeerCertificateNames } from "./types.ts";

const SOCKETS_MAX = 1_024;
/** Whoever keeps failing to shake hands is told of at most this often. */
const FAILURES_TOLD_MS = 10_000;

/** TCP between real machines, with TLS where the transport was given certificates. */
export const SOCKET_NETWORK: PeerNetwork = {
  dial: (address, context, events) => new SocketConnection(connect(address, context), true, context, events),
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

function connect(address: string, { tls, handlers }: TransportContext): Socket {
  const { host, port } = parseAddress(address);
  if (tls === undefined) return connectPlain({ host, port });
  const socket = connectTls({
    ...{ host, port },
    ...secureContextOptions(tls),
    // SNI knows no IP addresses.
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(handlers.recognise === undefined ? {} : recognising(handlers.recognise.bind(handlers, address))),
  });
  // Not even who is calling is told to somebody whose certificate was not looked at yet.
  socket.cork();
  socket.once("secureConnect", () => socket.uncork());
  return socket;
}

/**
 * Members know each other by the identity in their certificates, so the name that was dialled proves nothing more: only
 * the holder of the key of member NAME of this cell gets past the check, wherever its address leads, and addresses
 * between members come out of the replicated configuration, where a member may stand with an IP or behind a proxy.
 */
function recognising(
  recognise: (certificate: PeerCertificateNames) => string | undefined,
): Pick<ConnectionOptions, "checkServerIdentity"> {
  return {
    checkServerIdentity: (_host, certificate) => {
      const reason = recognise(certificateNames(certificate));
      return reason === undefined ? undefined : new Error(`not the member that was dialled: ${reason}`);
    },
  };
}

class SocketListener implements PeerListener {
  address = "";
  readonly #context: TransportContext;
  readonly #arrived: (arrival: Arrival) => void;
  readonly #server: Server;
  #tlsServer: TlsServer | undefined;
  /** Raw sockets whose TLS handshake is not done. */
  readonly #shakingHands = new Set<Socket>();
  readonly #failures: Seldom;

  constructor(context: TransportContext, arrived: (arrival: Arrival) => void) {
    this.#context = context;
    this.#arrived = arrived;
    this.#failures = new Seldom(FAILURES_TOLD_MS, context.now);
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
    this.#tlsServer?.setSecureContext(secureContextOptions(tls));
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
        ...secureContextOptions(tls),
        requestCert: true,
        rejectUnauthorized: true,
        handshakeTimeout: TLS_HANDSHAKE_MS_MAX,
      },
      (socket) => this.#accept(socket, certificateNames(socket.getPeerCertificate())),
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
      this.#failures.say((unsaid) =>
        this.#context.log("warn", "a peer connection failed in the TLS handshake", {
          reason: error.message,
          unsaid,
        }),
      );
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

function certificateNames(certificate: PeerCertificate): PeerCertificateNames {
  // A certificate may have no subject at all, whatever the types say.
  const subject = certificate.subject as PeerCertificate["subject"] | undefined;
  const name: string | string[] | undefined = subject?.CN;
  return {
    commonName: Array.isArray(name) ? name.join(",") : (name ?? ""),
    alternativeNames: certificate.subjectaltname ?? "",
  };
}
