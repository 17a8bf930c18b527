/**
 * One bidirectional stream of frames to one member: HTTP/2 in production (grpc.ts), a simulated network in tests.
 */
export interface FrameLink {
  /** @returns false when the peer is behind: hold back until {@link FrameSink.drained}. */
  send(frame: Buffer): boolean;
  /** No more sends; the peer may finish its answers. */
  finish(): void;
  /** Drops the stream at once; the sink hears nothing more. */
  destroy(): void;
}

/** Whom a stream tells what comes. */
export interface FrameSink {
  /** A frame has come whole. */
  frame(frame: Buffer): void;
  /** There is room again after a send that said no; may also be told without one. */
  drained(): void;
  /** The stream is over, by whoever's doing; called at most once. */
  closed(reason: Error | undefined): void;
}

/** How streams to members are opened. */
export interface Transport {
  /** Never throws; a stream that cannot be made is told through `closed`, after the call has returned. */
  open(address: string, sink: FrameSink): FrameLink;
  /** No stream will be opened any more. Streams that are open are closed by themselves. */
  close(): void;
}
