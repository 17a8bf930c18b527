import type { DiskOperation } from "../../../cell/src/wal/testing/memory-disk.ts";
import type { Dice, Reporter } from "../contract.ts";

/** How fast a disk is, in microseconds an operation. */
export interface DiskSpeed {
  readonly latencyUsMin: number;
  readonly latencyUsMax: number;
}

/** A device's error, as the kernel would tell it. */
export function deviceError(code: "EIO" | "ENOSPC", path: string): Error {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}

/** What is wrong with one host's disk now. */
export class DiskFaults {
  /** Until this moment of true time every operation takes as long as `stallUs` says. */
  slowUntilUs = 0;
  /** The next so many durable writes and barriers fail. */
  failing = 0;
  /** Whether a fault of this life may stop the member: then its stop is no bug. */
  excuses = false;
  readonly #dice: Dice;
  readonly #reporter: Reporter;
  #speed: DiskSpeed;
  #stallUs = 0;

  constructor(dice: Dice, reporter: Reporter, speed: DiskSpeed) {
    this.#dice = dice;
    this.#reporter = reporter;
    this.#speed = speed;
  }

  latencyUs(nowUs: number): number {
    const base = this.#dice.between(this.#speed.latencyUsMin, this.#speed.latencyUsMax);
    return nowUs < this.slowUntilUs ? base + this.#dice.between(0, this.#stallUs) : base;
  }

  stall(untilUs: number, stallUs: number): void {
    this.slowUntilUs = untilUs;
    this.#stallUs = stallUs;
  }

  /** For {@link MemoryDisk}: asked when an operation completes. */
  readonly fault = ({ kind, path }: DiskOperation): Error | undefined =>
    kind === "writeDurably" ? this.#fails(path) : undefined;

  /** A barrier of the store. */
  barrierFails(): Error | undefined {
    return this.#fails("store");
  }

  /** A new process, or the end of all faults. */
  reset(): void {
    this.failing = 0;
    this.excuses = false;
  }

  #fails(path: string): Error | undefined {
    if (this.failing <= 0) return undefined;
    this.failing -= 1;
    this.excuses = true;
    this.#reporter.count("failed syncs");
    return deviceError("EIO", path);
  }
}
