/** Puts a ServerFrame together: what the thread's channel was told, for the channel on the main thread. */
import * as coordination from "@lockstep/proto/coordination";
import type { LockstepError } from "../errors.ts";
import type { Cause, CellInfo, WatchBatch, WatchEvent } from "../types.ts";
import { emptyServerFrame } from "../wire/frames.ts";
import { varintSize, Writer } from "../wire/writer.ts";

const RESPONSE = 0x0a;
const ID = 0x08;
const RESULT = 0x12;
const FAILURE = 0x1a;

/** About what an event takes beside its key and values. */
const EVENT_BYTES = 32;

type ServerFrame = coordination.ServerFrame;

export class ServerFrameBuilder {
  readonly #writer = new Writer();
  #rest = emptyServerFrame();
  #hasRest = false;
  #restBytes = 0;
  /** Of this frame, so that watches to which the same happened share one encoding. */
  readonly #batches = new Map<WatchBatch, coordination.WatchEvents>();

  get isEmpty(): boolean {
    return this.#writer.length === 0 && !this.#hasRest;
  }

  /** About how large the frame is. */
  get bytes(): number {
    return this.#writer.length + this.#restBytes;
  }

  result(id: number, bytes: Uint8Array): void {
    this.#response(id, RESULT, bytes);
  }

  failure(id: number, error: LockstepError): void {
    this.#response(id, FAILURE, coordination.Failure.encode(failureOf(error)).finish());
  }

  watchCreated(watchId: number, revision: number): void {
    this.#more().watchCreated.push({ watchId, revision });
  }

  watchEvents(watchId: number, batch: WatchBatch): void {
    const shared = this.#batches.get(batch);
    if (shared !== undefined) {
      shared.alsoWatchIds.push(watchId);
      return;
    }
    const { revision } = batch;
    const events = { watchId, events: batch.events.map(toWireEvent), revision, alsoWatchIds: [] };
    this.#batches.set(batch, events);
    for (const { kv, previous } of batch.events) {
      this.#restBytes += kv.key.length + kv.value.length + (previous?.value.length ?? 0) + EVENT_BYTES;
    }
    this.#more().watchEvents.push(events);
  }

  watchProgress(watchId: number, revision: number): void {
    this.#more().watchProgress.push({ watchId, revision });
  }

  watchEnded(watchId: number, error: LockstepError): void {
    const reason =
      error.code === "compacted" && error.compactRevision !== undefined
        ? ({ $case: "compactRevision", value: error.compactRevision } as const)
        : ({ $case: "failure", value: failureOf(error) } as const);
    this.#more().watchEnded.push({ watchId, reason });
  }

  info({ leader, clientAddresses, ...rest }: CellInfo): void {
    this.#more().info = {
      ...rest,
      leader: leader === undefined ? undefined : { ...leader },
      clientAddresses: [...clientAddresses],
    };
  }

  take(): Uint8Array {
    if (this.#hasRest) {
      const rest = coordination.ServerFrame.encode(this.#rest).finish();
      this.#writer.reserve(rest.length);
      this.#writer.bytes(rest, rest.length);
      this.#rest = emptyServerFrame();
      this.#hasRest = false;
      this.#restBytes = 0;
      this.#batches.clear();
    }
    return this.#writer.take();
  }

  #more(): ServerFrame {
    this.#hasRest = true;
    return this.#rest;
  }

  #response(id: number, tag: number, content: Uint8Array): void {
    const writer = this.#writer;
    const size = 1 + varintSize(id) + 1 + varintSize(content.length) + content.length;
    writer.reserve(size + 12);
    writer.byte(RESPONSE);
    writer.varint(size);
    writer.byte(ID);
    writer.varint(id);
    writer.byte(tag);
    writer.varint(content.length);
    writer.bytes(content, content.length);
  }
}

const OUTCOMES = {
  "not-applied": coordination.Outcome.NOT_APPLIED,
  applied: coordination.Outcome.APPLIED,
  unknown: coordination.Outcome.UNKNOWN,
} as const;

function failureOf({
  code,
  outcome,
  message,
  retryAfterMs,
  compactRevision,
}: LockstepError): coordination.Failure {
  return {
    ...{ code, message, outcome: OUTCOMES[outcome] },
    retryAfterMs: Math.ceil(retryAfterMs ?? 0),
    compactRevision: compactRevision ?? 0,
  };
}

const CAUSES: Readonly<Record<Cause, coordination.Cause>> = {
  unknown: coordination.Cause.UNSPECIFIED,
  client: coordination.Cause.CLIENT,
  "lease-expired": coordination.Cause.LEASE_EXPIRED,
  "lease-revoked": coordination.Cause.LEASE_REVOKED,
  forced: coordination.Cause.FORCED,
  moved: coordination.Cause.MOVED,
};

function toWireEvent({ kind, kv, previous, cause }: WatchEvent): coordination.WatchEvent {
  return {
    kind: kind === "put" ? coordination.WatchEvent_Kind.PUT : coordination.WatchEvent_Kind.DELETE,
    kv,
    previous,
    cause: CAUSES[cause],
  };
}
