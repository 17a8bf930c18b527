/**
 * One bidirectional stream of frames to one member: HTTP/2 in production (grpc.ts), a simulated network in tests.
 */
export interface FrameLink {
  /**
   * What of a stream is seen to move between whole frames: with it, one that brings a large frame over a slow line is not
   * taken for silent. Absent: whole frames alone are signs of life.
   */
  readonly progress?: LinkProgress | undefined;
  /** @returns false when the peer is behind: hold back until {@link FrameSink.drained}. */
  send(frame: Buffer): boolean;
  /** No more sends; the peer may finish its answers. */
  finish(): void;
  /** Drops the stream at once; the sink hears nothing more. */
  destroy(): void;
}

/** Bytes of one stream since it was opened; each number only grows. */
export interface LinkProgress {
  /** Of frames that were given to {@link FrameLink.send}. */
  readonly sentBytes: number;
  /** Of these, what the peer is known to have taken in. Not what our own system has taken to send: it does that for the dead. */
  readonly arrivedBytes: number;
  /** Of frames that come, whole or not. Not what answers for the connection itself, as a ping's answer. */
  readonly receivedBytes: number;
}

/** Whom a stream tells what comes. */
export interface FrameSink {
  /** A frame has come whole. */
  frame(frame: Buffer): void;
  /** There is room again after a send that said no; may also be told without one. */
  drained(): void;
  /** The peer asks that the stream be left for another one soon; until then it goes on. May be told again. */
  leaving?(): void;
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
