/**
 * Peer connections of one member: Raft messages, forwarded client requests and snapshot streams, each on its own
 * connection (a snapshot must not delay heartbeats). Frames are length-prefixed and checksummed (transport/FORMAT.md).
 * A connection starts with a handshake: protocol version, cell id, from and to id, incarnation, purpose. Whoever is
 * not in the configuration with that incarnation is refused before any state is sent (R28, R56).
 */
import type { MemberId, Message } from "../raft/types.ts";

export interface PeerAddress {
  readonly memberId: MemberId;
  readonly incarnation: string;
  /** host:port of its peer listener. */
  readonly address: string;
}

/** What one connection carries; each purpose has a connection of its own. */
export type ConnectionPurpose = "raft" | "forward" | "snapshot";

export interface TransportIdentity {
  readonly cellId: string;
  readonly memberId: MemberId;
  readonly incarnation: string;
  /** host:port at which others reach its peer listener, told to whom it dials. Absent: it is not told. */
  readonly address?: string;
}

/** Why a peer is not let in; the text is sent back and logged. */
export type AdmissionVerdict =
  | { readonly ok: true }
  | {
      readonly ok: false;
      readonly reason:
        | "wrong-cell"
        | "wrong-member"
        | "wrong-incarnation"
        | "wrong-certificate"
        | "unknown-member"
        | "removed";
    };

/** What members tell each other beside Raft. Small, sent on the Raft connection. */
export interface PeerNotice {
  /** Rolling hash of what the applies produced, at an index every member passes; -1: none. */
  readonly digestIndex: number;
  readonly digestHash: number;
  /** Free bytes of the sender's volume fell below its reserve. */
  readonly spaceLow: boolean;
  /** Highest format version the sender's software understands. */
  readonly formatVersionMax: number;
}

/** Names in a verified certificate, as the issuer wrote them. */
export interface PeerCertificateNames {
  readonly commonName: string;
  /** E.g. `DNS:cell-a-1.cell-a.svc, IP Address:10.0.0.7`. */
  readonly alternativeNames: string;
}

/**
 * Called from the event loop, never from within a call of {@link Transport} (but `admit`, a pure question, may be).
 */
export interface TransportHandlers {
  /** Decides who may connect, from the current configuration; called for every handshake. */
  admit(peer: {
    readonly cellId: string;
    readonly memberId: MemberId;
    readonly incarnation: string;
    readonly toMemberId: MemberId;
    /** Where it says that it listens for peers; empty: it does not. */
    readonly address: string;
    /** With TLS: the names in the certificate that the peer proved to own. */
    readonly certificate?: PeerCertificateNames;
  }): AdmissionVerdict;
  /**
   * With TLS: whether the certificate of whoever listens at `address` is that of a member that was to be dialled there.
   * Its chain holds already. Absent: the certificate must name the host that was dialled.
   * @returns why it is not
   */
  recognise?(address: string, certificate: PeerCertificateNames): string | undefined;
  /** All messages of one received chunk, in order: process them in one turn. */
  messages(from: MemberId, messages: readonly Message[]): void;
  notice(from: MemberId, notice: PeerNotice): void;
  /**
   * An established Raft connection to or from this peer was reset, closed or silent for too long: evidence of death
   * (fail-over). A dead peer is told twice, once for each direction. Not told for what this side closed.
   */
  disconnected(peer: MemberId): void;
  /** Queued bytes for a peer hit their bound and were dropped, or it cannot be reached. */
  unreachable(peer: MemberId): void;
  /** A forwarded request; answer exactly once. `body` is opaque to the transport. */
  request(from: MemberId, body: Uint8Array, answer: (body: Uint8Array) => void): void;
  /** A peer streams its state: see `SnapshotReceiver`. */
  snapshot(from: MemberId, offer: SnapshotOffer): SnapshotReceiver | undefined;
  /** This member was refused by a peer; told for every attempt, which go on with pauses. `removed`, `wrong-incarnation`: it must stop and say how to join anew. */
  refused(peer: MemberId, reason: string): void;
}

export interface SnapshotOffer {
  /** Names this stream, so that a broken one can go on: the receiver answers with the next chunk it wants. */
  readonly id: string;
  /** Opaque: encoded SnapshotMetadata and whatever the sender's store adds. */
  readonly header: Uint8Array;
}

/**
 * The receiving end of a snapshot stream. A broken connection is not told: the transport keeps the receiver for a
 * minute and goes on with it when the sender comes back with the same id. It ends with `finish` or with `abort` (no
 * progress, another snapshot began, the sender gave up or was removed, a method here rejected), which may come while
 * a `chunk` or `finish` is under way. Chunks are checksummed by the transport, in order, each exactly once.
 */
export interface SnapshotReceiver {
  /** Number of the first chunk wanted: 0, or further when it resumes. */
  readonly nextChunk: number;
  /** Resolves when the chunk is taken in (back-pressure). */
  chunk(data: Uint8Array): Promise<void>;
  /** All chunks are in. Resolves when the state is verified and installed, and only then the sender is told. */
  finish(): Promise<void>;
  abort(error: Error): void;
}

/** The sending end. `chunk(n)` is asked in order, and may be asked again for the last one. */
export interface SnapshotSource {
  readonly id: string;
  readonly header: Uint8Array;
  /** undefined: there are no more chunks. */
  chunk(number: number): Promise<Uint8Array | undefined>;
  close(): void;
}

export interface Transport {
  /** Sends the messages of one turn: one frame per peer. Never blocks; over the bound it drops and tells `unreachable`. */
  send(messages: readonly Message[]): void;
  notify(to: MemberId, notice: PeerNotice): void;
  /** Asks another member (forwarding). Calls back once: with the answer, or undefined when the connection broke
   *  after the request may have been sent; `"unsent"` when it certainly was not. */
  request(
    to: MemberId,
    body: Uint8Array,
    timeoutMs: number,
    answer: (body: Uint8Array | undefined | "unsent") => void,
  ): void;
  /**
   * Streams a snapshot, resuming broken connections for a bounded time. Resolves true when it was installed; false
   * also when one is under way to this peer already. Closes the source either way.
   */
  sendSnapshot(to: MemberId, source: SnapshotSource): Promise<boolean>;
  /** The configuration changed: connect to new peers, cut off removed ones. */
  setPeers(peers: readonly PeerAddress[]): void;
  /** Which peers have a live Raft connection. */
  connected(): readonly MemberId[];
  close(): Promise<void>;
}
