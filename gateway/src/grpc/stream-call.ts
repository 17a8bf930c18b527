import type { ServerHttp2Stream } from "node:http2";
import { GrpcCode } from "./call.ts";
import type { GrpcStatus, Message, StreamCall, StreamMethod } from "./call.ts";
import { GrpcError } from "./error.ts";
import { MessageReader, messageLength } from "./messages.ts";
import { TransportCall } from "./transport-call.ts";
import type { CallConnection, CallHead } from "./transport-call.ts";

function ignore(): void {
  return undefined;
}

/** Messages in both directions. */
export class StreamTransportCall extends TransportCall implements StreamCall {
  private readonly reader: MessageReader;
  private messageListener: (message: Buffer) => void = ignore;
  private halfCloseListener: () => void = ignore;
  private paused = false;
  private delivering = false;

  constructor(stream: ServerHttp2Stream, head: CallHead, connection: CallConnection) {
    super(stream, head, connection);
    this.watchClose();
    const bytesMax = connection.receiveBytesMax;
    this.reader = new MessageReader({ bytesMax, encoding: head.encoding, budget: connection });
    // A client that resets with NO_ERROR while nothing is read: Node would wait for what came before to be read.
    stream.on("aborted", () => this.readOn());
  }

  /** Begins: {@link StreamMethod.serve} subscribes, then messages come. */
  start(method: StreamMethod): void {
    const refusal = this.connection.refusal(this.path, undefined);
    if (refusal === undefined) method.serve(this);
    else this.fail(refusal);
  }

  get bufferedBytes(): number {
    return this.stream.destroyed ? 0 : this.stream.writableLength;
  }

  write(message: Message, sent?: () => void): boolean {
    if (this.ended || this.isGone) {
      if (sent !== undefined) queueMicrotask(sent);
      return false;
    }
    return this.send(message, messageLength(message), sent);
  }

  onMessage(listener: (message: Buffer) => void): void {
    this.messageListener = listener;
  }

  onHalfClose(listener: () => void): void {
    this.halfCloseListener = listener;
  }

  onDrain(listener: () => void): void {
    this.stream.on("drain", listener);
  }

  pause(): void {
    if (this.paused || this.ended || this.isGone) return;
    this.paused = true;
    this.stream.pause();
  }

  resume(): void {
    if (!this.paused) return;
    this.paused = false;
    if (!this.delivering) this.deliver();
    // Delivering may have paused it again.
    if (!this.isPaused()) this.stream.resume();
  }

  end(): void {
    if (!this.finish()) return;
    const { stream } = this;
    if (!stream.headersSent) this.sendHeaders();
    stream.end();
    this.readOn();
  }

  override fail(status: GrpcStatus): void {
    super.fail(status);
    this.readOn();
  }

  override received(chunk: Buffer): void {
    if (this.ended || this.isGone) return;
    this.reader.push(chunk);
    this.deliver();
  }

  override halfClosed(): void {
    // Otherwise behind the messages that wait.
    if (!this.paused || !this.reader.hasUnread) this.tellHalfClose();
  }

  protected override release(): void {
    this.reader.release();
    this.messageListener = ignore;
    this.halfCloseListener = ignore;
  }

  private tellHalfClose(): void {
    if (this.reader.isInMessage) {
      this.fail({ code: GrpcCode.INTERNAL, details: "the requests end in the middle of a message" });
      return;
    }
    this.halfCloseListener();
  }

  private deliver(): void {
    this.delivering = true;
    const hadUnread = this.reader.hasUnread;
    for (let message = this.next(); message !== undefined; message = this.next())
      this.messageListener(message);
    this.delivering = false;
    if (this.clientEnded && hadUnread && !this.paused && !this.ended) this.tellHalfClose();
  }

  private next(): Buffer | undefined {
    if (this.paused || this.ended) return undefined;
    try {
      return this.reader.next();
    } catch (error) {
      if (!(error instanceof GrpcError)) throw error;
      this.fail(error.status);
      return undefined;
    }
  }

  private isPaused(): boolean {
    return this.paused;
  }

  /** Nobody listens any more: a stream whose bytes are not read is never closed. */
  private readOn(): void {
    if (!this.paused) return;
    this.paused = false;
    this.stream.resume();
  }
}
