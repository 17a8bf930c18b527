import type { MemberId } from "../raft/types.ts";
import { ProtocolError } from "./errors.ts";
import { BodyReader, FRAME, FrameWriter } from "./frame.ts";
import type { Frame } from "./frame.ts";
import type { ConnectionPurpose, TransportIdentity } from "./types.ts";

export const PROTOCOL_VERSION = 2;
/** A handshake frame is small; nobody may make a stranger's connection hold more. */
export const HANDSHAKE_BYTES_MAX: number = 4 * 1024;

const MAGIC = "LSTP";
const PURPOSES: readonly ConnectionPurpose[] = ["raft", "forward", "snapshot"];

/** The dialler's first frame. */
export interface Hello {
  readonly version: number;
  readonly purpose: ConnectionPurpose;
  readonly cellId: string;
  readonly from: MemberId;
  readonly to: MemberId;
  readonly incarnation: string;
  /** Where the dialler listens for peers; empty: it does not say. */
  readonly address: string;
}

/** The acceptor's answer: who it is, and whether the dialler is let in. */
export type Welcome =
  { readonly ok: true; readonly incarnation: string } | { readonly ok: false; readonly reason: string };

export function encodeHello(identity: TransportIdentity, to: MemberId, purpose: ConnectionPurpose): Frame {
  const writer = new FrameWriter();
  writer.begin(FRAME.hello);
  writer.raw(Buffer.from(MAGIC, "latin1"));
  writer.varint(PROTOCOL_VERSION);
  writer.byte(PURPOSES.indexOf(purpose));
  writer.string(identity.cellId);
  writer.varint(identity.memberId);
  writer.varint(to);
  writer.string(identity.incarnation);
  writer.string(identity.address ?? "");
  return writer.finish();
}

/** Another version's fields may differ: then only magic and version are read and the rest stays empty. */
export function decodeHello(body: Buffer): Hello | { readonly version: number; readonly purpose: undefined } {
  const reader = new BodyReader(body);
  for (const letter of Buffer.from(MAGIC, "latin1")) {
    if (reader.byte() !== letter) throw new ProtocolError("not a peer: wrong magic");
  }
  const version = reader.varint();
  if (version !== PROTOCOL_VERSION) return { version, purpose: undefined };
  const number = reader.byte();
  const purpose = PURPOSES[number];
  if (purpose === undefined) throw new ProtocolError(`unknown purpose ${number}`);
  const cellId = reader.string();
  const from = reader.varint() as MemberId;
  const to = reader.varint() as MemberId;
  const incarnation = reader.string();
  const address = reader.string();
  reader.end();
  return { version, purpose, cellId, from, to, incarnation, address };
}

export function encodeWelcome(welcome: Welcome): Frame {
  const writer = new FrameWriter();
  writer.begin(FRAME.welcome);
  writer.byte(welcome.ok ? 1 : 0);
  writer.string(welcome.ok ? welcome.incarnation : welcome.reason);
  return writer.finish();
}

export function decodeWelcome(body: Buffer): Welcome {
  const reader = new BodyReader(body);
  const ok = reader.boolean();
  const text = reader.string();
  return ok ? { ok, incarnation: text } : { ok, reason: text };
}
