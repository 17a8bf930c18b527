/**
 * A simulated connection, as TCP gives it: in order, whole, late while the way is blocked, until it is closed, cut or
 * breaks. One direction takes on a window of bytes; what exceeds it waits at the sender, so that a receiver that does
 * not read (or is paused) slows its sender down.
 */
import type { SimProcess } from "../contract.ts";
import type { Host, SimNetwork } from "./network.ts";

/** Hears what arrives at one end; every call comes as a task of the end's process. */
export interface StreamHandler<In> {
  payload(payload: In): void;
  /** The other side sends nothing more. */
  ended?(): void;
  /** Gone by the other side's or the network's doing; nothing comes after it. Not told for what this side closed. */
  closed(reason: string): void;
  /** What waited for room has left. */
  drained?(): void;
}

interface Item<Out> {
  readonly payload: Out | undefined;
  readonly kind: "payload" | "end" | "close";
  readonly bytes: number;
  readonly taken: (() => void) | undefined;
  readonly sentUs: number;
  /** Infinity: the way was blocked when it should have left. */
  arrivalUs: number;
}

/** A way counts as silent when its oldest payload is under way for this long. */
const SILENT_US = 1_000_000;

/** An end, whatever it carries. */
export interface AnyEnd {
  readonly process: SimProcess;
  readonly open: boolean;
  readonly peer: { readonly process: SimProcess };
  /** Of the two ends, the one that holds the timer of the connection's life. */
  limitsLife: boolean;
  cancelLife: (() => void) | undefined;
  readonly reachable: boolean;
  cut(): void;
  break(): void;
  wayMayBeFree(): boolean;
}

/** One end: sends `Out`, takes in `In`. */
export class StreamEnd<Out, In> {
  readonly process: SimProcess;
  /** False once it was closed here, or its handler heard `closed`. */
  open = true;
  limitsLife = false;
  cancelLife: (() => void) | undefined;
  readonly #network: SimNetwork;
  readonly #host: Host;
  readonly #handler: StreamHandler<In>;
  #peer: StreamEnd<In, Out> | undefined;
  #flight: Item<Out>[] = [];
  #flightBytes = 0;
  #waiting: Item<Out>[] = [];
  #waitingBytes = 0;
  #lastArrivalUs = 0;
  /** A task that hands over what has arrived is due. */
  #arrivalDue = false;
  /** A task that sends what waits is due. */
  #refillDue = false;
  /** This end takes nothing in for now. */
  #paused = false;
  #datagramBytes = 0;

  constructor(network: SimNetwork, process: SimProcess, handler: StreamHandler<In>) {
    this.#network = network;
    this.process = process;
    this.#handler = handler;
    this.#host = network.host(process.host);
  }

  get peer(): StreamEnd<In, Out> {
    if (this.#peer === undefined) throw new TypeError("an end without another end");
    return this.#peer;
  }

  /** Bytes that wait for room. */
  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /** Datagrams sent and not yet arrived. */
  get datagramBytes(): number {
    return this.#datagramBytes;
  }

  /** Only {@link joinEnds} calls it. */
  join(peer: StreamEnd<In, Out>): void {
    this.#peer = peer;
    this.#network.opened(this);
  }

  /**
   * @param taken called, in a later turn or microtask, when there was room for it
   * @returns false when it has to wait for room: hold back until `drained`
   */
  send(payload: Out, bytes: number, taken?: () => void): boolean {
    if (!this.open) return false;
    this.#add({ payload, kind: "payload", bytes, taken, sentUs: this.#nowUs, arrivalUs: Infinity });
    return this.#waiting.length === 0;
  }

  /** Beside the stream: may be lost, doubled, overtaken or late. Arrives only while the other end is open. */
  sendDatagram(payload: Out, bytes: number): void {
    if (!this.open) return;
    const { peer } = this;
    for (const delayUs of this.#network.datagramBetween(this.#host, peer.#host)) {
      this.#datagramBytes += bytes;
      peer.process.deliver(delayUs, () => {
        this.#datagramBytes -= bytes;
        if (peer.open) peer.#handler.payload(payload);
      });
    }
  }

  /** No more payloads; the other side may go on. */
  finish(): void {
    if (this.open) this.#add(this.#mark("end"));
  }

  /** Closes once everything has left. */
  close(): void {
    if (!this.open) return;
    this.open = false;
    this.#add(this.#mark("close"));
    if (this.#waiting.length === 0) this.#retire();
  }

  /** Closes at once: what waits is dropped, what is under way arrives. */
  cut(): void {
    if (this.open || this.#waiting.length > 0) {
      this.open = false;
      this.#waiting = [];
      this.#waitingBytes = 0;
      this.#launch(this.#mark("close"));
    }
    this.#retire();
  }

  /** The network resets the connection: what is under way is lost, and both ends hear of it. */
  break(): void {
    const { peer } = this;
    if (!this.open && !peer.open) return;
    this.#network.reporter.count("connections broken");
    this.#network.reporter.trace("network", () => `reset ${this.process.host} - ${peer.process.host}`);
    this.#lose();
    peer.#lose();
    this.#tellReset();
    peer.#tellReset();
  }

  /** Takes nothing in until {@link resume}. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.peer.#arm();
  }

  /** Whether the other process would answer a sign of life (or, `heard`, whether signs of its life arrive here). */
  alive(what: "heard" | "answered"): boolean {
    const { peer } = this;
    if (!peer.open || !peer.process.alive || peer.process.paused || peer.#isSilent) return false;
    return what === "heard" || !this.#isSilent;
  }

  /** Whether the way is free in both directions. */
  get reachable(): boolean {
    return !this.#isBlocked && !this.peer.#isBlocked;
  }

  /** The way changed. @returns whether it need not be told again. */
  wayMayBeFree(): boolean {
    const nothing = this.#flight.length === 0 && this.#waiting.length === 0;
    if (nothing || !this.peer.process.alive) return true;
    let free = true;
    if (this.#flight.at(-1)?.arrivalUs === Infinity) {
      if (this.#isBlocked) free = false;
      else this.#sendAgain();
    }
    if (this.#waiting.length === 0) return free;
    return this.#acknowledge() && free;
  }

  get #nowUs(): number {
    return this.#network.scheduler.nowUs;
  }

  get #isBlocked(): boolean {
    return this.#network.isBlocked(this.#host, this.peer.#host);
  }

  get #isSilent(): boolean {
    if (this.#isBlocked) return true;
    const oldest = this.#flight[0];
    if (oldest === undefined) return false;
    return oldest.arrivalUs > this.#nowUs && this.#nowUs - oldest.sentUs >= SILENT_US;
  }

  #mark(kind: "end" | "close"): Item<Out> {
    return { payload: undefined, kind, bytes: 0, taken: undefined, sentUs: this.#nowUs, arrivalUs: Infinity };
  }

  #add(item: Item<Out>): void {
    if (this.#waiting.length > 0 || !this.#hasRoom(item)) {
      this.#waiting.push(item);
      this.#waitingBytes += item.bytes;
    } else {
      this.#launch(item);
    }
  }

  /** One payload may exceed the window by itself: it goes when nothing is in front of it. */
  #hasRoom(item: Item<Out>): boolean {
    return (
      this.#flightBytes === 0 || this.#flightBytes + item.bytes <= this.#network.profile.streamWindowBytes
    );
  }

  #launch(item: Item<Out>): void {
    this.#flight.push(item);
    this.#flightBytes += item.bytes;
    const { taken } = item;
    if (taken !== undefined) {
      queueMicrotask(() => {
        if (this.process.alive) taken();
      });
    }
    if (this.#isBlocked) {
      this.#network.stall(this);
      return;
    }
    this.#schedule(item, this.#network.streamDelayUs());
    this.#arm();
  }

  #schedule(item: Item<Out>, delayUs: number): void {
    item.arrivalUs = Math.max(this.#nowUs + delayUs, this.#lastArrivalUs);
    this.#lastArrivalUs = item.arrivalUs;
  }

  #sendAgain(): void {
    const delayUs = this.#network.recoveryUs();
    for (const item of this.#flight) if (item.arrivalUs === Infinity) this.#schedule(item, delayUs);
    this.#arm();
  }

  /** What is to be handed over next. A paused receiver takes nothing in, but it hears that the connection is gone. */
  get #next(): Item<Out> | undefined {
    if (!this.peer.#paused) return this.#flight[0];
    const last = this.#flight.at(-1);
    return last?.kind === "close" ? last : undefined;
  }

  #arm(): void {
    const next = this.#next;
    if (this.#arrivalDue || next === undefined || next.arrivalUs === Infinity) return;
    this.#arrivalDue = true;
    this.peer.process.deliver(Math.max(0, next.arrivalUs - this.#nowUs), () => {
      this.#arrivalDue = false;
      this.#arrive();
    });
  }

  /** Runs in the receiving process. */
  #arrive(): void {
    for (;;) {
      const item = this.#next;
      if (item === undefined || item.arrivalUs > this.#nowUs) break;
      if (item === this.#flight[0]) this.#flight.shift();
      else this.#flight = [];
      this.#flightBytes -= item.bytes;
      this.#hand(item);
    }
    if (this.#waiting.length > 0) this.#acknowledge();
    this.#arm();
  }

  #hand(item: Item<Out>): void {
    const { peer } = this;
    if (!peer.open) return;
    if (item.kind === "payload") peer.#handler.payload(item.payload as Out);
    else if (item.kind === "end") peer.#handler.ended?.();
    else peer.#gone("closed by the peer");
  }

  #gone(reason: string): void {
    this.open = false;
    this.#lose();
    this.#retire();
    this.#handler.closed(reason);
  }

  /** There may be room: the news travels back to the sender. @returns false while its way is blocked. */
  #acknowledge(): boolean {
    if (this.#refillDue) return true;
    if (this.#network.isBlocked(this.peer.#host, this.#host)) {
      this.#network.stall(this);
      return false;
    }
    this.#refillDue = true;
    this.process.deliver(this.#network.delayUs(), () => {
      this.#refillDue = false;
      this.#refill();
    });
    return true;
  }

  #refill(): void {
    if (this.#waiting.length === 0) return;
    let sent = 0;
    for (const item of this.#waiting) {
      if (!this.#hasRoom(item)) break;
      sent += 1;
      this.#waitingBytes -= item.bytes;
      this.#launch(item);
    }
    this.#waiting.splice(0, sent);
    if (this.#waiting.length > 0) return;
    if (this.open) this.#handler.drained?.();
    else this.#retire();
  }

  #lose(): void {
    this.#flight = [];
    this.#flightBytes = 0;
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#network.unstall(this);
  }

  #tellReset(): void {
    if (!this.open) {
      this.#retire();
      return;
    }
    // Open until it hears: what it sends until then is lost.
    this.process.deliver(0, () => {
      if (this.open) this.#gone("connection reset");
    });
  }

  #retire(): void {
    this.#network.closed(this);
    if (this.open || this.peer.open) return;
    this.cancelLife?.();
    this.peer.cancelLife?.();
  }
}

/** Makes two ends one connection. */
export function joinEnds<Up, Down>(dialled: StreamEnd<Up, Down>, accepted: StreamEnd<Down, Up>): void {
  dialled.join(accepted);
  accepted.join(dialled);
}
