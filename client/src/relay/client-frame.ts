/** Takes a ClientFrame apart on the other side of the port: requests in place, the rest through the generated code. */
import * as coordination from "@lockstep/proto/coordination";
import { Reader } from "../wire/reader.ts";

export interface RelayedRequest {
  readonly id: number;
  readonly deadlineMs: number;
  /** A serialized Operation. */
  readonly operation: Buffer;
}

export interface RelayedFrame {
  readonly requests: readonly RelayedRequest[];
  readonly watchCreates: readonly coordination.WatchCreate[];
  readonly watchCancels: readonly number[];
  readonly watchProgress: readonly number[];
}

const REQUEST = 0x1a;
const ID = 0x08;
const DEADLINE_MS = 0x28;
const OPERATION = 0x32;

export function readClientFrame(frame: Buffer): RelayedFrame {
  const reader = new Reader(frame);
  const requests: RelayedRequest[] = [];
  const rest: Buffer[] = [];
  while (reader.position < frame.length) {
    const start = reader.position;
    const tag = reader.varint();
    if (tag === REQUEST) {
      requests.push(readRequest(reader.bytes()));
    } else {
      reader.skip(tag);
      rest.push(frame.subarray(start, reader.position));
    }
  }
  const { watchCreates, watchCancels, watchProgress } = coordination.ClientFrame.decode(Buffer.concat(rest));
  return { requests, watchCreates, watchCancels, watchProgress };
}

function readRequest(request: Buffer): RelayedRequest {
  const reader = new Reader(request);
  let id = 0;
  let deadlineMs = 0;
  let operation: Buffer = request.subarray(0, 0);
  while (reader.position < request.length) {
    const tag = reader.varint();
    if (tag === ID) id = reader.varint();
    else if (tag === DEADLINE_MS) deadlineMs = reader.varint();
    else if (tag === OPERATION) operation = reader.bytes();
    else reader.skip(tag);
  }
  return { id, deadlineMs, operation };
}

/** Field numbers of the oneof in Operation that only read. */
const READS: ReadonlySet<number> = new Set([8, 9, 10, 11]);

/** Whether the operation changes something; one of an unknown kind may. */
export function isMutation(operation: Uint8Array): boolean {
  const [tag = 0] = operation;
  return !READS.has(tag >>> 3);
}
