// Programs that run to their end.
import { spawn, type ChildProcess } from "node:child_process";
import { createWriteStream } from "node:fs";
import { E2eError } from "./error.ts";

/** How a program is run. */
export interface CommandOptions {
  /** Written to its standard input, which is then closed. Absent: no input. */
  readonly input?: string;
  readonly cwd?: string;
  /** Added to the harness's own environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** After it the program is killed and the call throws `timeout`. Default: 120 s. */
  readonly timeoutMs?: number;
  /** Kills the program when it fires; the call throws `interrupted`. */
  readonly signal?: AbortSignal | undefined;
  /** Exit codes that are no failure. Default: only 0. */
  readonly allowedCodes?: readonly number[];
  /** Where standard output and error go too, for long work. */
  readonly logFile?: string;
}

/** What a program said. */
export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const DEFAULT_TIMEOUT_MS = 120_000;
/** What is kept of a program's output; the rest is dropped from the front. */
const OUTPUT_BYTES_MAX = 64 * 2 ** 20;
const ERROR_LINES = 15;

const running = new Set<ChildProcess>();

/** System programs lie in sbin, which a plain user's PATH often lacks. */
export function commandEnvironment(added: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  return { ...process.env, PATH: `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`, ...added };
}

/** Kills what is still running: at an interrupt, before the cluster is taken down. */
export function killRunningCommands(): void {
  for (const child of running) killGroup(child);
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // It ended by itself.
  }
}

class Output {
  #chunks: Buffer[] = [];
  #bytes = 0;

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    while (this.#bytes > OUTPUT_BYTES_MAX) this.#bytes -= this.#chunks.shift()?.length ?? 0;
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString();
  }
}

function failure(line: string, result: CommandResult): E2eError {
  const said = `${result.stderr}\n${result.stdout}`.trim().split("\n").slice(-ERROR_LINES).join("\n  ");
  return new E2eError("command", `${line}\n  ended with ${String(result.code)}:\n  ${said}`);
}

/** Runs a program to its end. Throws E2eError `command` with the last lines of what it said when its exit code is not allowed. */
export async function run(
  command: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  const line = `${command} ${args.join(" ")}`.slice(0, 300);
  if (options.signal?.aborted === true) throw new E2eError("interrupted", `not started: ${line}`);
  // A group of its own: Ctrl-C in a terminal reaches the harness alone, which then ends things in order.
  const child = spawn(command, [...args], {
    detached: true,
    stdio: [options.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    env: commandEnvironment(options.env),
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  running.add(child);
  const stdout = new Output();
  const stderr = new Output();
  const log = options.logFile === undefined ? undefined : createWriteStream(options.logFile, { flags: "a" });
  child.stdout?.on("data", (chunk: Buffer) => (stdout.push(chunk), log?.write(chunk)));
  child.stderr?.on("data", (chunk: Buffer) => (stderr.push(chunk), log?.write(chunk)));
  // A program may end without reading all of its input; its exit code tells whether that matters.
  child.stdin?.on("error", () => undefined);
  if (options.input !== undefined) child.stdin?.end(options.input);

  let ended: "timeout" | "interrupted" | undefined;
  const stop = (why: "timeout" | "interrupted"): void => {
    ended = why;
    killGroup(child);
  };
  const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  const timer = setTimeout(() => stop("timeout"), timeoutMs);
  const onAbort = (): void => stop("interrupted");
  options.signal?.addEventListener("abort", onAbort);
  try {
    const code = await new Promise<number>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (status) => resolve(status ?? -1));
    });
    const result = { code, stdout: stdout.text(), stderr: stderr.text() };
    if (ended === "timeout")
      throw new E2eError("timeout", `${line}\n  did not end within ${String(timeoutMs / 1000)} s`);
    if (ended === "interrupted") throw new E2eError("interrupted", `interrupted: ${line}`);
    if (!(options.allowedCodes ?? [0]).includes(code)) throw failure(line, result);
    return result;
  } catch (error) {
    if (error instanceof E2eError) throw error;
    throw new E2eError("command", `${line}\n  could not be run: ${(error as Error).message}`, {
      cause: error,
    });
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", onAbort);
    running.delete(child);
    log?.end();
  }
}

/** Like `run`, and a failure of any kind is no failure: for tearing down what may be half there. */
export async function tryRun(
  command: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  try {
    return await run(command, args, options);
  } catch (error) {
    return { code: -1, stdout: "", stderr: (error as Error).message };
  }
}
