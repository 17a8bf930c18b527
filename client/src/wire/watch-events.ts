import * as coordination from "@lockstep/proto/coordination";
import { LockstepError } from "../errors.ts";
import type { KeyValue, WatchBatch, WatchEvent } from "../types.ts";
import { causeFromWire } from "./mapping.ts";
import type { Reader } from "./reader.ts";
import { readKeyValue } from "./results.ts";

/** Events, with all watches of the stream that see them. */
export interface ReceivedEvents {
  readonly watchIds: readonly number[];
  readonly batch: WatchBatch;
}

/** Reads the length-delimited WatchEvents at the reader's position in place. */
export function readWatchEvents(reader: Reader): ReceivedEvents {
  const end = reader.fieldEnd();
  const outerEnd = reader.end;
  reader.end = end;
  const watchIds = [0];
  const events: WatchEvent[] = [];
  let revision = 0;
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x08:
        watchIds[0] = reader.varint();
        break;
      case 0x12:
        events.push(readEvent(reader));
        break;
      case 0x18:
        revision = reader.varint();
        break;
      case 0x20:
        watchIds.push(reader.varint());
        break;
      case 0x22: {
        const packedEnd = reader.fieldEnd();
        while (reader.position < packedEnd) watchIds.push(reader.varint());
        break;
      }
      default:
        reader.skip(tag);
    }
  }
  reader.end = outerEnd;
  return { watchIds, batch: { revision, events } };
}

function readEvent(reader: Reader): WatchEvent {
  const end = reader.fieldEnd();
  let kind = 0;
  let kv: KeyValue | undefined;
  let previous: KeyValue | undefined;
  let cause = 0;
  while (reader.position < end) {
    const tag = reader.varint();
    switch (tag) {
      case 0x08:
        kind = reader.varint();
        break;
      case 0x12:
        kv = readKeyValue(reader);
        break;
      case 0x1a:
        previous = readKeyValue(reader);
        break;
      case 0x20:
        cause = reader.varint();
        break;
      default:
        reader.skip(tag);
    }
  }
  if (kv === undefined) throw new LockstepError("protocol-error", "unknown", "a watch event without a key");
  const event: WatchEvent = {
    kind: kind === coordination.WatchEvent_Kind.DELETE ? "delete" : "put",
    kv,
    cause: causeFromWire(cause as coordination.Cause),
  };
  return previous === undefined ? event : { ...event, previous };
}
