import type { DiskOperation } from "../../../cell/src/wal/testing/memory-disk.ts";
import type { Dice, Reporter, SimProcess } from "../contract.ts";

/** How fast a disk is, in microseconds an operation. */
export interface DiskSpeed {
  readonly latencyUsMin: number;
  readonly latencyUsMax: number;
}

/** A device's error, as the kernel would tell it. */
export function deviceError(code: "EIO" | "ENOSPC", path: string): Error {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}

/** An operation that takes longer than the disk's speed says. */
interface Hanging {
  readonly process: SimProcess;
  readonly complete: () => void;
  readonly cancel: () => void;
}

/** What is wrong with one host's disk now. */
export class DiskFaults {
  /** The next so many durable writes and barriers fail. */
  failing = 0;
  /** Whether a fault of this life may stop the member: then its stop is no bug. */
  excuses = false;
  readonly #dice: Dice;
  readonly #reporter: Reporter;
  readonly #speed: DiskSpeed;
  /** In order of their beginning. */
  readonly #hanging = new Set<Hanging>();
  #slowUntilUs = 0;
  #stallUs = 0;

  constructor(dice: Dice, reporter: Reporter, speed: DiskSpeed) {
    this.#dice = dice;
    this.#reporter = reporter;
    this.#speed = speed;
  }

  /** Calls `complete` in the process that asked, when the disk has done what was asked of it at `nowUs`. */
  operate(process: SimProcess, nowUs: number, complete: () => void): void {
    const latencyUs = this.#latencyUs();
    if (nowUs >= this.#slowUntilUs) {
      process.deliver(latencyUs, complete);
      return;
    }
    const cancel = process.deliver(latencyUs + this.#dice.between(0, this.#stallUs), () => {
      this.#hanging.delete(hanging);
      complete();
    });
    const hanging: Hanging = { process, complete, cancel };
    this.#hanging.add(hanging);
  }

  /** What begins until this moment of true time takes up to `stallUs` longer, also past that moment. */
  stall(untilUs: number, stallUs: number): void {
    this.#slowUntilUs = untilUs;
    this.#stallUs = stallUs;
  }

  /**
   * The end of all faults, also for what hangs: bounds that count from the last fault hold for a cell whose disks
   * answer, and one operation of a stall may take longer than all of them.
   */
  mend(): void {
    this.#slowUntilUs = 0;
    this.failing = 0;
    const hanging = [...this.#hanging];
    this.#hanging.clear();
    for (const { process, complete, cancel } of hanging) {
      cancel();
      process.deliver(this.#latencyUs(), complete);
    }
  }

  /** For {@link MemoryDisk}: asked when an operation completes. */
  readonly fault = ({ kind, path }: DiskOperation): Error | undefined =>
    kind === "writeDurably" ? this.#fails(path) : undefined;

  /** A barrier of the store. */
  barrierFails(): Error | undefined {
    return this.#fails("store");
  }

  /** A new process: the last one's operations never complete. */
  reset(): void {
    this.failing = 0;
    this.excuses = false;
    this.#hanging.clear();
  }

  #latencyUs(): number {
    return this.#dice.between(this.#speed.latencyUsMin, this.#speed.latencyUsMax);
  }

  #fails(path: string): Error | undefined {
    if (this.failing <= 0) return undefined;
    this.failing -= 1;
    this.excuses = true;
    this.#reporter.count("failed syncs");
    return deviceError("EIO", path);
  }
}
