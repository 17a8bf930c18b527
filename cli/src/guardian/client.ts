/** The command line's side of its guardian. */
import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { Session } from "@lockstep/client";
import { readClocks } from "./clocks.ts";
import type { GuardianMessage } from "./guard.ts";

/** COMMAND's environment has the run's mark under this name. */
export const RUN_VARIABLE = "LOCKSTEP_LOCK_RUN";
/** The deadline is told this often for each TTL, and at least every half second. */
const TOLD_PER_TTL = 10;
const TOLD_MS_MAX = 500;

/** How often the deadline is told. */
export function tellMs(ttlMs: number): number {
  return Math.min(TOLD_MS_MAX, ttlMs / TOLD_PER_TTL);
}

/** Stops COMMAND in time, also when this process is stopped or killed. */
export class Guardian {
  /** What COMMAND's environment must have under {@link RUN_VARIABLE}. */
  readonly run: string;
  readonly #process: ChildProcess;
  readonly #exited: Promise<void>;
  #tell: NodeJS.Timeout | undefined;
  #isGone = false;

  private constructor(child: ChildProcess, run: string) {
    this.#process = child;
    this.run = run;
    this.#exited = new Promise((resolve) => {
      child.once("exit", () => resolve());
      child.once("error", () => resolve());
    });
    const gone = (): void => {
      this.#isGone = true;
      clearInterval(this.#tell);
    };
    child.once("exit", gone);
    child.once("error", gone);
    child.stdin?.on("error", gone);
  }

  /** Resolves when it watches. */
  static async start(graceMs: number): Promise<Guardian> {
    const run = randomUUID();
    const file = new URL(`main.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`, import.meta.url);
    const child = spawn(process.execPath, [file.pathname, String(graceMs), `${RUN_VARIABLE}=${run}`], {
      // A session of its own: what a terminal sends to the job does not reach it.
      detached: true,
      stdio: ["pipe", "pipe", "ignore"],
      env: {},
    });
    const guardian = new Guardian(child, run);
    const ended = once(child, "exit").then(() => {
      throw new Error("the guardian process ended at once");
    });
    await Promise.race([once(child.stdout, "data"), ended]);
    ended.catch(() => undefined);
    return guardian;
  }

  /** Whether it still watches. */
  get isThere(): boolean {
    return !this.#isGone;
  }

  /** From now on it knows how long the session lasts; keep calling is not needed. */
  watch(session: Session): void {
    const tell = (): void => {
      // Before what is left is read: a stop in between must not move the deadline.
      const { monotonicMs, wallMs } = readClocks();
      const leftMs = session.remainingMs();
      if (leftMs <= 0) return;
      this.#send({ kind: "deadline", monotonicMs: monotonicMs + leftMs, wallMs: wallMs + leftMs });
    };
    tell();
    this.#tell = setInterval(tell, tellMs(session.ttlMs));
  }

  started(pid: number): void {
    this.#send({ kind: "started", pid });
  }

  /** TERM now, KILL after the grace period. */
  stop(): void {
    clearInterval(this.#tell);
    this.#send({ kind: "stop" });
  }

  /** COMMAND has ended, and was to be stopped: resolves when nothing of it is left. */
  async untilNothingIsLeft(): Promise<void> {
    this.close();
    await this.#exited;
  }

  /** COMMAND has ended, or never ran. */
  close(): void {
    clearInterval(this.#tell);
    this.#send({ kind: "ended" });
    this.#process.unref();
  }

  #send(message: GuardianMessage): void {
    if (!this.#isGone) this.#process.stdin?.write(`${JSON.stringify(message)}\n`);
  }
}
