export { createTransport } from "./transport.ts";
export type { ListeningTransport } from "./transport.ts";
export type { PeerNetwork } from "./network.ts";
export { TRANSPORT_BOUNDS } from "./options.ts";
export type {
  TransportBounds,
  TransportIntercept,
  TransportLog,
  TransportOptions,
  TransportTls,
} from "./options.ts";
export type { TransportTimers } from "./timers.ts";
export { TransportError } from "./errors.ts";
export type { TransportErrorCode } from "./errors.ts";
export { decodeMessages, encodeMessages } from "./codec.ts";
export type {
  AdmissionVerdict,
  ConnectionPurpose,
  PeerAddress,
  PeerCertificateNames,
  PeerNotice,
  SnapshotOffer,
  SnapshotReceiver,
  SnapshotSource,
  Transport,
  TransportHandlers,
  TransportIdentity,
} from "./types.ts";
