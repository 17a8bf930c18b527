import * as coordination from "@lockstep/proto/coordination";
import { Backoff } from "../backoff.ts";
import type { Bytes } from "../bytes.ts";
import { isTransient, LockstepError } from "../errors.ts";
import type { Runtime } from "../runtime.ts";
import type { CellInfo, OperationResult, PutResult, RangeResult } from "../types.ts";
import { readServerFrame, type FrameHandler } from "../wire/frames.ts";
import { errorFromFailure, mapInfo } from "../wire/mapping.ts";
import { rawResult, readResult } from "../wire/results.ts";
import { requestSizeBound, writeGet, writePut, writeRaw } from "../wire/requests.ts";
import { Writer } from "../wire/writer.ts";
import type { ChannelElsewhere, ChannelOptions, ExecuteOptions } from "./channel-options.ts";
import { Connector, type ConnectorEvents, type LinkSource } from "./connector.ts";
import { LeaseKeeper } from "./lease-keeper.ts";
import type { LeaseBook } from "./leases.ts";
import type { Link } from "./link.ts";
import { surface, tellAll } from "./listeners.ts";
import {
  asUncertain,
  closedError,
  isIdentified,
  otherCell,
  otherHistory,
  outcomeIfGivenUp,
  overloaded,
  tooLate,
  unreadable,
} from "./outcomes.ts";
import { RequestTable, type Completion, type PendingRequest } from "./pending.ts";
import { IdentitySource, REGISTER_CLIENT } from "./registration.ts";
import { SilenceWatch } from "./silence.ts";
import { deadlineIn, Sweep } from "./sweep.ts";
import { WatchRegistry } from "./watch-registry.ts";
import type { ChannelWatch, WatchListener, WatchSpec } from "./watches.ts";

/** Bounds of a frame; the cell takes 4,096 requests and 4 MiB. */
const FRAME_REQUESTS_MAX = 4_096;
const FRAME_BYTES_SOFT_MAX = 256 * 1024;

/**
 * One multiplexed stream to the cell, without promises: a frame per turn of the event loop, and each answer calls its
 * completion. It follows the leader and repeats what a broken stream left open, as far as that is safe.
 */
export class Channel {
  readonly #options: ChannelOptions;
  readonly #runtime: Runtime;
  readonly #connector: LinkSource;
  readonly #elsewhere: ChannelElsewhere | undefined;
  readonly #requests: RequestTable;
  readonly #identities: IdentitySource | undefined;
  readonly #retryBackoff: Backoff;
  readonly #writer = new Writer();
  readonly #header: Buffer;
  readonly #handler: FrameHandler;
  /** Leases that this channel keeps alive. */
  readonly leases: LeaseBook;
  readonly #keeper: LeaseKeeper;
  readonly #silence: SilenceWatch;
  readonly #sweep: Sweep;
  /** Of the member that greeted last. */
  #cellId = "";
  /** Why nothing will ever be answered again. */
  #gone: LockstepError | undefined;
  readonly #watches: WatchRegistry;
  readonly #infoListeners = new Set<(info: CellInfo) => void>();
  readonly #connectionListeners = new Set<(connected: boolean) => void>();
  #outbox: PendingRequest[] = [];
  #pendingBytes = 0;
  #flushScheduled = false;
  #blocked = false;
  #frame: Buffer = Buffer.alloc(0);
  #frameLink: Link | undefined;
  #lastConnectError: LockstepError | undefined;
  #closed = false;

  /**
   * @param elsewhere makes what stands in for streams and renewals of this channel's own
   * @internal
   */
  constructor(options: ChannelOptions, elsewhere?: (events: ConnectorEvents) => ChannelElsewhere) {
    this.#options = options;
    this.#runtime = options.runtime;
    this.#requests = new RequestTable(options.requestsMax);
    this.#retryBackoff = new Backoff(options.runtime);
    this.#header = Buffer.from(
      coordination.ClientFrame.encode({
        namespace: options.namespace,
        epoch: options.epoch,
        requests: [],
        renew: undefined,
        watchCreates: [],
        watchCancels: [],
        watchProgress: [],
      }).finish(),
    );
    this.#handler = this.#makeHandler();
    const host = {
      flushSoon: () => this.#flushSoon(),
      surface: (thrown: unknown) => surface(this.#runtime, thrown),
      later: (callback: () => void, retryAfterMs: number) => {
        options.runtime.schedule(callback, this.#retryBackoff.nextMs(retryAfterMs));
      },
      suspect: () => this.#connector.suspect(),
      indebted: () => this.#indebted(),
      isConnected: () => this.#connector.active !== undefined,
    };
    this.#watches = new WatchRegistry(host);
    this.#keeper = new LeaseKeeper(options.runtime, host);
    this.#silence = new SilenceWatch(options.runtime, host);
    this.#sweep = new Sweep(options.runtime, (now) => this.#expire(now));
    this.#identities =
      options.identity === "none"
        ? undefined
        : new IdentitySource(options.runtime, {
            register: (completion) => {
              this.execute(REGISTER_CLIENT, { mutation: true, anonymous: true }, completion);
            },
            ready: (requests) => this.#requeue(requests),
            refuse: (request, error) => this.#finish(request, error),
          });
    const events = this.#connectorEvents();
    this.#elsewhere = elsewhere?.(events);
    this.#connector = this.#elsewhere?.links ?? new Connector(options, events);
    this.leases = this.#elsewhere?.leases ?? this.#keeper;
    this.#connector.start();
  }

  #connectorEvents(): ConnectorEvents {
    return {
      frame: (link, frame) => this.#onFrame(link, frame),
      drained: (link) => {
        if (link === this.#connector.active) this.#unblock();
      },
      activated: () => {
        this.#lastConnectError = undefined;
        this.#blocked = false;
        this.#watches.connected();
        this.#keeper.connected();
        this.#flushSoon();
      },
      lost: (link) => this.#onLost(link),
      unreachable: (error) => {
        this.#lastConnectError = error;
        tellAll(this.#runtime, this.#connectionListeners, false);
      },
      gone: (error) => {
        this.#gone = error;
        this.#lastConnectError = error;
        this.#watches.endAll(error);
      },
      connection: (connected) => {
        if (connected) this.#lastConnectError = undefined;
        tellAll(this.#runtime, this.#connectionListeners, connected);
      },
    };
  }

  /** There is a member to talk to. */
  get connected(): boolean {
    return this.#connector.connected;
  }

  /** What the connected member said last; undefined: not connected. */
  get info(): CellInfo | undefined {
    return this.#connector.active?.info;
  }

  /** Why no member can be reached, when that is so. */
  get connectError(): LockstepError | undefined {
    return this.#lastConnectError;
  }

  /** Requests that wait for their answers. */
  get outstanding(): number {
    return this.#requests.used;
  }

  /**
   * Told when a member is connected, when the last one is lost, and, with false again, when nobody could be reached.
   * @returns the function that ends it.
   */
  onConnection(listener: (connected: boolean) => void): () => void {
    this.#connectionListeners.add(listener);
    return () => this.#connectionListeners.delete(listener);
  }

  /** @returns the function that ends it. */
  onInfo(listener: (info: CellInfo) => void): () => void {
    this.#infoListeners.add(listener);
    return () => this.#infoListeners.delete(listener);
  }

  /** Puts a key. Key and value are not copied: leave them unchanged until the completion, which is called once, later. */
  putWith(
    key: Bytes,
    value: Bytes,
    completion: (error: LockstepError | undefined, result: PutResult | undefined) => void,
    options?: {
      readonly leaseId?: string;
      readonly sequential?: boolean;
      readonly returnPrevious?: boolean;
      readonly deadlineMs?: number;
    },
  ): number {
    const request = this.#acquire(completion as Completion);
    if (request === undefined) return 0;
    request.kind = "put";
    request.mutation = true;
    request.key = key;
    request.value = value;
    if (options !== undefined) {
      request.leaseId = options.leaseId ?? "0";
      request.sequential = options.sequential ?? false;
      request.returnPrevious = options.returnPrevious ?? false;
    }
    return this.#submit(request, requestSizeBound(key, value), options?.deadlineMs);
  }

  /** Reads one key's newest state. */
  getWith(
    key: Bytes,
    completion: (error: LockstepError | undefined, result: RangeResult | undefined) => void,
    options?: { readonly serializable?: boolean; readonly deadlineMs?: number },
  ): number {
    const request = this.#acquire(completion as Completion);
    if (request === undefined) return 0;
    request.kind = "get";
    request.mutation = false;
    request.key = key;
    request.serializable = options?.serializable ?? false;
    return this.#submit(request, requestSizeBound(key, undefined), options?.deadlineMs);
  }

  /**
   * Sends a serialized Operation.
   * @returns the request's id for {@link cancel}; 0: it was refused, and the completion will say so.
   */
  execute(operation: Uint8Array, options: ExecuteOptions, completion: Completion): number {
    const { mutation, anonymous = false, raw = false } = options;
    const request = this.#acquire(completion, anonymous);
    if (request === undefined) return 0;
    request.kind = "raw";
    request.mutation = mutation;
    request.anonymous = anonymous;
    request.raw = raw;
    request.operation = operation;
    return this.#submit(request, operation.length + 96, options.deadlineMs);
  }

  /** Gives a request up; its completion is called with `code`, and the outcome as far as it is known. */
  cancel(id: number, code: "cancelled" | "deadline-exceeded", message: string): void {
    const request = this.#requests.find(id);
    if (request === undefined || request.state === "abandoned") return;
    if (this.#elsewhere !== undefined && request.state === "in-flight") {
      // What became of it is known there.
      this.#elsewhere.cancel(id, code, message);
      return;
    }
    this.#finish(request, new LockstepError(code, outcomeIfGivenUp(request), message));
  }

  /** Opens a watch, which goes on over broken streams until it is cancelled or told its end. */
  watch(spec: WatchSpec, listener: WatchListener): ChannelWatch {
    if (this.#closed) throw closedError();
    if (this.#gone !== undefined) throw this.#gone;
    return this.#watches.open(spec, listener);
  }

  /** Ends everything: outstanding requests with `closed`, watches and leases too. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#sweep.close();
    this.#silence.close();
    this.#identities?.close();
    this.leases.endAll();
    this.#watches.endAll(closedError());
    for (const request of this.#requests.active()) {
      if (request.state === "abandoned") continue;
      this.#finish(request, new LockstepError("closed", outcomeIfGivenUp(request), "the client was closed"));
    }
    this.#connector.close();
  }

  #acquire(completion: Completion, isOwn = false): PendingRequest | undefined {
    const isFull = !isOwn && this.#pendingBytes > this.#options.pendingBytesMax;
    const refusal = this.#closed ? closedError() : (this.#gone ?? (isFull ? overloaded("bytes") : undefined));
    const request = refusal === undefined ? this.#requests.acquire(isOwn) : undefined;
    if (request === undefined) {
      const error = refusal ?? overloaded("requests");
      this.#runtime.afterTurn(() => completion(error, undefined));
      return undefined;
    }
    request.completion = completion;
    return request;
  }

  #submit(request: PendingRequest, sizeBound: number, deadlineMs = this.#options.deadlineMs): number {
    request.sizeBound = sizeBound;
    this.#pendingBytes += sizeBound;
    request.deadlineAt = deadlineIn(deadlineMs, this.#runtime.now());
    this.#sweep.at(request.deadlineAt);
    this.#outbox.push(request);
    this.#flushSoon();
    return request.id;
  }

  #flushSoon(): void {
    if (this.#flushScheduled || this.#blocked || this.#connector.active === undefined) return;
    this.#flushScheduled = true;
    this.#runtime.afterTurn(() => {
      this.#flushScheduled = false;
      this.#flush();
    });
  }

  #unblock(): void {
    this.#blocked = false;
    this.#flushSoon();
  }

  #requeue(requests: readonly PendingRequest[]): void {
    for (const request of requests) this.#outbox.push(request);
    this.#flushSoon();
  }

  /** Everything that this turn has to say, in one frame; more only when a frame's bounds are reached. */
  #flush(): void {
    const link = this.#connector.active;
    if (link?.transport === undefined || this.#closed) return;
    const writer = this.#writer;
    const now = this.#runtime.now();
    const owedNothing = this.#indebted() === undefined;
    const queue = this.#outbox;
    let taken = 0;
    while (!this.#blocked) {
      writer.reserve(this.#header.length);
      writer.bytes(this.#header, this.#header.length);
      let count = 0;
      while (taken < queue.length && count < FRAME_REQUESTS_MAX) {
        const request = queue[taken];
        if (request === undefined) break;
        if (count > 0 && writer.length + request.sizeBound > FRAME_BYTES_SOFT_MAX) break;
        taken += 1;
        if (this.#write(request, link, now)) count += 1;
      }
      const controls = this.#writeControls();
      if (count === 0 && !controls) {
        writer.reset();
        break;
      }
      if (!link.transport.send(writer.take())) this.#blocked = true;
    }
    this.#outbox = taken === queue.length ? [] : queue.slice(taken);
    this.#silence.asked(link, owedNothing);
  }

  /** @returns false when the request does not leave now: abandoned, or it waits for an identity. */
  #write(request: PendingRequest, link: Link, now: number): boolean {
    if (request.state === "abandoned") {
      this.#release(request);
      return false;
    }
    if (request.mutation && !request.anonymous && this.#identities !== undefined) {
      if (!this.#identities.assign(request, now)) return false;
    }
    const leftMs = request.deadlineAt - now;
    // A little less than what is left here, so that the cell's answer, which knows the outcome, arrives in time.
    request.deadlineMs = Math.max(1, Math.floor(leftMs - Math.min(50, leftMs / 10)));
    switch (request.kind) {
      case "put":
        writePut(this.#writer, request, request);
        break;
      case "get":
        writeGet(this.#writer, request, request.key, request.serializable);
        break;
      case "raw":
        writeRaw(this.#writer, request, request.operation);
        break;
    }
    request.state = "in-flight";
    request.link = link;
    link.inFlight += 1;
    return true;
  }

  #writeControls(): boolean {
    const watches = this.#watches.takeOutbox();
    const renew = this.#keeper.takeOutbox();
    if (watches === undefined && renew === undefined) return false;
    const bytes = coordination.ClientFrame.encode({
      namespace: "",
      epoch: 0,
      requests: [],
      renew,
      watchCreates: watches?.creates ?? [],
      watchCancels: watches?.cancels ?? [],
      watchProgress: watches?.progress ?? [],
    }).finish();
    this.#writer.reserve(bytes.length);
    this.#writer.bytes(bytes, bytes.length);
    return true;
  }

  // ---- in ----

  #onFrame(link: Link, frame: Buffer): void {
    this.#frame = frame;
    this.#frameLink = link;
    try {
      readServerFrame(frame, this.#handler);
    } catch (error) {
      this.#connector.fail(link, error instanceof Error ? error : new Error(String(error)));
      return;
    } finally {
      this.#frameLink = undefined;
    }
    this.#connector.noteFrame(link);
  }

  #makeHandler(): FrameHandler {
    // A replaced stream still answers requests; its watches and renewals are the new stream's business.
    const current = (): boolean => this.#frameLink === this.#connector.active;
    return {
      response: (id, start, end, failure) => this.#onResponse(id, start, end, failure),
      renewAck: (ack) => {
        if (current()) this.#keeper.onAck(ack);
      },
      watchCreated: (created) => {
        if (current()) this.#watches.onCreated(created);
      },
      watchEvents: (received) => {
        if (current()) this.#watches.onEvents(received);
      },
      watchProgress: (progress) => {
        if (current()) this.#watches.onProgress(progress);
      },
      watchEnded: (ended) => {
        if (current()) this.#watches.onEnded(ended);
      },
      leaseEnded: (ended) => this.#keeper.onLeaseEnded(ended),
      info: (wire) => {
        const link = this.#frameLink;
        if (link === undefined) return;
        const info = mapInfo(wire);
        if (this.#cellId !== "" && info.cellId !== this.#cellId) this.#otherCell(info.revision);
        this.#cellId = info.cellId;
        this.#connector.noteInfo(link, info);
        tellAll(this.#runtime, this.#infoListeners, info);
      },
    };
  }

  #onResponse(id: number, start: number, end: number, failure: coordination.Failure | undefined): void {
    const request = this.#requests.find(id);
    if (request?.state !== "in-flight" || request.link !== this.#frameLink) return;
    if (failure !== undefined) {
      this.#onRefusal(request, errorFromFailure(failure));
      return;
    }
    if (start < 0) {
      this.#finish(request, unreadable(undefined));
      return;
    }
    let result: OperationResult;
    try {
      result = request.raw ? rawResult(this.#frame, start, end) : readResult(this.#frame, start, end);
    } catch (error) {
      // Only this answer is unreadable: asking again would get the same one, and the stream is in order.
      this.#finish(request, unreadable(error));
      return;
    }
    const { completion } = request;
    this.#settle(request);
    this.#call(completion, undefined, result);
  }

  #onRefusal(request: PendingRequest, error: LockstepError): void {
    if (error.code === "request-expired" && request.lane !== undefined) {
      this.#identities?.forget(request.lane);
    }
    // With an identity an unknown outcome is safe to ask again: the cell answers with the first one.
    const repeatable =
      isTransient(error.code) &&
      (!request.mutation || error.outcome === "not-applied" || isIdentified(request));
    const delayMs = repeatable ? this.#retryBackoff.nextMs(error.retryAfterMs ?? 0) : 0;
    if (!repeatable || this.#runtime.now() + delayMs >= request.deadlineAt) {
      this.#finish(request, request.uncertain ? asUncertain(error) : error);
      return;
    }
    if (error.outcome !== "not-applied") request.uncertain = true;
    this.#leaveLink(request);
    request.state = "delayed";
    const { id } = request;
    this.#runtime.schedule(() => {
      const delayed = this.#requests.find(id);
      if (delayed?.state !== "delayed") return;
      delayed.state = "waiting";
      this.#requeue([delayed]);
    }, delayMs);
  }

  /** The stream is gone: reads and identified mutations go again, the rest has an unknown outcome. */
  #onLost(link: Link): void {
    if (this.#connector.active === undefined) this.#watches.disconnected();
    const again: PendingRequest[] = [];
    for (const request of this.#requests.active()) {
      if (request.link !== link || request.state !== "in-flight") continue;
      if (request.mutation && !isIdentified(request) && !request.anonymous) {
        this.#finish(
          request,
          new LockstepError(
            "connection-lost",
            "unknown",
            "the connection broke before the answer came, and the request had no identity to ask again with",
          ),
        );
        continue;
      }
      this.#leaveLink(request);
      request.uncertain = true;
      request.state = "waiting";
      again.push(request);
    }
    link.inFlight = 0;
    if (again.length === 0) return;
    again.sort((a, b) => a.ordinal - b.ordinal);
    this.#outbox = [...again, ...this.#outbox];
    this.#flushSoon();
  }

  // ---- ends ----

  #leaveLink(request: PendingRequest): void {
    const { link } = request;
    request.link = undefined;
    if (link === undefined) return;
    link.inFlight -= 1;
    if (link.inFlight === 0) this.#connector.noteIdle(link);
  }

  /** The request is over for the caller; its slot is freed now, or when the queue that holds it is walked. */
  #settle(request: PendingRequest): void {
    this.#leaveLink(request);
    this.#retryBackoff.reset();
    const { lane, sequence } = request;
    if (lane !== undefined) this.#identities?.done(lane, sequence);
    if (request.state === "waiting") {
      request.state = "abandoned";
      return;
    }
    this.#release(request);
  }

  #release(request: PendingRequest): void {
    this.#pendingBytes -= request.sizeBound;
    this.#requests.release(request);
  }

  #finish(request: PendingRequest, error: LockstepError): void {
    const { completion } = request;
    this.#settle(request);
    this.#call(completion, error, undefined);
  }

  #call(completion: Completion, error: LockstepError | undefined, result: OperationResult | undefined): void {
    try {
      completion(error, result);
    } catch (thrown) {
      surface(this.#runtime, thrown);
    }
  }

  /** @returns the next deadline */
  #expire(now: number): number {
    const unreachable = this.#connector.active === undefined ? this.#lastConnectError : undefined;
    let next = Infinity;
    for (const request of this.#requests.active()) {
      if (request.state === "abandoned") continue;
      if (request.deadlineAt > now) next = Math.min(next, request.deadlineAt);
      else this.#finish(request, tooLate(request, unreachable));
    }
    return next;
  }

  #indebted(): Link | undefined {
    const link = this.#connector.active;
    return link !== undefined && (link.inFlight > 0 || this.#keeper.awaitsAck) ? link : undefined;
  }

  /** Set up anew from nothing, say: nothing that was given out by the one before holds in it. */
  #otherCell(revision: number): void {
    this.#watches.endAll(otherHistory(revision));
    this.#keeper.endAll({ kind: "ended", cause: "unknown", revision });
    this.#identities?.forgetAll();
    for (const request of this.#requests.active()) {
      if (request.state !== "abandoned" && isIdentified(request)) this.#finish(request, otherCell(request));
    }
  }
}
