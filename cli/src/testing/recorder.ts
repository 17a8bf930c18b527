import { run } from "../run.ts";
import type { Terminal } from "../terminal.ts";

export interface Recorded {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string;
  /** Called with what stops the command, as a signal would. */
  readonly onStart?: (stop: (signal: NodeJS.Signals) => void) => void;
}

/** Runs a command line in this process and records what it prints. */
export async function record(args: readonly string[], options: RunOptions = {}): Promise<Recorded> {
  const out: Buffer[] = [];
  let err = "";
  const listeners = new Set<(signal: NodeJS.Signals) => void>();
  const terminal: Terminal = {
    env: options.env ?? {},
    out: (text) => out.push(Buffer.from(text as string)),
    err: (text) => {
      err += text;
    },
    readInput: () => Promise.resolve(options.input ?? ""),
    sleep: () => new Promise((resolve) => setImmediate(resolve)),
    now: () => performance.now(),
    onStop: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  options.onStart?.((signal) => {
    for (const listener of listeners) listener(signal);
  });
  const code = await run(args, terminal);
  return { code, out: Buffer.concat(out).toString("utf8"), err };
}
