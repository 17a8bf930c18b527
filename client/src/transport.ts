/** The streams that a client has of its own, for those who put something between them and it. */
export { CHANNEL_PATH, GrpcTransport } from "./channel/grpc.ts";
export { MessageReader, withPrefix } from "./channel/grpc-messages.ts";
export type { FrameLink, FrameSink, LinkProgress, Transport } from "./channel/transport.ts";
export type { TlsOptions, TlsSource } from "./channel/tls.ts";
