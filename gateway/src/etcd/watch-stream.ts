import type {
  Failure,
  Revision,
  WatchEnd,
  WatchEvent,
  WatchHandle,
  WatchRequest,
  WatchSink,
} from "../coordinator/index.ts";
import type { GrpcStatus, Message, StreamCall } from "../grpc/call.ts";
import type { EtcdContext } from "./context.ts";
import { statusOfThrown } from "./context.ts";
import { statusOf } from "./errors.ts";
import type { EtcdEventEncoder, WatchAnswer, WatchCreate } from "./wire/watch-codec.ts";
import { encodeWatchAnswer, readWatchRequest } from "./wire/watch-codec.ts";

/** What all watch streams share. */
export interface WatchStreamContext extends EtcdContext {
  readonly encoder: EtcdEventEncoder;
  /** Bytes that wait in all streams whose clients do not keep up. */
  readonly waiting: { bytes: number };
}

/** etcd's id of an answer that concerns no watch, or the stream as a whole. */
const NO_WATCH = -1;
const WATCH_ID_MAX = Number.MAX_SAFE_INTEGER;
/** What etcd says of a creation that it refuses: clients look for these words. */
const REASON_COMPACTED = "etcdserver: mvcc: required revision has been compacted";
const REASON_EMPTY_RANGE = "mvcc: watcher range is empty";
const REASON_DUPLICATE_ID = "mvcc: duplicate watch ID provided on the WatchStream";

/** One watch of a stream. */
class StreamWatch implements WatchSink {
  readonly id: number;
  readonly fragment: boolean;
  /** Asked to be told when nothing happens. */
  readonly progressNotify: boolean;
  handle: WatchHandle | undefined;
  cancelled = false;
  /** Told to hold back, and not yet told to go on. */
  held = false;
  /** It takes no kind of event: it only exists. */
  readonly mute: boolean;
  /** Something was said since the last look. */
  spoke = false;
  /** The next progress is for this watch alone. */
  notifying = false;
  readonly request: WatchRequest;
  private readonly stream: WatchStream;

  constructor(stream: WatchStream, id: number, create: WatchCreate, request: WatchRequest) {
    this.stream = stream;
    this.id = id;
    this.fragment = create.fragment;
    this.progressNotify = create.progressNotify;
    this.mute = create.omitPuts && create.omitDeletes;
    this.request = request;
  }

  events(events: readonly WatchEvent[], revision: Revision): boolean {
    return this.cancelled || this.mute || this.stream.watchEvents(this, events, revision);
  }

  progress(revision: Revision): void {
    if (!this.cancelled) this.stream.watchProgress(this, revision);
  }

  end(end: WatchEnd): void {
    if (!this.cancelled) this.stream.watchEnded(this, end);
  }
}

/**
 * One watch stream of one client. A client that does not read holds back its own watches, which are read on from history
 * when it reads again: nothing is dropped, and nothing piles up.
 */
export class WatchStream {
  private readonly call: StreamCall;
  private readonly context: WatchStreamContext;
  private readonly namespace: string;
  private readonly watches = new Map<number, StreamWatch>();
  private nextId = 0;
  private held: StreamWatch[] = [];
  /** The transport said that it is behind; it will say when it is not. */
  private behind = false;
  /** What of this stream is counted in {@link WatchStreamContext.waiting}. */
  private counted = 0;
  /** Watches whose progress is still missing for the one answer that was asked for; undefined: none was. */
  private awaitingProgress: Set<StreamWatch> | undefined;
  private progressRevision = Infinity;
  private notifyTimer: NodeJS.Timeout | undefined;
  private closed = false;

  constructor(call: StreamCall, context: WatchStreamContext, namespace: string) {
    this.call = call;
    this.context = context;
    this.namespace = namespace;
    call.onMessage((message) => this.message(message));
    // A client that has nothing more to ask goes on listening.
    call.onHalfClose(() => undefined);
    call.onDrain(() => this.drained());
  }

  get watchCount(): number {
    return this.watches.size;
  }

  /** Nothing is sent after this. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    clearTimeout(this.notifyTimer);
    for (const watch of this.watches.values()) {
      watch.cancelled = true;
      watch.handle?.cancel();
    }
    this.watches.clear();
    this.held = [];
    this.count(0);
  }

  fail(status: GrpcStatus): void {
    if (this.closed) return;
    this.close();
    this.call.fail(status);
  }

  // ---- from the client ----

  private message(message: Buffer): void {
    if (this.closed) return;
    try {
      const request = readWatchRequest(this.context.reader, message);
      switch (request.kind) {
        case "create":
          this.create(request);
          break;
        case "cancel":
          this.cancel(request.watchId);
          break;
        case "progress":
          this.askProgress();
          break;
        case "unknown":
          break;
      }
    } catch (error) {
      this.fail(statusOfThrown(error));
      return;
    }
    // Answers to requests that nobody reads must not pile up either.
    if (this.isFull()) this.call.pause();
  }

  private create(create: WatchCreate): void {
    const { startRevision, range } = create;
    const refuse = (cancelReason: string): void => {
      const revision = this.revision();
      this.send({ watchId: NO_WATCH, revision, created: true, canceled: true, cancelReason });
    };
    if (startRevision < 0) {
      refuse(REASON_COMPACTED);
    } else if (range === undefined) {
      refuse(REASON_EMPTY_RANGE);
    } else if (this.watches.size >= this.context.doorLimits.watchesPerStreamMax) {
      refuse(`lockstep: a stream has at most ${this.context.doorLimits.watchesPerStreamMax} watches`);
    } else if (create.watchId !== 0 && (create.watchId < 0 || this.watches.has(create.watchId))) {
      // An id of 0 asks for one; it is also the first that is given.
      refuse(REASON_DUPLICATE_ID);
    } else {
      this.open(create, this.requestOf(create, range));
    }
  }

  private requestOf(create: WatchCreate, range: WatchRequest["range"]): WatchRequest {
    const { startRevision, returnPrevious, omitPuts, omitDeletes } = create;
    return {
      namespace: this.namespace,
      epoch: 0,
      range,
      returnPrevious,
      ...(startRevision === 0 ? {} : { startRevision: startRevision as Revision }),
      ...(omitPuts ? { omit: "put" } : omitDeletes ? { omit: "delete" } : {}),
    };
  }

  private open(create: WatchCreate, request: WatchRequest): void {
    const watch = new StreamWatch(this, this.idFor(create.watchId), create, request);
    const handle = this.context.coordinator.watch(request, watch);
    if ("code" in handle) {
      const answer = { watchId: NO_WATCH, revision: this.revision(), created: true, canceled: true };
      this.send({ ...answer, cancelReason: reasonOf(handle) });
      return;
    }
    watch.handle = handle;
    this.watches.set(watch.id, watch);
    this.send({ watchId: watch.id, revision: handle.createdRevision, created: true });
    if (watch.progressNotify) this.scheduleNotify();
  }

  private idFor(asked: number): number {
    if (asked !== 0) return asked;
    while (this.watches.has(this.nextId)) this.nextId = (this.nextId + 1) % WATCH_ID_MAX;
    const id = this.nextId;
    this.nextId += 1;
    return id;
  }

  /** One that is not there is passed over. */
  private cancel(watchId: number): void {
    const watch = this.watches.get(watchId);
    if (watch === undefined) return;
    this.forget(watch);
    watch.handle?.cancel();
    this.send({ watchId, revision: this.revision(), canceled: true });
  }

  private forget(watch: StreamWatch): void {
    watch.cancelled = true;
    this.watches.delete(watch.id);
    if (this.awaitingProgress?.delete(watch) === true) this.answerProgress();
  }

  // ---- progress ----

  /** One answer for the whole stream: everything up to its revision has been sent to all its watches. */
  private askProgress(): void {
    if (this.watches.size === 0) return;
    // What was asked before is answered by the same answer, which will be no older than wanted.
    this.awaitingProgress = new Set(this.watches.values());
    this.progressRevision = Infinity;
    for (const watch of this.watches.values()) watch.handle?.requestProgress();
  }

  watchProgress(watch: StreamWatch, revision: Revision): void {
    if (watch.notifying) {
      watch.notifying = false;
      if (!watch.spoke) this.send({ watchId: watch.id, revision });
    }
    if (this.awaitingProgress?.delete(watch) !== true) return;
    this.progressRevision = Math.min(this.progressRevision, revision);
    this.answerProgress();
  }

  private answerProgress(): void {
    if (this.awaitingProgress?.size !== 0) return;
    this.awaitingProgress = undefined;
    if (this.progressRevision === Infinity || this.watches.size === 0) return;
    this.send({ watchId: NO_WATCH, revision: this.progressRevision });
  }

  /** Spread by a tenth, so that streams that began together do not go on together. */
  private scheduleNotify(): void {
    if (this.notifyTimer !== undefined || this.closed) return;
    const { progressIntervalMs } = this.context.doorLimits;
    const delayMs = progressIntervalMs * (0.95 + Math.random() * 0.1);
    this.notifyTimer = setTimeout(() => this.notifyQuiet(), delayMs);
    this.notifyTimer.unref();
  }

  private notifyQuiet(): void {
    this.notifyTimer = undefined;
    let any = false;
    for (const watch of this.watches.values()) {
      if (!watch.progressNotify) continue;
      any = true;
      if (!watch.spoke) {
        watch.notifying = true;
        watch.handle?.requestProgress();
      }
      watch.spoke = false;
    }
    if (any) this.scheduleNotify();
  }

  // ---- to the client ----

  watchEvents(watch: StreamWatch, events: readonly WatchEvent[], revision: Revision): boolean {
    watch.spoke = true;
    const { encoder, facts, writer } = this.context;
    for (const chunk of encoder.encode(events, revision, watch.fragment)) {
      const { fragment } = chunk;
      const head = encodeWatchAnswer(writer, facts, {
        watchId: watch.id,
        revision: chunk.revision,
        fragment,
      });
      this.write([head, chunk.bytes]);
    }
    if (!this.isFull()) return true;
    if (!watch.held) {
      watch.held = true;
      this.held.push(watch);
    }
    return false;
  }

  watchEnded(watch: StreamWatch, end: WatchEnd): void {
    switch (end.kind) {
      case "slow-consumer":
        // Its client did nothing wrong: the rest is read from history when it reads on.
        this.rewatch(watch, end.resumeRevision);
        break;
      case "compacted": {
        const { compactRevision } = end;
        this.forget(watch);
        this.send({ watchId: watch.id, revision: this.revision(), canceled: true, compactRevision });
        break;
      }
      case "cancelled":
        this.forget(watch);
        if (end.failure.code === "shutting-down") {
          this.fail(statusOf(end.failure));
        } else {
          const cancelReason = reasonOf(end.failure);
          this.send({ watchId: watch.id, revision: this.revision(), canceled: true, cancelReason });
        }
        break;
    }
  }

  /** From within the hub's own delivery, so not before it is done. */
  private rewatch(watch: StreamWatch, startRevision: Revision): void {
    queueMicrotask(() => {
      if (watch.cancelled) return;
      const handle = this.context.coordinator.watch({ ...watch.request, startRevision }, watch);
      if ("code" in handle) {
        this.watchEnded(watch, { kind: "cancelled", failure: handle });
        return;
      }
      watch.handle = handle;
      if (this.awaitingProgress?.has(watch) === true) handle.requestProgress();
    });
  }

  private drained(): void {
    this.behind = false;
    this.count(0);
    if (this.closed) return;
    this.call.resume();
    const { held } = this;
    this.held = [];
    for (const watch of held) {
      watch.held = false;
      watch.handle?.resume();
    }
  }

  private send(answer: WatchAnswer): void {
    this.write(encodeWatchAnswer(this.context.writer, this.context.facts, answer));
  }

  private write(message: Message): void {
    if (this.closed) return;
    this.behind = !this.call.write(message);
    if (this.behind) this.count(this.call.bufferedBytes);
  }

  private count(bytes: number): void {
    this.context.waiting.bytes += bytes - this.counted;
    this.counted = bytes;
  }

  /** Only what the transport will say something about can be waited for. */
  private isFull(): boolean {
    const { streamBufferBytes, streamBuffersBytes } = this.context.doorLimits;
    return (
      this.behind && (this.counted > streamBufferBytes || this.context.waiting.bytes > streamBuffersBytes)
    );
  }

  private revision(): Revision {
    return this.context.coordinator.info().revision;
  }
}

function reasonOf(failure: Failure): string {
  return statusOf(failure).details;
}
