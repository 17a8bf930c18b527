/** Many seeds over a few child processes. */
import { fork } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import { addCoverage, emptyCoverage } from "../coverage.ts";
import type { Coverage } from "../coverage.ts";

export interface ToWorker {
  readonly seed: number;
}

export type FromWorker =
  | { readonly kind: "ready" }
  | {
      readonly kind: "done";
      readonly seed: number;
      readonly coverage: Coverage;
      readonly simulatedSeconds: number;
      readonly law?: string;
      readonly text?: string;
    };

export interface SeedViolation {
  readonly seed: number;
  readonly law: string;
  readonly text: string;
}

export interface CampaignReport {
  seeds: number;
  readonly coverage: Coverage;
  simulatedSeconds: number;
  realSeconds: number;
  /** By seed. */
  readonly violations: SeedViolation[];
}

export interface CampaignOptions {
  readonly from: number;
  /** Included. */
  readonly to: number;
  readonly jobs: number;
  /** How the children are started, e.g. with a canary. */
  readonly launch?: {
    readonly execArgv: readonly string[];
    readonly env: Readonly<Record<string, string>>;
  };
  /** Stop at the first violation. */
  readonly untilFirst?: boolean;
  readonly onProgress?: (report: CampaignReport) => void;
}

/** A history that takes longer than this hangs. */
const SEED_MS_MAX = 300_000;
/** More violations than this tell nothing new. */
const VIOLATIONS_MAX = 20;

const WORKER = fileURLToPath(new URL("worker.ts", import.meta.url));

export class Campaign {
  readonly #options: CampaignOptions;
  readonly #report: CampaignReport = {
    seeds: 0,
    coverage: emptyCoverage(),
    simulatedSeconds: 0,
    realSeconds: 0,
    violations: [],
  };
  #next: number;

  constructor(options: CampaignOptions) {
    this.#options = options;
    this.#next = options.from;
  }

  /** Rejects when a child dies or hangs: then the seeds that it ran prove nothing. */
  async run(): Promise<CampaignReport> {
    const started = performance.now();
    const { from, to, jobs } = this.#options;
    const workers = Math.max(1, Math.min(jobs, to - from + 1));
    await Promise.all(Array.from({ length: workers }, () => this.#work()));
    this.#report.realSeconds = (performance.now() - started) / 1_000;
    this.#report.violations.sort((a, b) => a.seed - b.seed);
    return this.#report;
  }

  get #isOver(): boolean {
    const { to, untilFirst = false } = this.#options;
    const { violations } = this.#report;
    return this.#next > to || violations.length >= (untilFirst ? 1 : VIOLATIONS_MAX);
  }

  #work(): Promise<void> {
    const { launch } = this.#options;
    const child = fork(WORKER, {
      execArgv: [...(launch?.execArgv ?? []), "--max-semi-space-size=32"],
      env: { ...process.env, ...launch?.env },
    });
    return new Promise((resolve, reject) => {
      let watchdog: NodeJS.Timeout | undefined;
      let seed = 0;
      const fail = (why: string): void => {
        child.kill("SIGKILL");
        reject(new Error(`seed ${String(seed)}: ${why}`));
      };
      child.on("message", (message: FromWorker) => {
        clearTimeout(watchdog);
        if (message.kind === "done") this.#done(message);
        if (this.#isOver) {
          child.disconnect();
          return;
        }
        seed = this.#next;
        this.#next += 1;
        send(child, { seed });
        watchdog = setTimeout(() => fail("hangs"), SEED_MS_MAX);
      });
      child.on("error", reject);
      child.on("exit", (code, signal) => {
        clearTimeout(watchdog);
        if (code === 0) resolve();
        else fail(`the process ended with ${signal ?? String(code)}`);
      });
    });
  }

  #done(message: FromWorker & { readonly kind: "done" }): void {
    const report = this.#report;
    report.seeds += 1;
    report.simulatedSeconds += message.simulatedSeconds;
    addCoverage(report.coverage, message.coverage);
    const { seed, law, text } = message;
    if (law !== undefined) report.violations.push({ seed, law, text: text ?? law });
    this.#options.onProgress?.(report);
  }
}

function send(child: ChildProcess, message: ToWorker): void {
  child.send(message);
}
