import type { Clock } from "../../../cell/src/replica/environment.ts";

/** Clocks of one member: the monotonic one may stand still for a while, the wall clock may jump. */
export class MemberClock implements Clock {
  #lostMs = 0;
  #pausedAtMs: number | undefined;
  #wallOffsetMs = 0;

  monotonicMs(): number {
    return (this.#pausedAtMs ?? performance.now()) - this.#lostMs;
  }

  wallMs(): number {
    return Date.now() + this.#wallOffsetMs;
  }

  /** A second pause during one changes nothing. */
  pause(forMs: number): void {
    if (this.#pausedAtMs !== undefined) return;
    const at = performance.now();
    this.#pausedAtMs = at;
    setTimeout(() => {
      this.#pausedAtMs = undefined;
      this.#lostMs += performance.now() - at;
    }, forMs).unref();
  }

  jump(byMs: number): void {
    this.#wallOffsetMs += byMs;
  }
}
