import { assert } from "../invariant.ts";
import type { MemberId, Message } from "../raft/types.ts";
import { Acceptor, admission } from "./acceptor.ts";
import type { Guest } from "./acceptor.ts";
import type { CloseCause, ConnectionEvents } from "./connection.ts";
import { ForwardLink, forwardReception } from "./forward-link.ts";
import type { ForwardAnswer } from "./forward-link.ts";
import { FrameWriter } from "./frame.ts";
import { TRANSPORT_BOUNDS } from "./options.ts";
import type { TransportContext, TransportOptions, TransportTls } from "./options.ts";
import { RaftLink, raftReception } from "./raft-link.ts";
import { SnapshotInbox } from "./snapshot-inbox.ts";
import { SnapshotSender } from "./snapshot-sender.ts";
import { SOCKET_NETWORK } from "./socket-network.ts";
import { NODE_TIMERS } from "./timers.ts";
import type { PeerAddress, PeerNotice, SnapshotSource, Transport } from "./types.ts";

/** A transport that closes looks this often whether its connections have ended. */
const CLOSE_LOOK_MS = 2;

interface Peer {
  readonly address: PeerAddress;
  readonly raft: RaftLink;
  readonly forward: ForwardLink;
  snapshot: SnapshotSender | undefined;
}

/** A transport whose listener is open. */
export interface ListeningTransport extends Transport {
  /** host:port that is bound. */
  readonly address: string;
  /** Renewed certificates, for connections to come. Only for a transport that was made with TLS. */
  updateTls(tls: TransportTls): void;
}

/**
 * Opens the peer listener. Nothing is dialled before `setPeers`.
 *
 * @returns the transport and the bound address (`host:port`).
 * @throws TransportError `insecure-listen` (no TLS on a host that is not loopback), `listen-failed`
 */
export async function createTransport(options: TransportOptions): Promise<ListeningTransport> {
  const context: TransportContext = {
    identity: options.identity,
    handlers: options.handlers,
    tls: options.tls,
    log: options.log ?? (() => undefined),
    bounds: { ...TRANSPORT_BOUNDS, ...options.bounds },
    intercept: options.intercept,
    random: options.random ?? Math.random,
    now: options.now ?? (() => performance.now()),
    timers: options.timers ?? NODE_TIMERS,
    network: options.network ?? SOCKET_NETWORK,
    connections: new Set(),
  };
  const transport = new PeerTransport(context);
  await transport.listen(options.listen);
  return transport;
}

class PeerTransport implements ListeningTransport {
  address = "";
  readonly #context: TransportContext;
  readonly #acceptor: Acceptor;
  readonly #inbox: SnapshotInbox;
  readonly #peers = new Map<MemberId, Peer>();
  /** Frames are built one at a time, so all links share one writer and its slab. */
  readonly #writer = new FrameWriter();
  readonly #touched: RaftLink[] = [];
  #stopTicking: () => void = () => undefined;
  #closing: Promise<void> | undefined;

  constructor(context: TransportContext) {
    this.#context = context;
    this.#inbox = new SnapshotInbox(context);
    this.#acceptor = new Acceptor(context, {
      entered: (guest) => this.#entered(guest),
      left: (guest, cause) => this.#left(guest, cause),
    });
  }

  async listen(at: TransportOptions["listen"]): Promise<void> {
    this.address = await this.#acceptor.listen(at);
    const { timers, bounds } = this.#context;
    this.#stopTicking = timers.every(bounds.pingIntervalMs, () => this.#interval());
  }

  updateTls(tls: TransportTls): void {
    assert(this.#context.tls !== undefined, "a transport does not change between TLS and plain TCP");
    this.#context.tls = tls;
    this.#acceptor.updateTls(tls);
  }

  send(messages: readonly Message[]): void {
    const touched = this.#touched;
    for (const message of messages) {
      const link = this.#peers.get(message.to)?.raft;
      if (link?.add(message) === true) touched.push(link);
    }
    for (const link of touched) link.flush();
    touched.length = 0;
  }

  notify(to: MemberId, notice: PeerNotice): void {
    this.#peers.get(to)?.raft.notify(notice);
  }

  request(to: MemberId, body: Uint8Array, timeoutMs: number, answer: ForwardAnswer): void {
    const peer = this.#peers.get(to);
    if (peer === undefined) this.#context.timers.soon(() => answer("unsent"));
    else peer.forward.request(body, timeoutMs, answer);
  }

  async sendSnapshot(to: MemberId, source: SnapshotSource): Promise<boolean> {
    const peer = this.#peers.get(to);
    if (peer === undefined || peer.snapshot !== undefined) {
      source.close();
      return false;
    }
    const sender = new SnapshotSender(peer.address, source, this.#context);
    peer.snapshot = sender;
    try {
      return await sender.finished;
    } finally {
      peer.snapshot = undefined;
    }
  }

  setPeers(addresses: readonly PeerAddress[]): void {
    if (this.#closing !== undefined) return;
    const wanted = new Map(addresses.map((address) => [address.memberId, address]));
    wanted.delete(this.#context.identity.memberId);
    for (const [id, peer] of this.#peers) {
      const address = wanted.get(id);
      if (address?.incarnation === peer.address.incarnation && address.address === peer.address.address) {
        wanted.delete(id);
      } else {
        this.#remove(id, peer, address);
      }
    }
    for (const guest of [...this.#acceptor.guests]) {
      const reason = admission(guest.hello, guest.certificate, this.#context);
      if (reason !== undefined) guest.connection.close(`no longer admitted: ${reason}`);
    }
    for (const address of wanted.values()) this.#add(address);
  }

  connected(): readonly MemberId[] {
    const ids: MemberId[] = [];
    for (const [id, peer] of this.#peers) if (peer.raft.connected) ids.push(id);
    return ids;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { connections, timers } = this.#context;
    this.#stopTicking();
    const closed = this.#acceptor.close();
    for (const peer of this.#peers.values()) stop(peer, "this member closes");
    this.#peers.clear();
    this.#inbox.close("this member closes");
    for (const connection of connections) connection.close("this member closes");
    await closed;
    // The listener knows only the connections it accepted; those that were dialled end within the same grace.
    while (connections.size > 0) {
      await new Promise<void>((resolve) => timers.after(CLOSE_LOOK_MS, resolve));
    }
  }

  #add(address: PeerAddress): void {
    const peer: Peer = {
      address,
      raft: new RaftLink(address, this.#context, this.#writer),
      forward: new ForwardLink(address, this.#context, this.#writer),
      snapshot: undefined,
    };
    this.#peers.set(address.memberId, peer);
    peer.raft.start();
    peer.forward.start();
  }

  /** `successor`: the same member at another address or, with another incarnation, a new life of it. */
  #remove(id: MemberId, peer: Peer, successor: PeerAddress | undefined): void {
    this.#peers.delete(id);
    stop(peer, "no longer a peer");
    if (successor?.incarnation === peer.address.incarnation) return;
    this.#inbox.drop(id, "the sender is no longer a peer");
    for (const guest of this.#acceptor.guests) {
      if (guest.hello.from === id && guest.hello.incarnation === peer.address.incarnation) {
        guest.connection.close("no longer a peer");
      }
    }
  }

  #entered(guest: Guest): Omit<ConnectionEvents, "closed"> & Partial<Pick<ConnectionEvents, "closed">> {
    const { hello, connection } = guest;
    this.#replaceOlder(guest);
    const peer = this.#peers.get(hello.from);
    if (peer !== undefined) {
      // It dials, so it lives: do not wait out a pause before dialling back.
      this.#context.timers.schedule(() => {
        peer.raft.kick();
        peer.forward.kick();
        peer.snapshot?.kick();
      });
    }
    switch (hello.purpose) {
      case "raft":
        return raftReception(hello.from, this.#context);
      case "forward":
        return forwardReception(hello.from, connection, this.#context, this.#writer);
      case "snapshot":
        return this.#inbox.reception(hello.from, connection);
    }
  }

  /** The peer lost its end of an older connection before this side noticed. */
  #replaceOlder(guest: Guest): void {
    const { from, purpose } = guest.hello;
    for (const other of this.#acceptor.guests) {
      if (other !== guest && other.hello.from === from && other.hello.purpose === purpose) {
        other.connection.cut("the peer opened another connection");
      }
    }
  }

  #left(guest: Guest, cause: CloseCause): void {
    if (guest.hello.purpose !== "raft") return;
    if (cause.kind === "peer" || cause.kind === "silent")
      this.#context.handlers.disconnected(guest.hello.from);
  }

  #interval(): void {
    for (const connection of this.#context.connections) connection.interval();
    this.#inbox.interval();
  }
}

function stop(peer: Peer, reason: string): void {
  peer.raft.stop(reason);
  peer.forward.stop(reason);
  peer.snapshot?.stop(reason);
}
