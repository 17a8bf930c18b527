/** What a peer sent does not follow FORMAT.md: the connection is closed, nothing else is harmed. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}

export type TransportErrorCode = "insecure-listen" | "listen-failed" | "bad-address";

/** The transport could not be set up as asked. */
export class TransportError extends Error {
  override readonly name = "TransportError";
  readonly code: TransportErrorCode;

  constructor(code: TransportErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}
