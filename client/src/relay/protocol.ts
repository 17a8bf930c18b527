/** What the main thread and the thread that holds the channel say to each other. Frames are those of the wire protocol. */
import type { ChannelOptions } from "../channel/channel-options.ts";
import type { LeaseEndReason } from "../channel/leases.ts";
import type { TlsOptions, TlsPaths } from "../channel/tls.ts";
import type { OperationOutcome } from "../errors.ts";

/** What the thread's channel is made of. */
export interface RelayOptions extends Omit<ChannelOptions, "transport" | "runtime"> {
  readonly tls?: { readonly options: TlsOptions } | { readonly paths: TlsPaths };
  /** When the main loop was last seen to turn. */
  readonly pulse: SharedArrayBuffer;
}

export interface HoldMessage {
  readonly kind: "hold";
  readonly leaseId: string;
  readonly ttlMs: number;
  readonly marginMs: number;
  /** When its grant was sent, by the clock that both threads share, and by the wall's. */
  readonly sentMs: number;
  readonly wallMs: number;
  /** It is not renewed while the main loop has not turned for longer than this. */
  readonly stallMsMax: number;
  readonly deadlines: SharedArrayBuffer;
  readonly place: number;
}

export type ToRelay =
  | { readonly kind: "frame"; readonly frame: Uint8Array }
  /** The request is given up. */
  | {
      readonly kind: "cancel";
      readonly id: number;
      readonly code: "cancelled" | "deadline-exceeded";
      readonly message: string;
    }
  /** So many bytes of frames were read. */
  | { readonly kind: "taken"; readonly bytes: number }
  | HoldMessage
  | { readonly kind: "drop"; readonly leaseId: string }
  | { readonly kind: "close" };

export type FromRelay =
  | { readonly kind: "frame"; readonly frame: Uint8Array }
  | { readonly kind: "taken"; readonly bytes: number }
  | { readonly kind: "connection"; readonly connected: boolean }
  | { readonly kind: "unreachable"; readonly outcome: OperationOutcome; readonly message: string }
  /** Its place among the deadlines is written no more. `reason` absent: it was dropped. */
  | { readonly kind: "lease-over"; readonly leaseId: string; readonly reason?: LeaseEndReason };

/** Frames that may be on their way to the other thread, in bytes; then senders hold back. */
export const UNREAD_BYTES_MAX: number = 4 * 1024 * 1024;

/** The part of a MessagePort that both ends use. */
export interface RelayPort<Message> {
  postMessage(message: Message, transfer?: ArrayBuffer[]): void;
}

/** A frame as a message of its own: its bytes alone, which move and are not copied again. */
export function postFrame(port: RelayPort<{ kind: "frame"; frame: Uint8Array }>, frame: Uint8Array): void {
  const bytes = new Uint8Array(frame.length);
  bytes.set(frame);
  port.postMessage({ kind: "frame", frame: bytes }, [bytes.buffer]);
}
