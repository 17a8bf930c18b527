/**
 * Time and deadlines that two threads share. `performance.now()` counts from each thread's own beginning; the clock behind
 * `process.hrtime` is one for the process.
 */

/** Milliseconds of the process's monotonic clock. */
export function sharedNowMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1_000_000;
}

const MICROSECONDS = 1000;

/** When the main loop was last seen to turn. */
export class Pulse {
  readonly buffer: SharedArrayBuffer;
  readonly #at: BigInt64Array;

  constructor(buffer: SharedArrayBuffer = new SharedArrayBuffer(8)) {
    this.buffer = buffer;
    this.#at = new BigInt64Array(buffer);
  }

  beat(nowMs: number): void {
    Atomics.store(this.#at, 0, toMicroseconds(nowMs));
  }

  silentMs(nowMs: number): number {
    return nowMs - fromMicroseconds(Atomics.load(this.#at, 0));
  }
}

/** Two numbers a lease: until when it certainly lasts by the monotonic clock, and by the wall's. 0: it is over. */
export class Deadlines {
  /** Leases of one buffer. */
  static readonly places = 1024;
  readonly buffer: SharedArrayBuffer;
  readonly #at: BigInt64Array;

  constructor(buffer: SharedArrayBuffer = new SharedArrayBuffer(Deadlines.places * 16)) {
    this.buffer = buffer;
    this.#at = new BigInt64Array(buffer);
  }

  /**
   * A reader that comes in between sees one old and one new number, of which the smaller one counts: never more time than
   * either of the two promises.
   */
  set(place: number, deadline: { readonly monotonicMs: number; readonly wallMs: number }): void {
    Atomics.store(this.#at, 2 * place, toMicroseconds(deadline.monotonicMs));
    Atomics.store(this.#at, 2 * place + 1, toMicroseconds(deadline.wallMs));
  }

  end(place: number): void {
    this.set(place, { monotonicMs: 0, wallMs: 0 });
  }

  leftMs(place: number, now: { readonly monotonicMs: number; readonly wallMs: number }): number {
    const monotonic = fromMicroseconds(Atomics.load(this.#at, 2 * place)) - now.monotonicMs;
    const wall = fromMicroseconds(Atomics.load(this.#at, 2 * place + 1)) - now.wallMs;
    return Math.max(0, Math.min(monotonic, wall));
  }
}

function toMicroseconds(ms: number): bigint {
  return BigInt(Math.floor(ms * MICROSECONDS));
}

function fromMicroseconds(at: bigint): number {
  return Number(at) / MICROSECONDS;
}
