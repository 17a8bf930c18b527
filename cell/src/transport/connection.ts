import type { MemberId } from "../raft/types.ts";
import type { Frame } from "./frame.ts";
import type { ConnectionPurpose } from "./types.ts";

/** Why a connection is gone. Only `peer` and `silent` say something about the other side's life. */
export type CloseCause =
  | { readonly kind: "peer"; readonly reason: string }
  | { readonly kind: "silent"; readonly reason: string }
  | { readonly kind: "protocol"; readonly reason: string }
  | { readonly kind: "ours"; readonly reason: string };

/** Called in turns of their own, never from within a call of {@link Connection} or of whoever made it. */
export interface ConnectionEvents {
  /** May throw ProtocolError: the connection is closed with it. */
  frame(kind: number, body: Buffer): void;
  /** All complete frames of one received chunk were handed over. */
  chunkEnd(): void;
  /** Exactly once, and nothing after it. */
  closed(cause: CloseCause): void;
}

/**
 * Carries frames to one peer and back. Exists from the first attempt to connect: what is written until then waits, and
 * a failed attempt closes it. Whoever hears nothing for `silentIntervalsMax` intervals gives it up.
 */
export interface Connection {
  /** False from the moment at which its end is certain, whoever ends it; `closed` is told later. */
  readonly open: boolean;
  /** Bytes written that have not left yet. */
  readonly queuedBytes: number;
  /** The handshake is done: who is there, what for, and who handles its frames from now on. */
  establish(peer: MemberId, purpose: ConnectionPurpose, events: ConnectionEvents): void;
  /** Never blocks; nothing happens once it is not open. */
  write(frame: Frame): void;
  /** What is written in the rest of this turn leaves together. */
  corkForTurn(): void;
  /** Called every ping interval. */
  interval(): void;
  /** Lets what is queued go out, for a short while. */
  close(reason: string): void;
  /** Ends at once. */
  cut(reason: string): void;
}
