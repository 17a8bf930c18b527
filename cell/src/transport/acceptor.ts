import { createServer as createPlainServer } from "node:net";
import type { Server, Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import type { PeerCertificate, Server as TlsServer, TLSSocket } from "node:tls";
import { Connection } from "./connection.ts";
import type { CloseCause, ConnectionEvents } from "./connection.ts";
import { ProtocolError, TransportError } from "./errors.ts";
import { FRAME } from "./frame.ts";
import { PROTOCOL_VERSION, decodeHello, encodeWelcome } from "./handshake.ts";
import type { Hello } from "./handshake.ts";
import type { TransportContext, TransportTls } from "./options.ts";
import { formatAddress, isLoopback } from "./address.ts";
import type { PeerCertificateNames } from "./types.ts";

/** A connection that a peer dialled and that was let in. */
export interface Guest {
  readonly hello: Hello;
  readonly connection: Connection;
  readonly certificate: PeerCertificateNames | undefined;
}

export interface AcceptorEvents {
  /** @returns who handles the guest's frames. */
  entered(guest: Guest): Omit<ConnectionEvents, "closed"> & Partial<Pick<ConnectionEvents, "closed">>;
  left(guest: Guest, cause: CloseCause): void;
}

const SOCKETS_MAX = 1_024;

/** The peer listener: shakes hands and refuses whoever is not admitted before any state is sent (R28). */
export class Acceptor {
  readonly guests: Set<Guest> = new Set();
  readonly #context: TransportContext;
  readonly #connections: Set<Connection>;
  readonly #events: AcceptorEvents;
  readonly #server: Server;
  #tlsServer: TlsServer | undefined;
  /** Raw sockets whose TLS handshake is not done. */
  readonly #shakingHands = new Set<Socket>();
  #strangers = 0;

  constructor(context: TransportContext, connections: Set<Connection>, events: AcceptorEvents) {
    this.#context = context;
    this.#connections = connections;
    this.#events = events;
    const { tls, log } = context;
    if (tls === undefined) {
      this.#server = createPlainServer((socket) => this.#accept(socket, undefined));
    } else {
      const server = createTlsServer(
        {
          ...tls,
          requestCert: true,
          rejectUnauthorized: true,
          minVersion: "TLSv1.3",
          handshakeTimeout: 5_000,
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
        log("warn", "a peer connection failed in the TLS handshake", { reason: error.message });
      });
      this.#server = server;
      this.#tlsServer = server;
    }
    this.#server.maxConnections = SOCKETS_MAX;
  }

  /** @returns the bound address. Throws TransportError. */
  listen(host: string, port: number): Promise<string> {
    if (this.#context.tls === undefined && !isLoopback(host)) {
      throw new TransportError(
        "insecure-listen",
        `the peer listener may bind ${host} only with TLS; without it use a loopback host such as 127.0.0.1`,
      );
    }
    const { promise, resolve, reject } = Promise.withResolvers<string>();
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
      resolve(formatAddress(host, bound !== null && typeof bound === "object" ? bound.port : port));
    });
    return promise;
  }

  /** For connections to come; those that are open stay as they are. */
  updateTls(tls: TransportTls): void {
    this.#tlsServer?.setSecureContext({ ...tls, minVersion: "TLSv1.3" });
  }

  /** Stops listening and ends whatever is still in a TLS handshake; resolves when no accepted socket is left. */
  close(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#server.close(() => resolve(undefined));
    for (const socket of this.#shakingHands) socket.destroy();
    return promise;
  }

  #accept(socket: Socket, certificate: PeerCertificateNames | undefined): void {
    if (this.#strangers >= this.#context.bounds.handshakesMax) {
      socket.on("error", () => undefined);
      socket.destroy();
      return;
    }
    this.#strangers += 1;
    let stranger = true;
    const known = (): void => {
      if (stranger) this.#strangers -= 1;
      stranger = false;
    };
    const connection: Connection = new Connection(socket, false, this.#context, {
      frame: (kind, body) => {
        if (kind !== FRAME.hello) throw new ProtocolError(`frame ${kind} before the handshake`);
        known();
        this.#hello(connection, body, certificate);
      },
      chunkEnd: () => undefined,
      closed: () => {
        known();
        this.#connections.delete(connection);
      },
    });
    this.#connections.add(connection);
  }

  #hello(connection: Connection, body: Buffer, certificate: PeerCertificateNames | undefined): void {
    const hello = decodeHello(body);
    const reason =
      hello.purpose === undefined ? `protocol-version-${PROTOCOL_VERSION}` : this.#judge(hello, certificate);
    if (hello.purpose === undefined || reason !== undefined) {
      this.#context.log("warn", "refusing a peer", {
        reason: reason ?? "",
        ...(hello.purpose === undefined ? { version: hello.version } : describe(hello)),
      });
      connection.write(encodeWelcome({ ok: false, reason: reason ?? "" }));
      connection.close(`refused: ${reason ?? ""}`);
      return;
    }
    // As if the network had lost it: not even an answer.
    if (this.#context.intercept?.(hello.from, hello.purpose) === "drop") {
      connection.cut("intercepted");
      return;
    }
    const guest: Guest = { hello, connection, certificate };
    this.guests.add(guest);
    connection.establish(hello.from, hello.purpose, {
      frame: (kind, frame) => handler.frame(kind, frame),
      chunkEnd: () => handler.chunkEnd(),
      closed: (cause) => {
        this.#connections.delete(connection);
        this.guests.delete(guest);
        handler.closed?.(cause);
        this.#events.left(guest, cause);
      },
    });
    connection.write(encodeWelcome({ ok: true, incarnation: this.#context.identity.incarnation }));
    const handler = this.#events.entered(guest);
  }

  /** @returns why the peer is refused. */
  #judge(hello: Hello, certificate: PeerCertificateNames | undefined): string | undefined {
    const { identity } = this.#context;
    if (hello.cellId !== identity.cellId) return "wrong-cell";
    if (hello.to !== identity.memberId || hello.from === identity.memberId) return "wrong-member";
    return admission(hello, certificate, this.#context);
  }
}

/** Asks the host whether `hello` may be in. @returns why not. */
export function admission(
  hello: Hello,
  certificate: PeerCertificateNames | undefined,
  context: TransportContext,
): string | undefined {
  const verdict = context.handlers.admit({
    cellId: hello.cellId,
    memberId: hello.from,
    incarnation: hello.incarnation,
    toMemberId: hello.to,
    address: hello.address,
    ...(certificate === undefined ? {} : { certificate }),
  });
  return verdict.ok ? undefined : verdict.reason;
}

function describe(hello: Hello): Record<string, string | number> {
  const { cellId, from, to, incarnation, purpose } = hello;
  return { cellId, from, to, incarnation, purpose };
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
