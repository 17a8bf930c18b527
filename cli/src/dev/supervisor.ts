import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, mkdirSync, openSync } from "node:fs";
import { cellEnvironment } from "../commands/cell-program.ts";
import type { Terminal } from "../terminal.ts";
import type { DevMember } from "./layout.ts";

const STOP_MS_MAX = 10_000;
const BACKOFF_BASE_MS = 200;
const BACKOFF_MS_MAX = 10_000;
const HOPELESS_DEATHS = 5;
/** A member that ran this long is healthy again. */
const HEALTHY_MS = 10_000;

export interface SupervisedProcess {
  readonly member: DevMember;
  readonly command: string;
  readonly args: readonly string[];
}

/** Keeps one member's process running, its output in the member's log file. */
export class Supervisor {
  readonly #terminal: Terminal;
  readonly #process: SupervisedProcess;
  readonly #restart: boolean;
  #child: ChildProcess | undefined;
  #stopping = false;
  #deaths = 0;
  #startedAt = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(terminal: Terminal, process: SupervisedProcess, options: { readonly restart: boolean }) {
    this.#terminal = terminal;
    this.#process = process;
    this.#restart = options.restart;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** It died and will not be restarted, or died again and again: waiting for it is no use. */
  get hopeless(): boolean {
    const gone = this.#child === undefined && this.#timer === undefined;
    return gone || this.#deaths >= HOPELESS_DEATHS;
  }

  start(): void {
    const { member, command, args } = this.#process;
    mkdirSync(member.folder, { recursive: true });
    const log = openSync(member.logFile, "a");
    const child = spawn(command, args, { stdio: ["ignore", log, log], env: cellEnvironment() });
    closeSync(log);
    this.#child = child;
    this.#startedAt = this.#terminal.now();
    let over = false;
    const onOver = (how: string): void => {
      if (over) return;
      over = true;
      this.#child = undefined;
      this.#onDeath(how);
    };
    child.once("error", (error) => onOver(error.message));
    child.once("exit", (code, signal) =>
      onOver(signal === null ? `exit code ${String(code)}` : `signal ${signal}`),
    );
  }

  /** TERM, up to 10 s, KILL. */
  async stop(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const child = this.#child;
    if (child === undefined) return;
    await new Promise<void>((resolve) => {
      const killTimer = setTimeout(() => child.kill("SIGKILL"), STOP_MS_MAX);
      child.once("exit", () => {
        clearTimeout(killTimer);
        resolve();
      });
      child.kill("SIGTERM");
    });
  }

  #onDeath(how: string): void {
    if (this.#stopping) return;
    const { name, logFile } = this.#process.member;
    if (!this.#restart) {
      this.#terminal.err(`${name} died (${how}); its log is ${logFile}\n`);
      return;
    }
    this.#deaths = this.#terminal.now() - this.#startedAt >= HEALTHY_MS ? 1 : this.#deaths + 1;
    const delayMs = restartDelayMs(this.#deaths);
    this.#terminal.err(
      `${name} died (${how}); starting it again in ${String(delayMs)} ms; its log is ${logFile}\n`,
    );
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.start();
    }, delayMs);
  }
}

export function restartDelayMs(deaths: number): number {
  return Math.min(BACKOFF_MS_MAX, BACKOFF_BASE_MS * 2 ** Math.min(deaths - 1, 16));
}
