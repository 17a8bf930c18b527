import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, openSync, readdirSync, readFileSync } from "node:fs";

/** Linux counts processor time in this unit for user programs, whatever the kernel's own tick. */
const TICKS_PER_SECOND = 100;
const STOP_LIMIT_MS = 15_000;

export class BenchError extends Error {
  override readonly name = "BenchError";
}

export interface Usage {
  readonly residentBytes: number;
  readonly cpuSeconds: number;
}

/** @returns undefined when there is no such process, or no /proc. */
export function usageOf(pid: number): Usage | undefined {
  try {
    const status = readFileSync(`/proc/${String(pid)}/status`, "utf8");
    const resident = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
    const stat = readFileSync(`/proc/${String(pid)}/stat`, "utf8");
    // The name in parentheses may hold spaces; the fields after it start with the state, field 3.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (resident === undefined) return undefined;
    return {
      residentBytes: Number(resident) * 1024,
      cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND,
    };
  } catch {
    return undefined;
  }
}

/** Children, their children and so on; empty without /proc. */
export function descendantsOf(pid: number): readonly number[] {
  const children = new Map<number, number[]>();
  try {
    for (const name of readdirSync("/proc")) {
      if (!/^\d+$/.test(name)) continue;
      const parent = parentOf(name);
      if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
    }
  } catch {
    return [];
  }
  const found: number[] = [];
  const queue = [pid];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const own = children.get(next) ?? [];
    found.push(...own);
    queue.push(...own);
  }
  return found;
}

function parentOf(pid: string): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  } catch {
    return undefined; // gone meanwhile
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has gone by itself.
  }
}

export interface StartOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Takes standard error, and standard output unless `onLine` is given. */
  readonly logFile: string;
  /** Each line of standard output. */
  readonly onLine?: (line: string) => void;
}

const running = new Set<ManagedProcess>();

/** A process that does not outlive the bench. */
export class ManagedProcess {
  readonly #child: ChildProcess;
  readonly #logFile: string;
  /** How it ended. What it started may go on, and hold its output open. */
  readonly exited: Promise<number | NodeJS.Signals>;
  /** Nothing writes to its output any more. */
  readonly closed: Promise<void>;
  #over = false;

  constructor(options: StartOptions) {
    const log = openSync(options.logFile, "a");
    this.#logFile = options.logFile;
    this.#child = spawn(options.command, options.args, {
      stdio: ["ignore", options.onLine === undefined ? log : "pipe", log],
      env: options.env ?? process.env,
    });
    closeSync(log);
    running.add(this);
    this.exited = new Promise((resolve) => {
      const finish = (how: number | NodeJS.Signals): void => {
        this.#over = true;
        running.delete(this);
        resolve(how);
      };
      this.#child.once("error", () => finish(127));
      this.#child.once("exit", (code, name) => finish(code ?? name ?? 1));
    });
    this.closed = new Promise((resolve) => this.#child.once("close", () => resolve()));
    if (options.onLine !== undefined) this.#readLines(options.onLine);
  }

  #readLines(onLine: (line: string) => void): void {
    let rest = "";
    this.#child.stdout?.setEncoding("utf8");
    this.#child.stdout?.on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) onLine(line);
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get over(): boolean {
    return this.#over;
  }

  /** The end of what it said, for an error message. */
  logTail(): string {
    try {
      return readFileSync(this.#logFile, "utf8").trimEnd().split("\n").slice(-12).join("\n");
    } catch {
      return "";
    }
  }

  /** Asks it to stop, and ends it and what it started when it does not. */
  async stop(): Promise<void> {
    if (this.#over) return;
    const family = descendantsOf(this.pid);
    signal(this.pid, "SIGTERM");
    const limit = setTimeout(() => this.kill(), STOP_LIMIT_MS);
    await this.exited;
    clearTimeout(limit);
    for (const pid of family) signal(pid, "SIGKILL");
    await this.closed;
  }

  kill(): void {
    for (const pid of [...descendantsOf(this.pid), this.pid]) signal(pid, "SIGKILL");
  }
}

/** The last resort, when the bench itself is ended: nothing stays behind. */
export function killEverything(): void {
  for (const one of running) one.kill();
}

/** Runs a program to its end and hands out its standard output; `onLine` hears each line as it comes. */
export async function runToEnd(options: StartOptions): Promise<string> {
  const lines: string[] = [];
  const onLine = (line: string): void => {
    lines.push(line);
    options.onLine?.(line);
  };
  const started = new ManagedProcess({ ...options, onLine });
  const how = await started.exited;
  if (how === 0) await started.closed;
  if (how !== 0) throw new BenchError(`${options.command} ended with ${String(how)}\n${started.logTail()}`);
  return lines.join("\n");
}
