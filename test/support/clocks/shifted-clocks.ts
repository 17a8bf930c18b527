// Moves the clocks of a running process: a machine that was suspended, a wall clock that was set.
import { closeSync, existsSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { run } from "../run.ts";

const SOURCE = join(import.meta.dirname, "shifted-clocks.c");
const COMPILERS = ["cc", "gcc", "clang"];
const NS_PER_MS = 1_000_000;

/** Compiled for this machine. */
export class ClockLibrary {
  readonly #path: string;

  private constructor(path: string) {
    this.#path = path;
  }

  /** @returns undefined where no C compiler is. */
  static async build(folder: string): Promise<ClockLibrary | undefined> {
    if (process.platform !== "linux") return undefined;
    const path = join(folder, "shifted-clocks.so");
    for (const compiler of COMPILERS) {
      const { code, err } = await run(compiler, ["-shared", "-fPIC", "-O2", "-o", path, SOURCE]).catch(
        () => ({ code: undefined, err: "" }),
      );
      if (code === 0) return new ClockLibrary(path);
      // There is a compiler, and it does not take the source: that is nobody's missing program.
      if (code !== undefined) throw new Error(`${compiler} ended with ${String(code)}: ${err}`);
    }
    return undefined;
  }

  /** Clocks for one process, true at first. `file` holds by how much they are off. */
  clocks(file: string): ShiftedClocks {
    return new ShiftedClocks(this.#path, file);
  }
}

export class ShiftedClocks {
  /** For the process whose clocks they are. */
  readonly env: Readonly<Record<string, string>>;
  readonly #file: string;
  #monotonicMs = 0;
  #wallMs = 0;

  constructor(library: string, file: string) {
    this.#file = file;
    if (!existsSync(file)) writeFileSync(file, Buffer.alloc(16));
    this.env = { LD_PRELOAD: library, SHIFTED_CLOCKS: file };
  }

  /** The monotonic clock has stood still for so long, as while a machine sleeps; the wall's has gone on. */
  lose(ms: number): void {
    this.#monotonicMs -= ms;
    this.#write();
  }

  /** Somebody has set the wall clock, by so much. */
  jump(byMs: number): void {
    this.#wallMs += byMs;
    this.#write();
  }

  #write(): void {
    const bytes = Buffer.alloc(16);
    bytes.writeBigInt64LE(BigInt(Math.round(this.#monotonicMs * NS_PER_MS)), 0);
    bytes.writeBigInt64LE(BigInt(Math.round(this.#wallMs * NS_PER_MS)), 8);
    const file = openSync(this.#file, "r+");
    writeSync(file, bytes, 0, bytes.length, 0);
    closeSync(file);
  }
}

/**
 * Milliseconds since the machine started, with its sleep: true also in a process whose clocks are shifted. Steps of ten
 * milliseconds, rounded down.
 */
export function trueNowMs(): number {
  return Number(readFileSync("/proc/uptime", "latin1").split(" ", 1)[0]) * 1_000;
}
