/** Which processes belong to a command, and how to end all of them. */
import { readdirSync, readFileSync } from "node:fs";

/** One process, told from a later one with the same number. */
export interface ProcessRef {
  readonly pid: number;
  /** When it began, as the kernel counts; absent: not known (no /proc). */
  readonly startedAt?: string;
}

interface Entry extends ProcessRef {
  readonly parent: number;
}

/**
 * The command, all that it started, and, wherever they were moved to, all that still carry the run's mark in their
 * environment. Reads Linux's /proc; elsewhere it is the command alone.
 *
 * @param mark `NAME=VALUE`, unique to this run
 * @param except never among them: the guardian and the command line that asked for it
 */
export function processesOf(command: ProcessRef, mark: string, except: ReadonlySet<number>): ProcessRef[] {
  const entries = readEntries();
  if (entries === undefined) return [command];
  const found = new Map<number, Entry>();
  const itself = entries.get(command.pid);
  if (itself !== undefined && isSame(itself, command)) addTree(entries, itself, found);
  for (const entry of entries.values()) {
    if (!found.has(entry.pid) && !except.has(entry.pid) && carries(entry.pid, mark)) {
      addTree(entries, entry, found);
    }
  }
  for (const pid of except) found.delete(pid);
  return [...found.values()];
}

/** The process as it is now; undefined: there is none, or it has ended and is only not collected yet. */
export function lookAt(pid: number): ProcessRef | undefined {
  const entry = readEntry(pid);
  if (entry !== undefined) return entry;
  return readEntries() === undefined ? { pid } : undefined;
}

/** Sends the signal, unless the number belongs to another process by now. */
export function signalProcess(target: ProcessRef, signal: NodeJS.Signals): void {
  if (target.startedAt !== undefined) {
    const now = readEntry(target.pid);
    if (now === undefined || !isSame(now, target)) return;
  }
  try {
    process.kill(target.pid, signal);
  } catch {
    // It has ended meanwhile, or is somebody else's: nothing to be done either way.
  }
}

function isSame(one: ProcessRef, other: ProcessRef): boolean {
  return other.startedAt === undefined || one.startedAt === other.startedAt;
}

function addTree(entries: ReadonlyMap<number, Entry>, root: Entry, found: Map<number, Entry>): void {
  if (found.has(root.pid)) return;
  found.set(root.pid, root);
  for (const entry of entries.values()) if (entry.parent === root.pid) addTree(entries, entry, found);
}

/** undefined: this system has no /proc. */
function readEntries(): Map<number, Entry> | undefined {
  let names: string[];
  try {
    names = readdirSync("/proc");
  } catch {
    return undefined;
  }
  const entries = new Map<number, Entry>();
  for (const name of names) {
    const entry = /^\d+$/.test(name) ? readEntry(Number(name)) : undefined;
    if (entry !== undefined) entries.set(entry.pid, entry);
  }
  return entries.size === 0 ? undefined : entries;
}

function readEntry(pid: number): Entry | undefined {
  try {
    const text = readFileSync(`/proc/${String(pid)}/stat`, "latin1");
    // The name in brackets may hold anything; what follows the last one is: state, parent, and so on (proc(5)).
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const [state, parent] = fields;
    const startedAt = fields[19];
    if (parent === undefined || startedAt === undefined || state === "Z" || state === "X") return undefined;
    return { pid, parent: Number(parent), startedAt };
  } catch {
    return undefined;
  }
}

function carries(pid: number, mark: string): boolean {
  try {
    return readFileSync(`/proc/${String(pid)}/environ`, "latin1")
      .split("\0")
      .includes(mark);
  } catch {
    // Somebody else's.
    return false;
  }
}
