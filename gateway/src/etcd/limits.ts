/** What the etcd door bounds by itself, beside the limits of the service. */
export interface EtcdDoorLimits {
  /** Unary calls without an answer yet. */
  readonly unaryInFlightMax: number;
  /** Keys asked of the coordinator at a time: a long range is read in slices that delay nobody. */
  readonly rangePageKeys: number;
  /** One answer of a range, however many slices it took. */
  readonly rangeAnswerBytesMax: number;
  /** All such answers that are being put together or sent. */
  readonly rangeAnswersBytesMax: number;
  /** Watches of one stream. */
  readonly watchesPerStreamMax: number;
  /** Streams of watches and keep-alives. */
  readonly streamsMax: number;
  /** Bytes that wait in one watch stream before its watches are held back. */
  readonly streamBufferBytes: number;
  /** Bytes that wait in all watch streams; beyond it every stream that has any waits. */
  readonly streamBuffersBytes: number;
  /** About the size above which a watch's answer is cut between revisions, or fragmented if the client takes that. */
  readonly watchAnswerBytes: number;
  /** How often a watch with `progress_notify` that saw nothing is told so, in milliseconds; jittered by a tenth. */
  readonly progressIntervalMs: number;
  /** Bytes of one blob of a snapshot. */
  readonly snapshotBlobBytes: number;
}

export const ETCD_DOOR_LIMITS: EtcdDoorLimits = {
  unaryInFlightMax: 20_000,
  rangePageKeys: 1_000,
  rangeAnswerBytesMax: 512 * 1024 * 1024,
  rangeAnswersBytesMax: 1024 * 1024 * 1024,
  watchesPerStreamMax: 1_000_000,
  streamsMax: 100_000,
  streamBufferBytes: 1024 * 1024,
  streamBuffersBytes: 256 * 1024 * 1024,
  watchAnswerBytes: 1024 * 1024,
  // kube-apiserver lives on these; etcd's own default of ten minutes is overridden by everybody who runs it.
  progressIntervalMs: 5_000,
  snapshotBlobBytes: 64 * 1024,
};
