import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { ClockLibrary, ShiftedClocks } from "../support/clocks/shifted-clocks.ts";
import { trueNowMs } from "../support/clocks/shifted-clocks.ts";
import type { Kind, Order, Report, WorkerOptions } from "./worker/report.ts";

const MAIN = join(import.meta.dirname, "worker/main.ts");
const FINISH_MS_MAX = 60_000;

export interface KeeperOptions extends Omit<WorkerOptions, "name" | "seed"> {
  readonly name: string;
  readonly seed: string;
  readonly scratch: string;
  readonly library: ClockLibrary | undefined;
  readonly onReport: (worker: Worker, report: Report) => void;
}

/** One wait is one object. */
export interface Wait {
  readonly kind: Kind;
}

/** One process of the zoo, from its start to its end. */
export class Worker {
  readonly name: string;
  /** Undefined where clocks cannot be moved. */
  readonly clocks: ShiftedClocks | undefined;
  /** What it waits for. */
  waiting: Wait | undefined;
  /** When it was gone, in true time. */
  endedAtMs: number | undefined;
  wasKilled = false;
  #nextOwning: PromiseWithResolvers<void> = Promise.withResolvers();
  #nextLook: PromiseWithResolvers<void> = Promise.withResolvers();
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;

  constructor(options: KeeperOptions) {
    const { scratch, library, onReport, ...workerOptions } = options;
    this.name = options.name;
    this.clocks = library?.clocks(join(scratch, `${options.name}.clocks`));
    const log = openSync(join(scratch, "workers.log"), "a");
    this.#child = spawn(process.execPath, [MAIN, JSON.stringify(workerOptions)], {
      stdio: ["pipe", "pipe", log],
      env: { ...process.env, NODE_COMPILE_CACHE: join(scratch, "compiled"), ...this.clocks?.env },
    });
    closeSync(log);
    // "close", not "exit": its last lines count.
    this.#ended = new Promise((resolve) =>
      this.#child.once("close", () => {
        this.endedAtMs = trueNowMs();
        resolve();
      }),
    );
    this.#child.stdin?.on("error", () => undefined);
    const { stdout } = this.#child;
    if (stdout === null) throw new TypeError("the worker's output is piped");
    createInterface({ input: stdout }).on("line", (line) => {
      const report = JSON.parse(line) as Report;
      this.#note(report);
      onReport(this, report);
    });
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Resolves when it becomes the owner of something. */
  nextOwning(): Promise<void> {
    return this.#nextOwning.promise;
  }

  /** Resolves when it has looked again, and is sure that it owns something. */
  nextLook(): Promise<void> {
    return this.#nextLook.promise;
  }

  /** How it ended; for findings. */
  get end(): string {
    return String(this.#child.exitCode ?? this.#child.signalCode);
  }

  stop(): void {
    this.#child.kill("SIGSTOP");
  }

  goOn(): void {
    this.#child.kill("SIGCONT");
  }

  order(order: Order): void {
    this.#child.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  async kill(): Promise<void> {
    this.wasKilled = true;
    this.#child.kill("SIGKILL");
    await this.#ended;
  }

  /** Lets it end what is under way. @returns whether it did so in time. */
  async finish(): Promise<boolean> {
    this.goOn();
    this.order({ what: "finish" });
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      void this.kill();
    }, FINISH_MS_MAX);
    await this.#ended;
    clearTimeout(timer);
    return !late;
  }

  ended(): Promise<void> {
    return this.#ended;
  }

  #note(report: Report): void {
    switch (report.what) {
      case "waiting":
        this.waiting = { kind: report.kind };
        return;
      case "gave up":
        this.waiting = undefined;
        return;
      case "acquired":
        this.waiting = undefined;
        this.#nextOwning.resolve();
        this.#nextOwning = Promise.withResolvers();
        return;
      case "sure":
        this.#nextLook.resolve();
        this.#nextLook = Promise.withResolvers();
        return;
      default:
        return;
    }
  }
}
