/**
 * Production's peer transport (cell/src/transport) over the simulated network. Handshake, codec, receptions and the
 * receiving end of snapshots are production's own; connections, timers and the sending ends are simulated.
 */
import type { MemberId, Message } from "../../../cell/src/raft/types.ts";
import { admission } from "../../../cell/src/transport/acceptor.ts";
import { formatAddress } from "../../../cell/src/transport/address.ts";
import type { CloseCause, ConnectionEvents } from "../../../cell/src/transport/connection.ts";
import { ProtocolError, TransportError } from "../../../cell/src/transport/errors.ts";
import { forwardReception } from "../../../cell/src/transport/forward-link.ts";
import type { ForwardAnswer } from "../../../cell/src/transport/forward-link.ts";
import { FRAME, FrameWriter } from "../../../cell/src/transport/frame.ts";
import { decodeHello, encodeWelcome } from "../../../cell/src/transport/handshake.ts";
import type { Hello } from "../../../cell/src/transport/handshake.ts";
import { TRANSPORT_BOUNDS } from "../../../cell/src/transport/options.ts";
import type { TransportOptions } from "../../../cell/src/transport/options.ts";
import { raftReception } from "../../../cell/src/transport/raft-link.ts";
import { SnapshotInbox } from "../../../cell/src/transport/snapshot-inbox.ts";
import type {
  PeerAddress,
  PeerNotice,
  SnapshotSource,
  Transport,
} from "../../../cell/src/transport/types.ts";
import type { SimProcess } from "../contract.ts";
import type { SimNetwork } from "./network.ts";
import type { PeerContext } from "./peer-dialler.ts";
import { PeerForwardLink } from "./peer-forward-link.ts";
import { PeerRaftLink } from "./peer-raft-link.ts";
import { PeerSnapshotSender } from "./peer-snapshot-sender.ts";
import { PeerSocket } from "./peer-socket.ts";

/** The peer listeners of one world. */
export class SimPeerNet {
  readonly #network: SimNetwork;
  /** By address. A listener whose process died stays known: its host refuses connections. */
  readonly #listeners = new Map<string, SimPeerTransport>();

  constructor(network: SimNetwork) {
    this.#network = network;
  }

  /**
   * Opens the peer listener of `process` at `options.listen`; nothing is dialled before `setPeers`. What dialling members
   * call the address must be the same text. `tls` and `intercept` of the options are not looked at.
   *
   * @throws TransportError `listen-failed` while a live process has the address
   */
  createTransport(options: TransportOptions, process: SimProcess): Promise<SimPeerTransport> {
    const { host, port } = options.listen;
    const address = formatAddress(host, port);
    const other = this.#listeners.get(address);
    if (other?.listening === true) {
      return Promise.reject(new TransportError("listen-failed", `${address} is in use`));
    }
    const context: PeerContext = {
      identity: options.identity,
      handlers: options.handlers,
      tls: undefined,
      log: options.log ?? (() => undefined),
      bounds: { ...TRANSPORT_BOUNDS, ...options.bounds },
      intercept: undefined,
      random: options.random ?? (() => process.dice.random()),
      now: options.now ?? (() => process.monotonicMs()),
      process,
      sockets: new Set(),
      reach: (target, socket) => this.#reach(process, target, socket),
    };
    const transport = new SimPeerTransport(context, address);
    this.#listeners.set(address, transport);
    transport.start();
    return Promise.resolve(transport);
  }

  #reach(from: SimProcess, address: string, socket: PeerSocket): void {
    const network = this.#network;
    const listener = this.#listeners.get(address);
    const host = listener?.host;
    // Neither an answer nor a refusal comes through: the attempt times out.
    if (host !== undefined && (network.blocked(from.host, host) || network.blocked(host, from.host))) return;
    if (listener?.listening !== true) {
      from.deliver(network.delayUs() + network.delayUs(), () => socket.refuse("connection refused"));
      return;
    }
    const guest = listener.accept();
    const { dialled, accepted } = network.connect(
      { process: from, handler: socket },
      { process: listener.process, handler: guest },
    );
    socket.attach(dialled);
    guest.attach(accepted);
  }
}

interface Peer {
  readonly address: PeerAddress;
  readonly raft: PeerRaftLink;
  readonly forward: PeerForwardLink;
  snapshot: PeerSnapshotSender | undefined;
}

/** A connection that a peer dialled and that was let in. */
interface Guest {
  readonly hello: Hello;
  readonly socket: PeerSocket;
}

/** Made by {@link SimPeerNet.createTransport}. */
export class SimPeerTransport implements Transport {
  /** host:port, as given. */
  readonly address: string;
  readonly #context: PeerContext;
  readonly #inbox: SnapshotInbox;
  readonly #peers = new Map<MemberId, Peer>();
  readonly #guests = new Set<Guest>();
  readonly #writer = new FrameWriter();
  readonly #touched: PeerRaftLink[] = [];
  #closing: Promise<void> | undefined;

  constructor(context: PeerContext, address: string) {
    this.#context = context;
    this.address = address;
    this.#inbox = new SnapshotInbox(context);
  }

  get process(): SimProcess {
    return this.#context.process;
  }

  get host(): string {
    return this.process.host;
  }

  get listening(): boolean {
    return this.process.alive && this.#closing === undefined;
  }

  start(): void {
    this.process.after(this.#context.bounds.pingIntervalMs, () => {
      if (this.#closing !== undefined) return;
      for (const socket of [...this.#context.sockets]) socket.interval();
      this.#inbox.interval();
      this.start();
    });
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
    if (peer === undefined) this.process.deliver(0, () => answer("unsent"));
    else peer.forward.request(body, timeoutMs, answer);
  }

  async sendSnapshot(to: MemberId, source: SnapshotSource): Promise<boolean> {
    const peer = this.#peers.get(to);
    if (peer === undefined || peer.snapshot !== undefined) {
      source.close();
      return false;
    }
    const sender = new PeerSnapshotSender(peer.address, source, this.#context);
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
    for (const { hello, socket } of [...this.#guests]) {
      const reason = admission(hello, undefined, this.#context);
      if (reason !== undefined) socket.close(`no longer admitted: ${reason}`);
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

  /** Somebody connects; who it is, its first frame says. */
  accept(): PeerSocket {
    const { process, sockets } = this.#context;
    const socket: PeerSocket = new PeerSocket(process, false, this.#context, {
      frame: (kind, body) => {
        if (kind !== FRAME.hello) throw new ProtocolError(`frame ${kind} before the handshake`);
        this.#hello(socket, body);
      },
      chunkEnd: () => undefined,
      closed: () => sockets.delete(socket),
    });
    sockets.add(socket);
    return socket;
  }

  #close(): Promise<void> {
    for (const peer of this.#peers.values()) stop(peer, "this member closes");
    this.#peers.clear();
    this.#inbox.close("this member closes");
    for (const socket of [...this.#context.sockets]) socket.close("this member closes");
    // Behind what the closed sockets still have to tell.
    return new Promise((resolve) => this.process.deliver(0, resolve));
  }

  #add(address: PeerAddress): void {
    const peer: Peer = {
      address,
      raft: new PeerRaftLink(address, this.#context, this.#writer),
      forward: new PeerForwardLink(address, this.#context, this.#writer),
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
    for (const { hello, socket } of this.#guests) {
      if (hello.from === id && hello.incarnation === peer.address.incarnation) {
        socket.close("no longer a peer");
      }
    }
  }

  #hello(socket: PeerSocket, body: Buffer): void {
    const hello = decodeHello(body);
    if (hello.purpose === undefined) throw new ProtocolError("another protocol version");
    const reason = this.#judge(hello);
    if (reason !== undefined) {
      socket.write(encodeWelcome({ ok: false, reason }));
      socket.close(`refused: ${reason}`);
      return;
    }
    const guest: Guest = { hello, socket };
    this.#guests.add(guest);
    socket.establish(hello.purpose, {
      frame: (kind, frame) => handler.frame(kind, frame),
      chunkEnd: () => handler.chunkEnd(),
      closed: (cause) => {
        this.#context.sockets.delete(socket);
        this.#guests.delete(guest);
        handler.closed?.(cause);
        this.#left(guest, cause);
      },
    });
    socket.write(encodeWelcome({ ok: true, incarnation: this.#context.identity.incarnation }));
    const handler = this.#entered(guest);
  }

  #judge(hello: Hello): string | undefined {
    const { identity } = this.#context;
    if (hello.cellId !== identity.cellId) return "wrong-cell";
    if (hello.to !== identity.memberId || hello.from === identity.memberId) return "wrong-member";
    return admission(hello, undefined, this.#context);
  }

  #entered({ hello, socket }: Guest): Omit<ConnectionEvents, "closed"> & Partial<ConnectionEvents> {
    const { from, purpose } = hello;
    // The peer lost its end of an older connection before this side noticed.
    for (const other of this.#guests) {
      if (other.socket !== socket && other.hello.from === from && other.hello.purpose === purpose) {
        other.socket.cut("the peer opened another connection");
      }
    }
    const peer = this.#peers.get(from);
    if (peer !== undefined) {
      // It dials, so it lives: do not wait out a pause before dialling back.
      this.process.deliver(0, () => {
        peer.raft.kick();
        peer.forward.kick();
        peer.snapshot?.kick();
      });
    }
    switch (purpose) {
      case "raft":
        return raftReception(from, this.#context);
      case "forward":
        return forwardReception(from, socket.asConnection, this.#context, this.#writer);
      case "snapshot":
        return this.#inbox.reception(from, socket.asConnection);
    }
  }

  #left({ hello }: Guest, cause: CloseCause): void {
    if (hello.purpose !== "raft") return;
    if (cause.kind === "peer" || cause.kind === "silent") this.#context.handlers.disconnected(hello.from);
  }
}

function stop(peer: Peer, reason: string): void {
  peer.raft.stop(reason);
  peer.forward.stop(reason);
  peer.snapshot?.stop(reason);
}
