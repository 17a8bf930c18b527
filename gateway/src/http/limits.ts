/** Bounds of the HTTP door, and what happens at each. */
export interface HttpDoorLimits {
  /** Open connections. One more is closed at once. */
  readonly connectionsMax: number;
  /** Request line and headers. Above: 431. */
  readonly headerBytesMax: number;
  /** Time to send all headers. Above: 408. */
  readonly headersTimeoutMs: number;
  /** Time to send a whole request. Above: 408. */
  readonly requestTimeoutMs: number;
  /** An idle connection is closed after this. */
  readonly keepAliveTimeoutMs: number;
  /** Unanswered requests of the member. One more: 503 `overloaded`. */
  readonly requestsInFlightMax: number;
  /** Open watches, of all three kinds. One more: 503 `too-many-watches`. */
  readonly watchesMax: number;
  /** Bytes that wait for a watching client that does not read. Above: the watch ends with `slow-consumer`. */
  readonly watchBufferBytesMax: number;
  /** Longest `?wait`. */
  readonly waitMsMax: number;
  /** A quiet stream tells its progress this often. */
  readonly progressIntervalMs: number;
  /** Keys of one page of a list when `limit` is absent. */
  readonly listKeysDefault: number;
  /** What `overloaded` tells a client to wait. */
  readonly overloadRetryAfterMs: number;
}

export const HTTP_DOOR_LIMITS: HttpDoorLimits = {
  connectionsMax: 10_000,
  headerBytesMax: 24 * 1024,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  keepAliveTimeoutMs: 65_000,
  requestsInFlightMax: 4_096,
  watchesMax: 10_000,
  watchBufferBytesMax: 4 * 1024 * 1024,
  waitMsMax: 300_000,
  progressIntervalMs: 15_000,
  listKeysDefault: 1_000,
  overloadRetryAfterMs: 1_000,
};
