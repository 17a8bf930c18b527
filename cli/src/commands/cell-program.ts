import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { getCompileCacheDir } from "node:module";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";
import { CliError, EXIT } from "../exit-codes.ts";
import type { Terminal } from "../terminal.ts";

/** The member's program, which the CLI starts and never imports. */
export function cellProgram(): string {
  let path: string;
  try {
    path = fileURLToPath(import.meta.resolve("@lockstep/cell/main"));
  } catch {
    throw missing("@lockstep/cell");
  }
  if (!existsSync(path)) throw missing(path);
  return path;
}

/**
 * How Node is told to run a member. Its young generation would grow to some 100 MB on a 64-bit Node, for garbage that
 * is short-lived anyway; a member shares its machine. And what outlived one large batch is no sign that its like will
 * live long: V8 would from then on put all of it among the old objects, where garbage is dear (a third of the processor
 * time of an apply). Kept here and not in the program: Node takes them at start only.
 */
export const CELL_NODE_FLAGS: readonly string[] = [
  "--max-semi-space-size=16",
  "--no-allocation-site-pretenuring",
];

function missing(what: string): CliError {
  return new CliError(
    EXIT.failed,
    `the member's program was not found (${what})`,
    "Run `npm ci` in the repository.",
  );
}

/**
 * What keeps glibc's allocator small: RocksDB and Node's buffers take and give back pieces of all sizes on several
 * threads, and by its defaults the allocator keeps much of that for nobody (measured with 250,000 keys: 350 to 440 MB
 * resident without, 270 to 390 MB with). Other allocators do not know these names. The images set the same.
 */
const ALLOCATOR: NodeJS.ProcessEnv = { MALLOC_ARENA_MAX: "2", MALLOC_MMAP_THRESHOLD_: "131072" };

/**
 * A member's environment: this one's, the folder of compiled code that this program was started with, and settings of
 * the allocator where this one has none.
 */
export function cellEnvironment(): NodeJS.ProcessEnv {
  const folder = process.env["NODE_COMPILE_CACHE"] ?? getCompileCacheDir();
  const own = { ...ALLOCATOR, ...process.env };
  return folder === undefined ? own : { ...own, NODE_COMPILE_CACHE: folder };
}

/** Runs one subcommand of the member's program in the foreground and answers with its exit code. */
export async function runCellProgram(terminal: Terminal, args: readonly string[]): Promise<number> {
  const child = spawn(process.execPath, [...CELL_NODE_FLAGS, cellProgram(), ...args], {
    stdio: "inherit",
    env: cellEnvironment(),
  });
  const unsubscribe = terminal.onStop((signal) => child.kill(signal));
  try {
    return await new Promise<number>((resolve, reject) => {
      child.once("error", (error) => {
        reject(new CliError(EXIT.failed, `the member's program cannot be started: ${error.message}`));
      });
      child.once("exit", (code, signal) => {
        resolve(signal === null ? (code ?? 0) : EXIT.signalled + constants.signals[signal]);
      });
    });
  } finally {
    unsubscribe();
  }
}
