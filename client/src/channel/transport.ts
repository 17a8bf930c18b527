/**
 * One bidirectional stream of frames to one member. grpc-js implements it in production
 * (transport/grpc.ts), a simulated network in tests.
 */
export interface FrameLink {
  /** @returns false when the peer is behind: hold back until {@link FrameSink.drained}. */
  send(frame: Buffer): boolean;
  /** No more sends; the peer may finish its answers. */
  finish(): void;
  /** Drops the stream at once; the sink hears nothing more. */
  destroy(): void;
}

export interface FrameSink {
  frame(frame: Buffer): void;
  drained(): void;
  /** The stream is over, by whoever's doing; called at most once. */
  closed(reason: Error | undefined): void;
}

export interface Transport {
  /** Never throws; a stream that cannot be made is told through `closed`, after the call has returned. */
  open(address: string, sink: FrameSink): FrameLink;
  close(): void;
}
