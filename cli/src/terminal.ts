import { setTimeout as delay } from "node:timers/promises";

/** Where a command reads and writes; tests hand in their own. */
export interface Terminal {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Results, as they are. */
  out(text: string | Uint8Array): void;
  /** Progress and errors, as they are. */
  err(text: string): void;
  readInput(): Promise<string>;
  sleep(ms: number): Promise<void>;
  now(): number;
  /** Calls the listener on SIGINT and SIGTERM. @returns the function that ends it. */
  onStop(listener: (signal: NodeJS.Signals) => void): () => void;
}

export function processTerminal(): Terminal {
  // Whoever reads has enough (`lockstep ... | head`): nothing went wrong, and nothing is left to be done for it.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit(process.exitCode ?? 0);
  });
  return {
    env: process.env,
    out: (text) => {
      process.stdout.write(text);
    },
    err: (text) => {
      process.stderr.write(text);
    },
    readInput: async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of process.stdin as AsyncIterable<Buffer>) chunks.push(chunk);
      return Buffer.concat(chunks).toString("utf8");
    },
    sleep: async (ms) => {
      await delay(ms);
    },
    now: () => performance.now(),
    onStop: (listener) => {
      const onInt = (): void => listener("SIGINT");
      const onTerm = (): void => listener("SIGTERM");
      process.on("SIGINT", onInt);
      process.on("SIGTERM", onTerm);
      return () => {
        process.off("SIGINT", onInt);
        process.off("SIGTERM", onTerm);
      };
    },
  };
}
