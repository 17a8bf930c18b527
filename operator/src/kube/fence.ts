import type { WriteGate, WritePass } from "./gate.ts";
import type { Runtime } from "./runtime.ts";
import { KubeError } from "./types.ts";

/**
 * The right to write, until a moment that is moved on by every renewal. It ends by itself: nobody has to notice. Looks at
 * the clock at each entry, because a process that was stopped runs its next line before its late timers.
 */
export class Fence implements WriteGate {
  private readonly runtime: Runtime;
  private readonly onEnd: () => void;
  private open = false;
  private monotonicEndMs = 0;
  private wallEndMs = 0;
  private wallStartMs = 0;
  private cancelTimer: (() => void) | undefined;
  private readonly passes = new Set<AbortController>();
  private readonly emptied: (() => void)[] = [];

  /** @param onEnd called once each time that the right ends without {@link close} */
  constructor(runtime: Runtime, onEnd: () => void) {
    this.runtime = runtime;
    this.onEnd = onEnd;
  }

  /**
   * True while this process may write. The wall clock counts too: it goes on while a machine is suspended, when the
   * monotonic clock stands still. A jump of it can only end the right too early.
   */
  get holds(): boolean {
    const wallMs = this.runtime.wallMs();
    return (
      this.open &&
      this.runtime.monotonicMs() < this.monotonicEndMs &&
      wallMs < this.wallEndMs &&
      wallMs > this.wallStartMs - (this.wallEndMs - this.wallStartMs)
    );
  }

  /** The right to write lasts `durationMs`, counted from a moment before the renewal was sent. */
  extend(from: { readonly monotonicMs: number; readonly wallMs: number }, durationMs: number): void {
    this.open = true;
    this.monotonicEndMs = from.monotonicMs + durationMs;
    this.wallStartMs = from.wallMs;
    this.wallEndMs = from.wallMs + durationMs;
    this.arm();
  }

  enter(): WritePass {
    if (!this.holds) {
      this.expire();
      throw fenced();
    }
    const controller = new AbortController();
    this.passes.add(controller);
    return {
      signal: controller.signal,
      leave: () => {
        this.passes.delete(controller);
        if (this.passes.size === 0) for (const done of this.emptied.splice(0)) done();
      },
    };
  }

  /** Ends the right now if its time is over. */
  expire(): void {
    if (this.open && !this.holds) this.revoke();
  }

  /** Ends the right now: another holds it. */
  revoke(): void {
    if (!this.open) return;
    this.shut();
    for (const pass of this.passes) pass.abort(fenced());
    this.onEnd();
  }

  /**
   * Lets nothing more in and waits for the writes under way, until the right would have ended.
   * @returns true: none is under way any more, and the right had not ended before
   */
  async close(): Promise<boolean> {
    const held = this.holds;
    const leftMs = this.monotonicEndMs - this.runtime.monotonicMs();
    this.shut();
    if (held && this.passes.size > 0) {
      let cancel: (() => void) | undefined;
      await new Promise<void>((resolve) => {
        this.emptied.push(resolve);
        cancel = this.runtime.after(leftMs, resolve);
      });
      cancel?.();
    }
    const clean = this.passes.size === 0;
    for (const pass of this.passes) pass.abort(fenced());
    return held && clean;
  }

  private arm(): void {
    this.cancelTimer?.();
    const leftMs = this.monotonicEndMs - this.runtime.monotonicMs();
    // Timers may fire a moment early: then once more.
    this.cancelTimer = this.runtime.after(Math.max(1, leftMs), () => {
      this.expire();
      if (this.open) this.arm();
    });
  }

  private shut(): void {
    this.open = false;
    this.cancelTimer?.();
    this.cancelTimer = undefined;
  }
}

function fenced(): KubeError {
  return new KubeError("fenced", "this process does not hold the lease and may not write");
}
