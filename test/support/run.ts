import { spawn } from "node:child_process";

/** How a program ended and what it said. */
export interface Ran {
  readonly code: number | undefined;
  readonly out: string;
  readonly err: string;
}

export interface RunOptions {
  readonly input?: string | Buffer;
  readonly env?: NodeJS.ProcessEnv;
  readonly cwd?: string;
  readonly timeoutMs?: number;
}

/** Runs a program to its end; one that takes too long is killed and has no exit code. */
export function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<Ran> {
  const { input = "", env = process.env, cwd, timeoutMs = 30_000 } = options;
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      env,
      cwd,
      stdio: "pipe",
      timeout: timeoutMs,
      killSignal: "SIGKILL",
    });
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    child.stdout.on("data", (chunk: Buffer) => out.push(chunk));
    child.stderr.on("data", (chunk: Buffer) => err.push(chunk));
    child.once("error", reject);
    child.once("close", (code) =>
      resolve({
        code: code ?? undefined,
        out: Buffer.concat(out).toString("utf8"),
        err: Buffer.concat(err).toString("utf8"),
      }),
    );
    // A program may answer before it read everything.
    child.stdin.on("error", () => undefined);
    child.stdin.end(input);
  });
}
