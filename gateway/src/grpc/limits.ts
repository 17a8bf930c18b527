/**
 * What a client may have under way on one stream. Node gives a connection's window back as bytes arrive, so this is what
 * bounds the bytes that pile up behind a call that was paused: 256 KiB times the streams of a connection. It is also what
 * a single call can send in one round trip (256 MB/s at 1 ms), where the protocol's own 64 KiB would be felt.
 */
export const STREAM_WINDOW_BYTES: number = 256 * 1024;
/** Enough for 64 streams at full speed; the protocol's own 64 KiB would hold all streams of a connection back together. */
export const CONNECTION_WINDOW_BYTES: number = 16 * 1024 * 1024;
/** All headers of a call. Above: the stream is reset. */
export const HEADER_BYTES_MAX: number = 32 * 1024;
/** Headers of a call, by number. Above: the stream is reset. */
export const HEADER_PAIRS_MAX = 128;
/** Messages of one connection that have begun and are not whole. Above: the call that needs more ends, RESOURCE_EXHAUSTED. */
export const UNFINISHED_BYTES_MAX: number = 64 * 1024 * 1024;
/** Big answers of one connection that wait to be read. Above: a big answer becomes RESOURCE_EXHAUSTED. */
export const UNREAD_ANSWER_BYTES_MAX: number = 64 * 1024 * 1024;
/** An answer from this size on counts as big, and is not copied to stand behind its prefix. */
export const BIG_MESSAGE_BYTES: number = 16 * 1024;
/** What one connection may cost the HTTP/2 library, unsent answers included. Above: new calls are refused. */
export const SESSION_MEMORY_MIB = 256;
/** Streams of a connection that may be refused for such reasons before it is closed. */
export const REJECTED_STREAMS_MAX = 1_000;
/**
 * Calls of one connection that the client may reset: so many at once, and so many a second. Above, the connection is
 * closed. A reset call costs no more than one that is answered, and doors bound what they have under way themselves; so
 * this only has to stop a flood, and not a client whose deadlines are short (the library's own 33 a second would).
 */
export const RESET_BURST = 10_000;
export const RESETS_PER_SECOND = 2_000;
/** Longer texts of a status are cut: a client would refuse the trailers. */
export const DETAILS_LENGTH_MAX = 4_096;

/** How long a listener waits for clients. */
export interface GrpcTiming {
  /** A call that ended with an error whose client does not read what came before is reset after this long. */
  readonly failLingerMs: number;
  /**
   * A client that still sends when its call has ended is told to stop (RST_STREAM, NO_ERROR) after this long. Not at once:
   * the HTTP/2 library drops a status that has not left when the reset is asked for.
   */
  readonly resetDelayMs: number;
  /**
   * Every second check sends a PING; the check after it closes the connection when there was no answer. So a dead client
   * is noticed within three of these, and its calls do not count for ever.
   */
  readonly keepaliveCheckMs: number;
}

export const GRPC_TIMING: GrpcTiming = {
  failLingerMs: 10_000,
  resetDelayMs: 1_000,
  keepaliveCheckMs: 5_000,
};
