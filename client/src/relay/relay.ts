/**
 * The channel's own side of the port. It runs in a thread that nothing of the program keeps busy: requests and watches
 * pass through as frames, and leases are renewed here, whatever the main loop does, as long as it does not stop for
 * longer than a session allows.
 */
import type { Channel } from "../channel/channel.ts";
import { HeldLease } from "../channel/leases.ts";
import { withoutResult } from "../channel/outcomes.ts";
import type { ChannelWatch, WatchListener } from "../channel/watches.ts";
import type { Runtime } from "../runtime.ts";
import { bytesOfRaw } from "../wire/results.ts";
import type * as coordination from "@lockstep/proto/coordination";
import { isMutation, readClientFrame, type RelayedRequest } from "./client-frame.ts";
import {
  postFrame,
  UNREAD_BYTES_MAX,
  type FromRelay,
  type HoldMessage,
  type RelayPort,
  type ToRelay,
} from "./protocol.ts";
import { ServerFrameBuilder } from "./server-frame.ts";
import type { Pulse } from "./shared-clock.ts";
import { Deadlines } from "./shared-clock.ts";

const FRAME_BYTES_SOFT_MAX = 1024 * 1024;

export interface RelayParts {
  readonly channel: Channel;
  readonly port: RelayPort<FromRelay>;
  readonly runtime: Runtime;
  readonly pulse: Pulse;
  /** The clock that both threads share, ms. */
  readonly sharedNowMs: () => number;
}

interface RelayedLease {
  readonly held: HeldLease;
  readonly deadlines: Deadlines;
  readonly place: number;
}

export class Relay implements Disposable {
  readonly #parts: RelayParts;
  readonly #frame = new ServerFrameBuilder();
  readonly #requests = new Map<number, number>();
  readonly #watches = new Map<number, ChannelWatch>();
  readonly #heldBack = new Set<ChannelWatch>();
  readonly #leases = new Map<string, RelayedLease>();
  #flushScheduled = false;
  #unreadBytes = 0;
  #closed = false;

  constructor(parts: RelayParts) {
    this.#parts = parts;
    const { channel, port } = parts;
    channel.onInfo((info) => {
      this.#frame.info(info);
      this.#flushSoon();
    });
    channel.onConnection((connected) => {
      // In the order of the frames: what was answered before the loss is told before it.
      this.#flush();
      port.postMessage({ kind: "connection", connected });
      const error = connected ? undefined : channel.connectError;
      if (error !== undefined) {
        port.postMessage({ kind: "unreachable", outcome: error.outcome, message: error.message });
      }
    });
  }

  receive(message: ToRelay): void {
    switch (message.kind) {
      case "frame":
        this.#parts.port.postMessage({ kind: "taken", bytes: message.frame.length });
        this.#onFrame(Buffer.from(message.frame.buffer, message.frame.byteOffset, message.frame.length));
        return;
      case "cancel": {
        const id = this.#requests.get(message.id);
        if (id !== undefined) this.#parts.channel.cancel(id, message.code, message.message);
        return;
      }
      case "taken":
        this.#taken(message.bytes);
        return;
      case "hold":
        this.#hold(message);
        return;
      case "drop":
        this.#drop(message.leaseId);
        return;
      case "close":
        this.close();
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#parts.channel.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #onFrame(bytes: Buffer): void {
    const frame = readClientFrame(bytes);
    for (const request of frame.requests) this.#execute(request);
    for (const create of frame.watchCreates) this.#watch(create);
    for (const watchId of frame.watchCancels) this.#cancelWatch(watchId);
    for (const watchId of frame.watchProgress) this.#watches.get(watchId)?.requestProgress();
  }

  // ---- requests ----

  #execute({ id, deadlineMs, operation }: RelayedRequest): void {
    const options = { mutation: isMutation(operation), deadlineMs, raw: true };
    const inner = this.#parts.channel.execute(operation, options, (error, result) => {
      this.#requests.delete(id);
      if (result === undefined) this.#frame.failure(id, error ?? withoutResult());
      else this.#frame.result(id, bytesOfRaw(result));
      this.#flushSoon();
    });
    if (inner !== 0) this.#requests.set(id, inner);
  }

  // ---- watches ----

  #watch({
    watchId,
    range,
    startRevision,
    returnPrevious,
    omitPuts,
    omitDeletes,
  }: coordination.WatchCreate): void {
    const listener: WatchListener = {
      created: (revision) => {
        this.#frame.watchCreated(watchId, revision);
        this.#flushSoon();
      },
      events: (batch) => {
        this.#frame.watchEvents(watchId, batch);
        this.#flushSoon();
        if (this.#unreadBytes + this.#frame.bytes < UNREAD_BYTES_MAX) return true;
        // The main loop does not read: the cell's history keeps what follows.
        const watch = this.#watches.get(watchId);
        if (watch !== undefined) this.#heldBack.add(watch);
        return watch === undefined;
      },
      progress: (revision) => {
        this.#frame.watchProgress(watchId, revision);
        this.#flushSoon();
      },
      ended: (error) => {
        this.#forgetWatch(watchId);
        this.#frame.watchEnded(watchId, error);
        this.#flushSoon();
      },
    };
    const spec = {
      range: {
        key: range?.key ?? Buffer.alloc(0),
        ...(range?.rangeEnd !== undefined && { rangeEnd: range.rangeEnd }),
      },
      startRevision,
      returnPrevious,
      omit: omitPuts ? ("put" as const) : omitDeletes ? ("delete" as const) : undefined,
    };
    this.#watches.set(watchId, this.#parts.channel.watch(spec, listener));
  }

  #cancelWatch(watchId: number): void {
    this.#watches.get(watchId)?.cancel();
    this.#forgetWatch(watchId);
  }

  #forgetWatch(watchId: number): void {
    const watch = this.#watches.get(watchId);
    if (watch === undefined) return;
    this.#watches.delete(watchId);
    this.#heldBack.delete(watch);
  }

  // ---- leases ----

  #hold(message: HoldMessage): void {
    const { leaseId, ttlMs, marginMs, place, stallMsMax } = message;
    const { runtime, channel, pulse, sharedNowMs } = this.#parts;
    const deadlines = new Deadlines(message.deadlines);
    const agoMs = sharedNowMs() - message.sentMs;
    const held: HeldLease = new HeldLease(runtime, {
      ...{ leaseId, ttlMs, marginMs },
      sent: { monotonicMs: runtime.now() - agoMs, wallMs: message.wallMs },
      mayRenew: () => pulse.silentMs(sharedNowMs()) <= stallMsMax,
      onRenewed: () => {
        const lastsMs = held.remainingMs - marginMs;
        const sinceMs = runtime.now() - held.lastSent.monotonicMs;
        deadlines.set(place, {
          monotonicMs: sharedNowMs() - sinceMs + lastsMs,
          wallMs: held.lastSent.wallMs + lastsMs,
        });
      },
      onEnd: (reason) => {
        deadlines.end(place);
        this.#leases.delete(leaseId);
        // What was answered before its end is told before it.
        this.#flush();
        this.#parts.port.postMessage({ kind: "lease-over", leaseId, reason });
      },
    });
    this.#leases.set(leaseId, { held, deadlines, place });
    channel.leases.hold(held);
  }

  #drop(leaseId: string): void {
    const lease = this.#leases.get(leaseId);
    if (lease === undefined) return;
    this.#leases.delete(leaseId);
    this.#parts.channel.leases.drop(lease.held);
    lease.deadlines.end(lease.place);
    this.#parts.port.postMessage({ kind: "lease-over", leaseId });
  }

  // ---- out ----

  #flushSoon(): void {
    if (this.#frame.bytes >= FRAME_BYTES_SOFT_MAX) this.#flush();
    if (this.#flushScheduled || this.#frame.isEmpty) return;
    this.#flushScheduled = true;
    this.#parts.runtime.afterTurn(() => {
      this.#flushScheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#frame.isEmpty || this.#closed) return;
    const frame = this.#frame.take();
    this.#unreadBytes += frame.length;
    postFrame(this.#parts.port, frame);
  }

  #taken(bytes: number): void {
    this.#unreadBytes -= bytes;
    if (this.#unreadBytes > UNREAD_BYTES_MAX / 2 || this.#heldBack.size === 0) return;
    const waiting = [...this.#heldBack];
    this.#heldBack.clear();
    for (const watch of waiting) watch.resume();
  }
}
