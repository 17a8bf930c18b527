import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";

export type Event = Readonly<Record<string, unknown>> & { readonly event?: string };

/** A child that speaks JSON lines; whoever waits for a line gets the first one that matches, also an earlier one. */
export class Talker {
  readonly child: ChildProcess;
  readonly #seen: Event[] = [];
  readonly #waiting = new Set<() => void>();
  #ended = false;

  constructor(script: string, args: readonly string[], env: NodeJS.ProcessEnv = process.env) {
    this.child = spawn(process.execPath, [script, ...args], { stdio: ["pipe", "pipe", "inherit"], env });
    const { stdout } = this.child;
    if (stdout === null) throw new TypeError("the child's output is piped");
    createInterface({ input: stdout }).on("line", (line) => {
      this.#seen.push(parse(line));
      this.#wake();
    });
    this.child.on("exit", () => {
      this.#ended = true;
      this.#wake();
    });
  }

  tell(message: object): void {
    this.child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  /** The next line that `matches`; it is taken out. Fails after `timeoutMs`, or when the child ends. */
  next(what: string, matches: (event: Event) => boolean, timeoutMs: number): Promise<Event> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(look);
        reject(new Error(`not observed within ${String(timeoutMs / 1000)} s: ${what}`));
      }, timeoutMs);
      const look = (): void => {
        const at = this.#seen.findIndex(matches);
        const found = this.#seen[at];
        if (found === undefined && !this.#ended) return;
        clearTimeout(timer);
        this.#waiting.delete(look);
        if (found === undefined) {
          reject(new Error(`the process ended before: ${what}`));
          return;
        }
        this.#seen.splice(at, 1);
        resolve(found);
      };
      this.#waiting.add(look);
      look();
    });
  }

  has(matches: (event: Event) => boolean): boolean {
    return this.#seen.some(matches);
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** Waits for the end; KILLs after `graceMs`. */
  async end(signal: NodeJS.Signals, graceMs: number): Promise<void> {
    if (this.#ended) return;
    const ended = new Promise<void>((resolve) => this.child.once("exit", () => resolve()));
    this.child.kill("SIGCONT");
    this.child.kill(signal);
    const timer = setTimeout(() => this.child.kill("SIGKILL"), graceMs);
    await ended;
    clearTimeout(timer);
  }

  #wake(): void {
    for (const look of [...this.#waiting]) look();
  }
}

function parse(line: string): Event {
  try {
    return JSON.parse(line) as Event;
  } catch {
    return { line };
  }
}
