import { Seldom } from "@lockstep/gateway";
import type { CloseCause, Connection, ConnectionEvents } from "./connection.ts";
import { ProtocolError } from "./errors.ts";
import { FRAME } from "./frame.ts";
import { PROTOCOL_VERSION, decodeHello, encodeWelcome } from "./handshake.ts";
import type { Hello } from "./handshake.ts";
import type { Arrival, PeerListener } from "./network.ts";
import type { TransportContext, TransportTls } from "./options.ts";
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

/** One that is refused comes back again and again; it is told of at most this often. */
const REFUSALS_TOLD_MS = 10_000;

/** Behind the peer listener: shakes hands and refuses whoever is not admitted before any state is sent (R28). */
export class Acceptor {
  readonly guests: Set<Guest> = new Set();
  readonly #context: TransportContext;
  readonly #events: AcceptorEvents;
  #listener: PeerListener | undefined;
  readonly #refusals: Seldom;
  /** Connections that have not said who they are. */
  #strangers = 0;

  constructor(context: TransportContext, events: AcceptorEvents) {
    this.#context = context;
    this.#events = events;
    this.#refusals = new Seldom(REFUSALS_TOLD_MS, context.now);
  }

  /** @returns the bound address. Throws TransportError. */
  async listen(at: { readonly host: string; readonly port: number }): Promise<string> {
    const { network } = this.#context;
    this.#listener = await network.listen(at, this.#context, (arrival) => this.#arrived(arrival));
    return this.#listener.address;
  }

  /** For connections to come; those that are open stay as they are. */
  updateTls(tls: TransportTls): void {
    this.#listener?.updateTls(tls);
  }

  /** Stops listening; resolves, at the latest, once no accepted connection is left. */
  async close(): Promise<void> {
    await this.#listener?.close();
  }

  #arrived(arrival: Arrival): void {
    const { bounds, connections } = this.#context;
    if (this.#strangers >= bounds.handshakesMax) {
      arrival.refuse();
      return;
    }
    this.#strangers += 1;
    let stranger = true;
    const known = (): void => {
      if (stranger) this.#strangers -= 1;
      stranger = false;
    };
    const connection: Connection = arrival.open({
      frame: (kind, body) => {
        if (kind !== FRAME.hello) throw new ProtocolError(`frame ${kind} before the handshake`);
        known();
        this.#hello(connection, body, arrival.certificate);
      },
      chunkEnd: () => undefined,
      closed: () => {
        known();
        connections.delete(connection);
      },
    });
    connections.add(connection);
  }

  #hello(connection: Connection, body: Buffer, certificate: PeerCertificateNames | undefined): void {
    const hello = decodeHello(body);
    const reason =
      hello.purpose === undefined ? `protocol-version-${PROTOCOL_VERSION}` : this.#judge(hello, certificate);
    if (hello.purpose === undefined || reason !== undefined) {
      this.#refusals.say((unsaid) =>
        this.#context.log("warn", "refusing a peer", {
          reason: reason ?? "",
          ...(hello.purpose === undefined ? { version: hello.version } : describe(hello)),
          unsaid,
        }),
      );
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
        this.#context.connections.delete(connection);
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
