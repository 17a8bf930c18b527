import { createWriteStream } from "node:fs";
import type { WriteStream } from "node:fs";
import { join } from "node:path";

/** More of one law are counted and not told. */
const TOLD_MAX = 5;

/** Where everything is told that the torture does and sees: to the console, to a file of JSON lines, and to the verdict. */
export class Findings {
  readonly #print: (line: string) => void;
  readonly #started = performance.now();
  readonly #file: WriteStream;
  readonly #violations = new Map<string, number>();
  readonly #counts = new Map<string, number>();
  readonly #onViolation = new Set<(law: string) => void>();
  #closed = false;

  constructor(scratch: string, print: (line: string) => void) {
    this.#print = print;
    this.#file = createWriteStream(join(scratch, "history.jsonl"));
  }

  get elapsedMs(): number {
    return this.elapsedAt(performance.now());
  }

  /** The time of the torture at a reading of the monotonic clock. */
  elapsedAt(monotonicMs: number): number {
    return monotonicMs - this.#started;
  }

  /** Told at once, with the time. */
  say(text: string): void {
    if (this.#closed) return;
    const seconds = (this.elapsedMs / 1000).toFixed(1).padStart(7);
    this.#print(`${seconds} s  ${text}`);
    this.record({ kind: "said", text });
  }

  /** Called for each violation. */
  listen(onViolation: (law: string) => void): void {
    this.#onViolation.add(onViolation);
  }

  /** One line of the history file; after the end nobody cares any more. */
  record(event: object): void {
    if (this.#closed) return;
    this.#file.write(`${JSON.stringify({ atMs: Math.round(this.elapsedMs * 1000) / 1000, ...event })}\n`);
  }

  violation(law: string, text: string): void {
    if (this.#closed) return;
    const count = (this.#violations.get(law) ?? 0) + 1;
    this.#violations.set(law, count);
    if (count <= TOLD_MAX) this.say(`VIOLATION (${law}): ${text}`);
    else this.record({ kind: "violation", law, text });
    for (const listener of this.#onViolation) listener(law);
  }

  count(what: string, by = 1): void {
    this.#counts.set(what, this.counted(what) + by);
  }

  counted(what: string): number {
    return this.#counts.get(what) ?? 0;
  }

  /** Law and how often it was broken. */
  get violations(): ReadonlyMap<string, number> {
    return this.#violations;
  }

  get counts(): ReadonlyMap<string, number> {
    return this.#counts;
  }

  close(): Promise<void> {
    this.#closed = true;
    return new Promise((resolve) => this.#file.end(resolve));
  }
}
