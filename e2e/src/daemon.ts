// Programs that stay: started detached, remembered by process id and start time, stopped by exactly that.
import { spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { commandEnvironment } from "./command.ts";
import { E2eError } from "./error.ts";
import { until } from "./waiting.ts";

/** One process, and never another one that got its number later. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Clock ticks between the machine's boot and the process's start. */
  readonly startTicks: string;
}

/** Reads `/proc/PID/stat`: undefined when there is no such process, or it is a zombie. */
export function identityOf(pid: number): ProcessIdentity | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${String(pid)}/stat`, "utf8");
  } catch {
    return undefined;
  }
  return parseStat(pid, stat);
}

/** The name in parentheses may hold spaces and parentheses itself, so the fields count from the last one. */
export function parseStat(pid: number, stat: string): ProcessIdentity | undefined {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state] = fields;
  const startTicks = fields[19];
  if (startTicks === undefined || state === "Z" || state === "X") return undefined;
  return { pid, startTicks };
}

export function isAlive(identity: ProcessIdentity): boolean {
  return identityOf(identity.pid)?.startTicks === identity.startTicks;
}

/** Sends a signal to that process, if it is still the same. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): void {
  if (!isAlive(identity)) return;
  try {
    process.kill(identity.pid, signal);
  } catch {
    // It ended in between.
  }
}

export const formatIdentity = (identity: ProcessIdentity): string =>
  `${String(identity.pid)} ${identity.startTicks}\n`;

export function parseIdentity(text: string): ProcessIdentity | undefined {
  const [pid, startTicks] = text.trim().split(" ");
  if (pid === undefined || startTicks === undefined || !/^\d+$/.test(pid)) return undefined;
  return { pid: Number(pid), startTicks };
}

const pidFileOf = (runFolder: string, name: string): string => join(runFolder, `${name}.pid`);

/** The recorded process of a daemon, if it lives. */
export function runningDaemon(runFolder: string, name: string): ProcessIdentity | undefined {
  const file = pidFileOf(runFolder, name);
  if (!existsSync(file)) return undefined;
  const identity = parseIdentity(readFileSync(file, "utf8"));
  return identity !== undefined && isAlive(identity) ? identity : undefined;
}

/** What a daemon is started with. */
export interface DaemonSpec {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Standard output and error, appended. */
  readonly logFile: string;
}

/** Starts a daemon and records it in `runFolder`. Its own session, so that it outlives the harness and hears no Ctrl-C. */
export function startDaemon(runFolder: string, spec: DaemonSpec): ProcessIdentity {
  const found = runningDaemon(runFolder, spec.name);
  if (found !== undefined)
    throw new E2eError("state", `${spec.name} runs already (process ${String(found.pid)})`);
  mkdirSync(dirname(spec.logFile), { recursive: true });
  const log = openSync(spec.logFile, "a");
  const child = spawn(spec.command, [...spec.args], {
    detached: true,
    stdio: ["ignore", log, log],
    cwd: "/",
    env: commandEnvironment(),
  });
  closeSync(log);
  // `spawn` reports a missing program through the event; without a listener the harness would end on it.
  child.on("error", () => undefined);
  child.unref();
  const identity = child.pid === undefined ? undefined : identityOf(child.pid);
  if (identity === undefined)
    throw new E2eError("command", `${spec.name}: ${spec.command} could not be started`);
  writeFileSync(pidFileOf(runFolder, spec.name), formatIdentity(identity));
  return identity;
}

/** Ends a daemon: SIGTERM, and SIGKILL after `graceMs` (default 5 s; 0 kills at once). Absent or gone is fine. */
export async function stopDaemon(runFolder: string, name: string, graceMs = 5_000): Promise<void> {
  const identity = runningDaemon(runFolder, name);
  if (identity !== undefined) await endProcess(identity, graceMs);
  rmSync(pidFileOf(runFolder, name), { force: true });
}

export async function endProcess(identity: ProcessIdentity, graceMs: number): Promise<void> {
  if (graceMs > 0) {
    signalProcess(identity, "SIGTERM");
    const gone = await until("the end of a process", () => !isAlive(identity), {
      timeoutMs: graceMs,
      everyMs: 25,
    }).catch(() => false);
    if (gone) return;
  }
  signalProcess(identity, "SIGKILL");
  await until(`the end of process ${String(identity.pid)} after SIGKILL`, () => !isAlive(identity), {
    timeoutMs: 10_000,
    everyMs: 25,
  });
}
