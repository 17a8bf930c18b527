import * as coordination from "@lockstep/proto/coordination";
import { Reader } from "./reader.ts";
import { readWatchEvents, type ReceivedEvents } from "./watch-events.ts";

/** Takes a server frame apart. Responses come as positions in the frame, not as objects. */
export interface FrameHandler {
  /** `resultStart` is -1 when there is no result. */
  response(
    id: number,
    resultStart: number,
    resultEnd: number,
    failure: coordination.Failure | undefined,
  ): void;
  renewAck(ack: coordination.RenewAck): void;
  watchCreated(created: coordination.WatchCreated): void;
  watchEvents(received: ReceivedEvents): void;
  watchProgress(progress: coordination.WatchProgress): void;
  watchEnded(ended: coordination.WatchEnded): void;
  leaseEnded(ended: coordination.LeaseEnded): void;
  info(info: coordination.InfoResponse): void;
}

/**
 * Reads a ServerFrame and tells the handler its parts: the responses first, in place, then the rest in the order
 * of the frame (a watch's creation comes before its events: field order).
 */
export function readServerFrame(frame: Buffer, handler: FrameHandler): void {
  const reader = new Reader(frame);
  const end = frame.length;
  let cold = false;
  while (reader.position < end) {
    const tag = reader.varint();
    if (tag === 0x0a) {
      readResponse(reader, handler);
    } else {
      cold = true;
      reader.skip(tag);
    }
  }
  if (cold) readCold(frame, handler);
}

function readResponse(reader: Reader, handler: FrameHandler): void {
  const end = reader.fieldEnd();
  const outerEnd = reader.end;
  reader.end = end;
  let id = 0;
  let resultStart = -1;
  let resultEnd = -1;
  let failure: coordination.Failure | undefined;
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x08:
        id = reader.varint();
        break;
      case 0x12:
        resultEnd = reader.fieldEnd();
        resultStart = reader.position;
        reader.position = resultEnd;
        break;
      case 0x1a:
        failure = coordination.Failure.decode(reader.bytes());
        break;
      default:
        reader.skip(tag);
    }
  }
  reader.end = outerEnd;
  handler.response(id, resultStart, resultEnd, failure);
}

function readCold(frame: Buffer, handler: FrameHandler): void {
  const reader = new Reader(frame);
  const end = frame.length;
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x12:
        handler.renewAck(coordination.RenewAck.decode(reader.bytes()));
        break;
      case 0x1a:
        handler.watchCreated(coordination.WatchCreated.decode(reader.bytes()));
        break;
      case 0x22:
        handler.watchEvents(readWatchEvents(reader));
        break;
      case 0x2a:
        handler.watchProgress(coordination.WatchProgress.decode(reader.bytes()));
        break;
      case 0x32:
        handler.watchEnded(coordination.WatchEnded.decode(reader.bytes()));
        break;
      case 0x3a:
        handler.leaseEnded(coordination.LeaseEnded.decode(reader.bytes()));
        break;
      case 0x42:
        handler.info(coordination.InfoResponse.decode(reader.bytes()));
        break;
      default:
        reader.skip(tag);
    }
  }
}

/** A frame that says nothing, to fill in. */
export function emptyServerFrame(): coordination.ServerFrame {
  return {
    responses: [],
    renewAck: undefined,
    watchCreated: [],
    watchEvents: [],
    watchProgress: [],
    watchEnded: [],
    leaseEnded: [],
    info: undefined,
  };
}
