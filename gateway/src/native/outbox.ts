import type {
  Failure,
  LeaseEnd,
  MutationOutcome,
  ReadOutcome,
  RenewalOutcome,
  Revision,
  WatchEnd,
} from "../coordinator/index.ts";
import type { LeaseRenewResult } from "./encode-result.ts";
import { causeNumber, resultBytes, writeFailure, writeRemaining, writeResultField } from "./encode-result.ts";
import type { ReverseWriter } from "./writer.ts";

/** A renewal sent as an operation is answered like any other request. */
export type RenewOperationOutcome =
  | { readonly ok: true; readonly result: LeaseRenewResult }
  | { readonly ok: false; readonly failure: Failure };

export type AnyOutcome = MutationOutcome | ReadOutcome | RenewOperationOutcome;

/** What an outbox needs to know of a watch. */
export interface OutboxWatch {
  readonly id: number;
  /** The client cancelled it: what waits for it is dropped. */
  readonly cancelled: boolean;
  /** A progress answer waits to be sent: up to this revision everything was delivered. 0: none waits. */
  pendingProgress: number;
}

/** The same events for one or more watches. */
interface PendingEvents {
  readonly watches: OutboxWatch[];
  /** Encoded `events` fields. */
  readonly bytes: Buffer;
  readonly revision: Revision;
}

interface PendingEnd {
  readonly watchId: number;
  readonly end: WatchEnd;
}

/** About what a small entry takes on the wire. */
const SMALL_ENTRY_BYTES = 32;
const WATCH_ID_BYTES = 5;

function writeAck(w: ReverseWriter, id: number, outcome: RenewalOutcome): void {
  const before = w.length;
  if (outcome.ok) {
    writeRemaining(w, 0x1a, outcome.remainingMs);
    w.uint(0x10, outcome.revision);
  } else {
    writeFailure(w, 0x22, outcome.failure);
  }
  w.uint(0x08, id);
  w.close(0x12, before);
}

function writeResponse(w: ReverseWriter, id: number, outcome: AnyOutcome): void {
  const before = w.length;
  if (outcome.ok) {
    if ("replayed" in outcome) w.bool(0x20, outcome.replayed);
    const beforeResult = w.length;
    writeResultField(w, outcome.result);
    w.close(0x12, beforeResult);
  } else {
    writeFailure(w, 0x1a, outcome.failure);
  }
  w.uint(0x08, id);
  w.close(0x0a, before);
}

function writeEnd(w: ReverseWriter, ended: PendingEnd): void {
  const before = w.length;
  const { end } = ended;
  switch (end.kind) {
    case "compacted":
      w.varint(end.compactRevision);
      w.tag(0x10);
      break;
    case "slow-consumer":
      w.varint(end.resumeRevision);
      w.tag(0x18);
      break;
    case "cancelled":
      writeFailure(w, 0x22, end.failure);
      break;
  }
  w.uint(0x08, ended.watchId);
  w.close(0x32, before);
}

function writeEvents(w: ReverseWriter, { watches, bytes, revision }: PendingEvents): void {
  const before = w.length;
  let left = watches.length - 1;
  while (left >= 0 && watches[left]?.cancelled === true) left -= 1;
  // Written back to front: the first of those that are left has the field of its own.
  let first = 0;
  while (first <= left && watches[first]?.cancelled === true) first += 1;
  if (first > left) return;
  if (left > first) {
    for (let i = left; i > first; i -= 1) {
      const watch = watches[i] as OutboxWatch;
      if (!watch.cancelled) w.varint(watch.id);
    }
    w.close(0x22, before);
  }
  w.uint(0x18, revision);
  w.raw(bytes);
  w.uint(0x08, (watches[first] as OutboxWatch).id);
  w.close(0x22, before);
}

function writeLeaseEnd(w: ReverseWriter, end: LeaseEnd): void {
  const before = w.length;
  w.uint(0x18, end.revision);
  w.uint(0x10, causeNumber(end.cause));
  w.int64(0x08, end.leaseId);
  w.close(0x3a, before);
}

/**
 * What one stream has to say: collected during a turn, then sealed into one `ServerFrame`. A client reads the lists
 * of a frame in this order: watches created, events, progress, watches ended.
 */
export class Outbox {
  /** About the size of the frame that {@link seal} would make. */
  bytes = 0;
  private responseIds: number[] = [];
  private responses: AnyOutcome[] = [];
  private ack: { readonly id: number; readonly outcome: RenewalOutcome } | undefined;
  private created: { readonly watchId: number; readonly revision: Revision }[] = [];
  private events: PendingEvents[] = [];
  private progress: OutboxWatch[] = [];
  private ended: PendingEnd[] = [];
  private leaseEnds: LeaseEnd[] = [];
  private info: Buffer | undefined;

  get isEmpty(): boolean {
    return this.bytes === 0;
  }

  /** A frame carries one renewal answer: the next one needs the next frame. */
  get hasAck(): boolean {
    return this.ack !== undefined;
  }

  addResponse(id: number, outcome: AnyOutcome): void {
    this.responseIds.push(id);
    this.responses.push(outcome);
    this.bytes += outcome.ok ? resultBytes(outcome.result) : 64 + outcome.failure.message.length;
  }

  addAck(id: number, outcome: RenewalOutcome): void {
    this.ack = { id, outcome };
    this.bytes +=
      SMALL_ENTRY_BYTES + (outcome.ok ? outcome.remainingMs.length * 6 : outcome.failure.message.length);
  }

  addCreated(watchId: number, revision: Revision): void {
    this.created.push({ watchId, revision });
    this.bytes += SMALL_ENTRY_BYTES;
  }

  /** What {@link addEvents} of this would add to the frame. */
  eventsCost(bytes: Buffer, revision: Revision): number {
    return this.sharing(bytes, revision) === undefined ? bytes.length + SMALL_ENTRY_BYTES : WATCH_ID_BYTES;
  }

  /** Watches that get the same buffer right after each other share it on the wire too. */
  addEvents(watch: OutboxWatch, bytes: Buffer, revision: Revision): void {
    const sharing = this.sharing(bytes, revision);
    if (sharing !== undefined) {
      sharing.watches.push(watch);
      this.bytes += WATCH_ID_BYTES;
    } else {
      this.events.push({ watches: [watch], bytes, revision });
      this.bytes += bytes.length + SMALL_ENTRY_BYTES;
    }
    // Progress is read after events: it must not claim less than they do.
    if (watch.pendingProgress !== 0) watch.pendingProgress = revision;
  }

  addProgress(watch: OutboxWatch, revision: Revision): void {
    if (watch.pendingProgress === 0) {
      this.progress.push(watch);
      this.bytes += SMALL_ENTRY_BYTES;
    }
    watch.pendingProgress = revision;
  }

  addEnd(watchId: number, end: WatchEnd): void {
    this.ended.push({ watchId, end });
    this.bytes += SMALL_ENTRY_BYTES + (end.kind === "cancelled" ? end.failure.message.length : 0);
  }

  addLeaseEnd(end: LeaseEnd): void {
    this.leaseEnds.push(end);
    this.bytes += SMALL_ENTRY_BYTES;
  }

  /** `info` is the encoded InfoResponse. Only the newest one is sent. */
  setInfo(info: Buffer): void {
    if (this.info === undefined) this.bytes += info.length + SMALL_ENTRY_BYTES;
    this.info = info;
  }

  /** Encodes everything collected as one frame and starts over. */
  seal(w: ReverseWriter): Buffer {
    if (this.info !== undefined) w.requiredBytes(0x42, this.info);
    for (let i = this.leaseEnds.length - 1; i >= 0; i -= 1) writeLeaseEnd(w, this.leaseEnds[i] as LeaseEnd);
    this.writeWatches(w);
    if (this.ack !== undefined) writeAck(w, this.ack.id, this.ack.outcome);
    const { responseIds, responses } = this;
    for (let i = responses.length - 1; i >= 0; i -= 1) {
      writeResponse(w, responseIds[i] as number, responses[i] as AnyOutcome);
    }
    this.clear();
    return w.finish();
  }

  /** Forgets everything, e.g. when the stream is gone. */
  clear(): void {
    this.bytes = 0;
    if (this.responses.length !== 0) {
      this.responseIds = [];
      this.responses = [];
    }
    this.ack = undefined;
    this.info = undefined;
    if (this.created.length !== 0) this.created = [];
    if (this.events.length !== 0) this.events = [];
    if (this.progress.length !== 0) this.progress = [];
    if (this.ended.length !== 0) this.ended = [];
    if (this.leaseEnds.length !== 0) this.leaseEnds = [];
  }

  private sharing(bytes: Buffer, revision: Revision): PendingEvents | undefined {
    const last = this.events[this.events.length - 1];
    return last?.bytes === bytes && last.revision === revision ? last : undefined;
  }

  private writeWatches(w: ReverseWriter): void {
    const { created, events, progress, ended } = this;
    for (let i = ended.length - 1; i >= 0; i -= 1) writeEnd(w, ended[i] as PendingEnd);
    for (let i = progress.length - 1; i >= 0; i -= 1) {
      const watch = progress[i] as OutboxWatch;
      const revision = watch.pendingProgress;
      watch.pendingProgress = 0;
      if (watch.cancelled) continue;
      const before = w.length;
      w.uint(0x10, revision);
      w.uint(0x08, watch.id);
      w.close(0x2a, before);
    }
    for (let i = events.length - 1; i >= 0; i -= 1) writeEvents(w, events[i] as PendingEvents);
    for (let i = created.length - 1; i >= 0; i -= 1) {
      const entry = created[i];
      if (entry === undefined) continue;
      const before = w.length;
      w.uint(0x10, entry.revision);
      w.uint(0x08, entry.watchId);
      w.close(0x1a, before);
    }
  }
}
