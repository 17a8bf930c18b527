import type { ServerHttp2Stream } from "node:http2";
import { GrpcCode } from "./call.ts";
import type { Message, UnaryCall, UnaryMethod } from "./call.ts";
import { GrpcError } from "./error.ts";
import { BIG_MESSAGE_BYTES, UNREAD_ANSWER_BYTES_MAX } from "./limits.ts";
import { MessageReader, PREFIX_BYTES, messageLength } from "./messages.ts";
import { TransportCall } from "./transport-call.ts";
import type { CallConnection, CallHead } from "./transport-call.ts";

/** One request, one answer. The request is served once the client has ended its side. */
export class UnaryTransportCall extends TransportCall implements UnaryCall {
  private readonly method: UnaryMethod;
  private readonly encoding: string | undefined;
  private request: Buffer | undefined;
  /** Only for a request that does not come in one piece. */
  private reader: MessageReader | undefined;
  private answerBytes = 0;

  constructor(
    stream: ServerHttp2Stream,
    head: CallHead,
    { connection, method }: { readonly connection: CallConnection; readonly method: UnaryMethod },
  ) {
    super(stream, head, connection);
    this.method = method;
    this.encoding = head.encoding;
  }

  respond(message: Message): void {
    if (this.ended || this.isGone) return;
    const length = messageLength(message);
    if (length >= BIG_MESSAGE_BYTES) {
      const { connection } = this;
      if (connection.unreadAnswerBytes + length > UNREAD_ANSWER_BYTES_MAX) {
        const details = `the client leaves more than ${UNREAD_ANSWER_BYTES_MAX} bytes of answers unread`;
        this.fail({ code: GrpcCode.RESOURCE_EXHAUSTED, details });
        return;
      }
      this.watchClose();
      connection.unreadAnswerBytes += length;
      this.answerBytes = length;
    }
    this.finish();
    this.send(message, length);
    this.stream.end();
  }

  override received(chunk: Buffer): void {
    if (this.ended) return;
    if (this.reader === undefined) {
      const { length } = chunk;
      // Nearly always the whole message, alone.
      if (
        this.request === undefined &&
        length >= PREFIX_BYTES &&
        chunk[0] === 0 &&
        chunk.readUInt32BE(1) === length - PREFIX_BYTES &&
        length - PREFIX_BYTES <= this.connection.receiveBytesMax
      ) {
        this.request = chunk.subarray(PREFIX_BYTES);
        return;
      }
      const { connection, encoding } = this;
      const bytesMax = connection.receiveBytesMax;
      this.watchClose();
      this.reader = new MessageReader({ bytesMax, encoding, budget: connection });
    }
    this.read(this.reader, chunk);
  }

  override halfClosed(): void {
    const { request, method } = this;
    if (this.reader?.isInMessage === true) {
      this.fail({ code: GrpcCode.INTERNAL, details: "the request ends in the middle of a message" });
      return;
    }
    if (request === undefined) {
      this.fail({ code: GrpcCode.UNIMPLEMENTED, details: "the method takes one message, and none came" });
      return;
    }
    this.request = undefined;
    const refusal = this.connection.refusal(this.path, request);
    if (refusal === undefined) method.serve(this, request);
    else this.fail(refusal);
  }

  protected override release(): void {
    this.connection.unreadAnswerBytes -= this.answerBytes;
    this.answerBytes = 0;
    this.reader?.release();
    this.request = undefined;
  }

  private read(reader: MessageReader, chunk: Buffer): void {
    reader.push(chunk);
    try {
      for (let message = reader.next(); message !== undefined; message = reader.next()) {
        if (this.request !== undefined) {
          const details = "the method takes one message, and more came";
          throw new GrpcError({ code: GrpcCode.UNIMPLEMENTED, details });
        }
        this.request = message;
      }
    } catch (error) {
      if (!(error instanceof GrpcError)) throw error;
      this.fail(error.status);
    }
  }
}
