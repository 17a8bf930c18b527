/** Bounds of the native door, and what happens at each. */
export interface NativeDoorLimits {
  /** Open channels of one member. One more ends at once with RESOURCE_EXHAUSTED (`too-many-streams`). */
  readonly streamsMax: number;
  /** Open watches of one channel. One more is ended at once with `too-many-watches`. */
  readonly watchesPerStreamMax: number;
  /** Unanswered requests and renewals of one channel. One more is refused: `overloaded`, not applied. */
  readonly requestsInFlightMax: number;
  /** Unanswered unary calls of the member. One more is refused: `overloaded`, not applied. */
  readonly unaryInFlightMax: number;
  /** Watch creations, cancellations and progress requests of one frame, each. More: the frame is malformed. */
  readonly watchEntriesPerFrameMax: number;
  /** A turn with more to say than this sends more than one frame. */
  readonly frameTargetBytes: number;
  /** A client must accept frames up to this; a single answer above it becomes a `request-too-large` failure. */
  readonly serverFrameBytesMax: number;
  /** Bytes handed to the transport and not yet taken by it. Above: watches are held back, no more is read. */
  readonly unflushedBytesMax: number;
  /** Bytes that wait behind those. Above: the channel ends with RESOURCE_EXHAUSTED (a client that never reads). */
  readonly pendingBytesMax: number;
  /** Leases whose end is pushed. One more is not tracked: its client learns with its next renewal. */
  readonly leaseInterestsMax: number;
  /** What `overloaded` tells a client to wait. */
  readonly overloadRetryAfterMs: number;
}

export const NATIVE_DOOR_LIMITS: NativeDoorLimits = {
  streamsMax: 10_000,
  watchesPerStreamMax: 100_000,
  requestsInFlightMax: 16_384,
  unaryInFlightMax: 10_000,
  watchEntriesPerFrameMax: 10_000,
  frameTargetBytes: 1024 * 1024,
  serverFrameBytesMax: 16 * 1024 * 1024,
  unflushedBytesMax: 1024 * 1024,
  pendingBytesMax: 16 * 1024 * 1024,
  leaseInterestsMax: 2_000_000,
  overloadRetryAfterMs: 100,
};
