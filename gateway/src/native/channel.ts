import type {
  Coordinator,
  Failure,
  KeyRange,
  LeaseEnd,
  LeaseId,
  Limits,
  RenewalOutcome,
  Revision,
  WatchEnd,
  WatchEvent,
  WatchHandle,
  WatchRequest,
  WatchSink,
} from "../coordinator/index.ts";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcStatus, StreamCall } from "../grpc/call.ts";
import {
  DEFAULT_NAMESPACE,
  refusal,
  validateNamespace,
  validateRange,
  validateRenewal,
} from "../validation.ts";
import type { FrameDecoder, WireFrame, WireRenewal, WireRequest, WireWatchCreate } from "./decode-frame.ts";
import type { Dispatcher } from "./dispatch.ts";
import { resultBytes } from "./encode-result.ts";
import type { EventEncoder } from "./event-encoder.ts";
import type { LeaseInterest, LeaseListener } from "./lease-interest.ts";
import type { NativeDoorLimits } from "./limits.ts";
import type { AnyOutcome, OutboxWatch } from "./outbox.ts";
import { Outbox } from "./outbox.ts";
import { MalformedError } from "./reader.ts";
import { WatchTable } from "./watch-table.ts";
import type { ReverseWriter } from "./writer.ts";

/** Frames of renewals that a stream may have unanswered; a well-behaved client has one or two. */
const RENEWALS_IN_FLIGHT_MAX = 64;

/** Room in a frame for what stands around one batch of events. */
const FRAME_OVERHEAD_BYTES = 64;

/** What all channels of a door share. */
export interface ChannelContext {
  readonly coordinator: Coordinator;
  readonly limits: Limits;
  readonly doorLimits: NativeDoorLimits;
  readonly dispatcher: Dispatcher;
  readonly frames: FrameDecoder;
  readonly events: EventEncoder;
  readonly writer: ReverseWriter;
  readonly interest: LeaseInterest;
  /** Not known to clients: see {@link WatchTable}. */
  readonly hashSeed: number;
  /** The channel answers nothing more. */
  readonly onClosed: (channel: Channel) => void;
}

/** A range that lives longer than its frame: it must not keep everything in memory that came together with it. */
function ownRange({ key, rangeEnd }: KeyRange): KeyRange {
  const own = { key: Buffer.from(key) };
  return rangeEnd === undefined ? own : { ...own, rangeEnd: Buffer.from(rangeEnd) };
}

/** One watch of one channel. */
class ChannelWatch implements WatchSink, OutboxWatch {
  readonly id: number;
  cancelled = false;
  pendingProgress = 0;
  /** Told to hold back, and not yet told to go on. */
  held = false;
  handle: WatchHandle | undefined;
  private readonly channel: Channel;

  constructor(channel: Channel, id: number) {
    this.channel = channel;
    this.id = id;
  }

  events(events: readonly WatchEvent[], revision: Revision): boolean {
    return this.cancelled || this.channel.watchEvents(this, events, revision);
  }

  progress(revision: Revision): void {
    if (!this.cancelled) this.channel.watchProgress(this, revision);
  }

  end(end: WatchEnd): void {
    if (!this.cancelled) this.channel.watchEnded(this.id, end);
  }
}

/**
 * One bidirectional stream of one client. Everything said to it during a turn goes out as one frame, from a
 * microtask. A client that does not read is held back first (its watches, then its requests) and cut at the bound.
 */
export class Channel implements LeaseListener {
  closed = false;
  private readonly call: StreamCall;
  private readonly context: ChannelContext;
  private readonly outbox = new Outbox();
  private readonly watches: WatchTable<ChannelWatch>;
  /** Watches that were told to hold back. */
  private held: ChannelWatch[] = [];
  /** Sealed frames that the transport has no room for yet. */
  private waiting: Buffer[] = [];
  private waitingBytes = 0;
  private unflushedBytes = 0;
  private blocked = false;
  private inFlight = 0;
  /** Counted apart: a client's own load must not keep its sessions from being renewed. */
  private renewalsInFlight = 0;
  private flushScheduled = false;
  private halfClosed = false;
  private checkedNamespace = "";

  constructor(call: StreamCall, context: ChannelContext) {
    this.call = call;
    this.context = context;
    this.watches = new WatchTable(context.hashSeed);
    call.onMessage((bytes) => this.frame(bytes));
    call.onHalfClose(() => this.clientEnded());
    call.onClose(() => this.close());
  }

  get watchCount(): number {
    return this.watches.size;
  }

  info(encoded: Buffer): void {
    if (this.closed) return;
    this.outbox.setInfo(encoded);
    this.changed();
  }

  leaseEnded(end: LeaseEnd): void {
    if (this.closed) return;
    this.outbox.addLeaseEnd(end);
    this.changed();
  }

  /** @returns false when the client does not keep up: the hub holds back until the watch is resumed. */
  watchEvents(watch: ChannelWatch, events: readonly WatchEvent[], revision: Revision): boolean {
    const { serverFrameBytesMax, pendingBytesMax } = this.context.doorLimits;
    let covered = (events[0]?.kv.modRevision ?? revision) - 1;
    for (const { bytes, revision: upTo } of this.context.events.encode(events, revision)) {
      if (bytes.length > serverFrameBytesMax - FRAME_OVERHEAD_BYTES) {
        const message =
          `the events up to revision ${upTo} take ${bytes.length} bytes, more than a frame may have: ` +
          "watch a narrower range, or without previous values";
        this.endWatch(watch, { kind: "cancelled", failure: refusal("request-too-large", message) });
        return true;
      }
      const cost = this.outbox.eventsCost(bytes, upTo);
      // Thousands of watches of one stream may fire at once: ending some is better than cutting the stream.
      if (this.blocked && this.waitingBytes + cost > pendingBytesMax / 2) {
        this.endWatch(watch, { kind: "slow-consumer", resumeRevision: (covered + 1) as Revision });
        return true;
      }
      this.makeRoom(cost);
      this.outbox.addEvents(watch, bytes, upTo);
      this.changed();
      covered = upTo;
    }
    if (!this.blocked) return true;
    if (!watch.held) {
      watch.held = true;
      this.held.push(watch);
    }
    return false;
  }

  watchProgress(watch: ChannelWatch, revision: Revision): void {
    this.outbox.addProgress(watch, revision);
    this.changed();
  }

  watchEnded(watchId: number, end: WatchEnd): void {
    this.watches.delete(watchId);
    this.outbox.addEnd(watchId, end);
    this.changed();
  }

  private endWatch(watch: ChannelWatch, end: WatchEnd): void {
    watch.handle?.cancel();
    this.watchEnded(watch.id, end);
  }

  /** Ends the stream with a status other than OK; what the transport has not been given is dropped. */
  cut(status: GrpcStatus): void {
    if (this.closed) return;
    this.close();
    this.call.fail(status);
  }

  // ---- from the client ----

  private frame(bytes: Buffer): void {
    if (this.closed) return;
    let frame: WireFrame;
    try {
      frame = this.context.frames.decode(bytes);
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      this.cut({ code: GrpcCode.INVALID_ARGUMENT, details: `malformed frame: ${error.message}` });
      return;
    }
    const namespace = frame.namespace === "" ? DEFAULT_NAMESPACE : frame.namespace;
    if (namespace !== this.checkedNamespace) {
      const failure = validateNamespace(namespace, this.context.limits);
      if (failure !== undefined) {
        this.cut({ code: GrpcCode.INVALID_ARGUMENT, details: failure.message });
        return;
      }
      this.checkedNamespace = namespace;
    }
    const scope = { bytes, namespace: this.checkedNamespace, epoch: frame.epoch };
    for (const request of frame.requests) {
      this.request(scope, request);
      if (this.isCut()) return;
    }
    if (frame.renewal !== undefined) this.renew(scope, frame.renewal);
    for (const watchId of frame.watchCancels) this.cancelWatch(watchId);
    for (const create of frame.watchCreates) {
      this.createWatch(scope, create);
      if (this.isCut()) return;
    }
    for (const watchId of frame.watchProgress) this.watches.get(watchId)?.handle?.requestProgress();
  }

  /** Whether handling part of a frame ended the stream: the rest must not be started. */
  private isCut(): boolean {
    return this.closed;
  }

  private request(scope: { bytes: Buffer; namespace: string; epoch: number }, request: WireRequest): void {
    const { id } = request;
    if (this.inFlight >= this.context.doorLimits.requestsInFlightMax) {
      this.outbox.addResponse(id, { ok: false, failure: this.overloaded() });
      this.changed();
      return;
    }
    this.inFlight += 1;
    const { namespace } = scope;
    this.context.dispatcher.run(scope, request, (outcome) => this.answer(id, namespace, outcome));
  }

  private renew(scope: { namespace: string; epoch: number }, { id, leaseIds }: WireRenewal): void {
    const failure =
      this.renewalsInFlight >= RENEWALS_IN_FLIGHT_MAX
        ? this.overloaded()
        : validateRenewal(leaseIds, this.context.limits);
    this.renewalsInFlight += 1;
    if (failure !== undefined) {
      this.acknowledge(id, { ok: false, failure });
      return;
    }
    const { namespace, epoch } = scope;
    this.context.coordinator.renew({ namespace, epoch, leaseIds }, (outcome) => {
      if (this.closed) return;
      if (outcome.ok) this.listenTo(namespace, leaseIds, outcome.remainingMs);
      this.acknowledge(id, outcome);
    });
  }

  /** Only leases that exist: made-up ids must not fill the table. */
  private listenTo(namespace: string, leaseIds: readonly LeaseId[], remainingMs: readonly number[]): void {
    const { interest } = this.context;
    for (let i = 0; i < leaseIds.length; i += 1) {
      if ((remainingMs[i] ?? 0) > 0) interest.add(namespace, leaseIds[i] as LeaseId, this);
    }
  }

  private createWatch(scope: { namespace: string; epoch: number }, create: WireWatchCreate): void {
    const { watchId } = create;
    if (watchId === 0 || this.watches.has(watchId)) {
      const details = `watch id ${watchId} is zero or in use on this stream`;
      this.cut({ code: GrpcCode.INVALID_ARGUMENT, details });
      return;
    }
    const failure = this.watchFailure(create);
    if (failure !== undefined) {
      this.watchEnded(watchId, { kind: "cancelled", failure });
      return;
    }
    const watch = new ChannelWatch(this, watchId);
    const request: WatchRequest = {
      namespace: scope.namespace,
      epoch: scope.epoch,
      range: ownRange(create.range),
      returnPrevious: create.returnPrevious,
      ...(create.startRevision === 0 ? {} : { startRevision: create.startRevision as Revision }),
      ...(create.omitPuts ? { omit: "put" } : create.omitDeletes ? { omit: "delete" } : {}),
    };
    const handle = this.context.coordinator.watch(request, watch);
    if ("code" in handle) {
      this.watchEnded(watchId, { kind: "cancelled", failure: handle });
      return;
    }
    watch.handle = handle;
    this.watches.add(watch);
    this.outbox.addCreated(watchId, handle.createdRevision);
    this.changed();
  }

  private watchFailure(create: WireWatchCreate): Failure | undefined {
    const { watchesPerStreamMax } = this.context.doorLimits;
    if (this.watches.size >= watchesPerStreamMax) {
      return refusal(
        "too-many-watches",
        `this stream has ${watchesPerStreamMax} watches, the most one may have`,
      );
    }
    if (create.omitPuts && create.omitDeletes) {
      return refusal("invalid-argument", "a watch that leaves out both puts and deletions would see nothing");
    }
    return validateRange(create.range, this.context.limits);
  }

  private cancelWatch(watchId: number): void {
    const watch = this.watches.get(watchId);
    if (watch === undefined) return;
    watch.cancelled = true;
    watch.handle?.cancel();
    this.watches.delete(watchId);
  }

  /** The client has nothing more to ask: it still gets its answers, then the stream ends. */
  private clientEnded(): void {
    this.halfClosed = true;
    for (const { id } of this.watches.values()) this.cancelWatch(id);
    this.changed();
  }

  // ---- to the client ----

  private overloaded(): Failure {
    const { requestsInFlightMax, overloadRetryAfterMs } = this.context.doorLimits;
    const message = `this stream has ${requestsInFlightMax} unanswered requests, the most one may have`;
    return refusal("overloaded", message, overloadRetryAfterMs);
  }

  private answer(id: number, namespace: string, outcome: AnyOutcome): void {
    this.inFlight -= 1;
    if (this.closed) return;
    if (outcome.ok) {
      const { result } = outcome;
      if (result.kind === "lease-grant") this.context.interest.add(namespace, result.leaseId, this);
      if (result.kind !== "put") {
        const bytes = resultBytes(result);
        if (bytes > this.context.doorLimits.serverFrameBytesMax) {
          this.tooLarge(id, bytes);
          return;
        }
        if (
          result.kind === "range" &&
          this.waitingBytes + bytes > this.context.doorLimits.pendingBytesMax / 2
        ) {
          this.refuseRead(id);
          return;
        }
        this.makeRoom(bytes);
      }
    }
    this.outbox.addResponse(id, outcome);
    this.changed();
  }

  /** A read may always be asked again: better than cutting a client that asked for much at once. */
  private refuseRead(id: number): void {
    const { overloadRetryAfterMs } = this.context.doorLimits;
    const failure = refusal("overloaded", "too many bytes of answers wait to be read", overloadRetryAfterMs);
    this.outbox.addResponse(id, { ok: false, failure });
    this.changed();
  }

  private tooLarge(id: number, bytes: number): void {
    const message = `the answer takes ${bytes} bytes, more than a frame may have: ask for less at a time`;
    this.outbox.addResponse(id, {
      ok: false,
      failure: { code: "request-too-large", outcome: "applied", message },
    });
    this.changed();
  }

  private acknowledge(id: number, outcome: RenewalOutcome): void {
    this.renewalsInFlight -= 1;
    if (this.outbox.hasAck) this.seal();
    this.outbox.addAck(id, outcome);
    this.changed();
  }

  /** Keeps one frame near its target size: what is there goes first if the next entry would not fit. */
  private makeRoom(bytes: number): void {
    if (!this.outbox.isEmpty && this.outbox.bytes + bytes > this.context.doorLimits.frameTargetBytes)
      this.seal();
  }

  /** Something was added: send it with everything else of this turn. */
  private changed(): void {
    if (this.outbox.bytes > this.context.doorLimits.frameTargetBytes) this.seal();
    if (this.flushScheduled || this.closed) return;
    this.flushScheduled = true;
    queueMicrotask(() => this.flush());
  }

  private flush(): void {
    this.flushScheduled = false;
    this.context.events.forget();
    if (this.closed) return;
    if (!this.outbox.isEmpty) this.seal();
    if (this.halfClosed && this.inFlight + this.renewalsInFlight === 0 && this.waiting.length === 0) {
      this.close();
      this.call.end();
    }
  }

  private seal(): void {
    if (this.closed) return;
    const frame = this.outbox.seal(this.context.writer);
    if (!this.blocked) {
      this.write(frame);
      return;
    }
    this.waiting.push(frame);
    this.waitingBytes += frame.length;
    const { pendingBytesMax } = this.context.doorLimits;
    if (this.waitingBytes > pendingBytesMax) {
      const details = `the client left more than ${pendingBytesMax} bytes unread`;
      this.cut({ code: GrpcCode.RESOURCE_EXHAUSTED, details });
    }
  }

  private write(frame: Buffer): void {
    const { length } = frame;
    this.unflushedBytes += length;
    this.call.write(frame, () => this.written(length));
    if (!this.blocked && this.unflushedBytes > this.context.doorLimits.unflushedBytesMax) {
      this.blocked = true;
      // Answers could not be sent: no more questions for now.
      this.call.pause();
    }
  }

  private written(bytes: number): void {
    this.unflushedBytes -= bytes;
    if (!this.blocked || this.closed) return;
    if (this.unflushedBytes > this.context.doorLimits.unflushedBytesMax / 2) return;
    this.blocked = false;
    this.drain();
  }

  private drain(): void {
    let sent = 0;
    while (sent < this.waiting.length && !this.blocked) {
      const frame = this.waiting[sent] as Buffer;
      sent += 1;
      this.waitingBytes -= frame.length;
      this.write(frame);
    }
    this.waiting.splice(0, sent);
    if (this.blocked) return;
    this.call.resume();
    const { held } = this;
    this.held = [];
    for (const watch of held) {
      watch.held = false;
      if (this.watches.get(watch.id) === watch) watch.handle?.resume();
    }
    if (this.halfClosed) this.changed();
  }

  private close(): void {
    if (this.closed) return;
    this.closed = true;
    for (const watch of this.watches.values()) {
      watch.cancelled = true;
      watch.handle?.cancel();
    }
    this.watches.clear();
    this.held = [];
    this.waiting = [];
    this.waitingBytes = 0;
    this.outbox.clear();
    this.context.onClosed(this);
  }
}
