/** The main thread's side of the port: one link that is always there, and the leases that the other side renews. */
import type { MessagePort } from "node:worker_threads";
import type { ConnectorEvents, LinkSource } from "../channel/connector.ts";
import type { HeldLease, LeaseBook } from "../channel/leases.ts";
import { Link } from "../channel/link.ts";
import { LockstepError } from "../errors.ts";
import type { Runtime } from "../runtime.ts";
import type { CellInfo } from "../types.ts";
import { postFrame, UNREAD_BYTES_MAX, type FromRelay, type ToRelay } from "./protocol.ts";
import type { Pulse } from "./shared-clock.ts";
import { Deadlines, sharedNowMs } from "./shared-clock.ts";

/** How often the main loop shows that it turns. */
const PULSE_MS = 100;
const WATCHDOG_MS = 1_000;

interface Place {
  readonly deadlines: Deadlines;
  readonly index: number;
}

export class RelayClient implements LinkSource {
  readonly leases: RelayLeases;
  readonly #port: MessagePort;
  readonly #beat: NodeJS.Timeout;
  readonly #events: ConnectorEvents;
  readonly #link = new Link("worker");
  #unreadBytes = 0;
  #over = false;

  constructor(
    parts: { readonly port: MessagePort; readonly pulse: Pulse; readonly runtime: Runtime },
    events: ConnectorEvents,
  ) {
    const { port, pulse, runtime } = parts;
    this.#port = port;
    this.#events = events;
    this.leases = new RelayLeases((message) => this.#post(message), runtime);
    pulse.beat(sharedNowMs());
    this.#beat = setInterval(() => pulse.beat(sharedNowMs()), PULSE_MS);
    this.#beat.unref();
    port.on("message", (message: FromRelay) => this.#receive(message));
    port.on("close", () => this.#lost());
  }

  get active(): Link | undefined {
    return this.#over ? undefined : this.#link;
  }

  get connected(): boolean {
    return !this.#over && this.#link.info !== undefined;
  }

  start(): void {
    this.#link.ready = true;
    this.#link.transport = {
      send: (frame) => {
        this.#unreadBytes += frame.length;
        if (!this.#over) postFrame(this.#port, frame);
        return this.#unreadBytes < UNREAD_BYTES_MAX;
      },
      finish: () => undefined,
      destroy: () => undefined,
    };
    this.#events.activated(this.#link);
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    clearInterval(this.#beat);
    this.#port.postMessage({ kind: "close" } satisfies ToRelay);
    this.#port.close();
  }

  cancel(request: Omit<Extract<ToRelay, { kind: "cancel" }>, "kind">): void {
    this.#post({ kind: "cancel", ...request });
  }

  noteInfo(link: Link, info: CellInfo): void {
    link.info = info;
  }

  noteFrame(link: Link): void {
    link.quietSince = performance.now();
  }

  /** The other side looks for another member by itself. */
  suspect(): void {
    // See above.
  }

  noteIdle(): void {
    // The link stays.
  }

  /** A frame of our own that cannot be read: a bug, after which nothing that comes can be trusted. */
  fail(): void {
    this.#port.close();
    this.#lost();
  }

  #post(message: ToRelay): void {
    if (!this.#over) this.#port.postMessage(message);
  }

  #receive(message: FromRelay): void {
    if (this.#over) return;
    switch (message.kind) {
      case "frame": {
        const { frame } = message;
        this.#post({ kind: "taken", bytes: frame.length });
        this.#events.frame(this.#link, Buffer.from(frame.buffer, frame.byteOffset, frame.length));
        return;
      }
      case "taken": {
        const wasFull = this.#unreadBytes >= UNREAD_BYTES_MAX;
        this.#unreadBytes -= message.bytes;
        if (wasFull && this.#unreadBytes < UNREAD_BYTES_MAX) this.#events.drained(this.#link);
        return;
      }
      case "connection":
        if (!message.connected) this.#link.info = undefined;
        this.#events.connection(message.connected);
        return;
      case "unreachable":
        this.#events.unreachable(new LockstepError("unavailable", message.outcome, message.message));
        return;
      case "lease-over":
        this.leases.over(message.leaseId, message.reason);
    }
  }

  /** The thread has ended: nobody renews any more, and what was asked has an unknown outcome. */
  #lost(): void {
    if (this.#over) return;
    this.#over = true;
    clearInterval(this.#beat);
    const reason = new Error("the thread that held the client's connection has ended");
    this.#events.gone(new LockstepError("unavailable", "not-applied", reason.message));
    this.leases.endAll("local-deadline");
    this.#events.lost(this.#link, reason);
    this.#events.connection(false);
  }
}

/** Leases that the other thread renews; how long each still lasts is read from memory that both share. */
export class RelayLeases implements LeaseBook {
  readonly #post: (message: ToRelay) => void;
  readonly #runtime: Runtime;
  readonly #leases = new Map<string, { readonly lease: HeldLease; readonly place: Place }>();
  /** Dropped here, and perhaps still written by the other side. */
  readonly #leaving = new Map<string, Place>();
  readonly #free: Place[] = [];
  #over: "closed" | "local-deadline" | undefined;
  #watchdog: NodeJS.Timeout | undefined;

  constructor(post: (message: ToRelay) => void, runtime: Runtime) {
    this.#post = post;
    this.#runtime = runtime;
  }

  get size(): number {
    return this.#leases.size;
  }

  hold(lease: HeldLease): void {
    if (this.#over !== undefined) {
      this.#end(lease, this.#over);
      return;
    }
    // Should the other thread stand still, its word would not come: what the clocks say is enough.
    this.#watchdog ??= setInterval(() => this.#look(), WATCHDOG_MS).unref();
    const place = this.#takePlace();
    const { leaseId, ttlMs, marginMs, lastSent } = lease;
    const { deadlines, index } = place;
    const sentMs = sharedNowMs() - (this.#runtime.now() - lastSent.monotonicMs);
    deadlines.set(index, {
      monotonicMs: sentMs + ttlMs - marginMs,
      wallMs: lastSent.wallMs + ttlMs - marginMs,
    });
    lease.reading = () =>
      deadlines.leftMs(index, { monotonicMs: sharedNowMs(), wallMs: this.#runtime.wallNow() });
    this.#leases.set(leaseId, { lease, place });
    this.#post({
      ...{ kind: "hold", leaseId, ttlMs, marginMs, sentMs, wallMs: lastSent.wallMs },
      ...{ stallMsMax: lease.stallMsMax, deadlines: deadlines.buffer, place: index },
    });
  }

  drop(lease: HeldLease): void {
    lease.over = true;
    const held = this.#leases.get(lease.leaseId);
    if (held?.lease !== lease) return;
    this.#leases.delete(lease.leaseId);
    this.#leaving.set(lease.leaseId, held.place);
    this.#post({ kind: "drop", leaseId: lease.leaseId });
  }

  /** The other side writes its place no more. */
  over(leaseId: string, reason: Parameters<HeldLease["onEnd"]>[0] | undefined): void {
    const leaving = this.#leaving.get(leaseId);
    if (leaving !== undefined) {
      this.#leaving.delete(leaseId);
      this.#free.push(leaving);
      return;
    }
    const held = this.#leases.get(leaseId);
    if (held === undefined || reason === undefined) return;
    this.#leases.delete(leaseId);
    this.#free.push(held.place);
    held.lease.over = true;
    held.lease.onEnd(reason);
  }

  /** All end, and so does every one that comes. Default: the client is closed. */
  endAll(kind: "closed" | "local-deadline" = "closed"): void {
    this.#over ??= kind;
    clearInterval(this.#watchdog);
    for (const { lease } of [...this.#leases.values()]) {
      this.#leases.delete(lease.leaseId);
      this.#end(lease, kind);
    }
  }

  #look(): void {
    for (const { lease } of [...this.#leases.values()]) {
      if (lease.leftMs() > 0) continue;
      this.drop(lease);
      this.#end(lease, "local-deadline");
    }
    if (this.#leases.size > 0) return;
    clearInterval(this.#watchdog);
    this.#watchdog = undefined;
  }

  #end(lease: HeldLease, kind: "closed" | "local-deadline"): void {
    lease.over = true;
    lease.onEnd({ kind, cause: kind === "closed" ? "client" : "unknown", revision: 0 });
  }

  #takePlace(): Place {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    const deadlines = new Deadlines();
    for (let index = Deadlines.places - 1; index > 0; index -= 1) this.#free.push({ deadlines, index });
    return { deadlines, index: 0 };
  }
}
