// etcdctl as people use it: a child process that is told of the members in its environment.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { run, type Ran } from "../../../support/run.ts";

const LINE_MS_MAX = 20_000;

/** A command that goes on, and what it has said so far. */
export class RunningCommand {
  readonly #child: ChildProcess;
  readonly #closed: Promise<number | undefined>;
  #out = "";
  #err = "";
  #changed: PromiseWithResolvers<void> = Promise.withResolvers();

  constructor(command: string, args: readonly string[], env: NodeJS.ProcessEnv) {
    this.#child = spawn(command, args, { env, stdio: ["pipe", "pipe", "pipe"] });
    const heard = (): void => {
      this.#changed.resolve();
      this.#changed = Promise.withResolvers();
    };
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#out += text;
      heard();
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#err += text;
      heard();
    });
    this.#closed = new Promise((resolve) => {
      this.#child.once("close", (code) => {
        resolve(code ?? undefined);
        heard();
      });
    });
  }

  get out(): string {
    return this.#out;
  }

  /** Waits until standard output matches; fails with all that was said. */
  async says(pattern: RegExp): Promise<RegExpExecArray> {
    const limit = AbortSignal.timeout(LINE_MS_MAX);
    const late = new Promise<void>((resolve) => limit.addEventListener("abort", () => resolve()));
    for (;;) {
      const found = pattern.exec(this.#out);
      if (found !== null) return found;
      if (limit.aborted || this.#child.exitCode !== null)
        assert.fail(`no ${String(pattern)} in:\n${this.#out}\n${this.#err}`);
      await Promise.race([this.#changed.promise, late]);
    }
  }

  write(text: string): void {
    this.#child.stdin?.write(text);
  }

  /** Sends a signal and waits for the end. @returns the exit code, undefined when the signal ended it */
  async end(signal: NodeJS.Signals = "SIGINT"): Promise<number | undefined> {
    this.#child.kill(signal);
    return this.#closed;
  }

  /** Waits for its own end. */
  exited(): Promise<number | undefined> {
    return this.#closed;
  }
}

/** etcdctl for one set of members, and a prefix that no other test has. */
export class Ctl {
  readonly #command: string;
  readonly #endpoints: readonly string[];

  constructor(command: string, endpoints: readonly string[]) {
    this.#command = command;
    this.#endpoints = endpoints;
  }

  get #env(): NodeJS.ProcessEnv {
    return { ...process.env, ETCDCTL_ENDPOINTS: this.#endpoints.join(",") };
  }

  run(args: readonly string[], input = ""): Promise<Ran> {
    return run(this.#command, args, { env: this.#env, input, timeoutMs: 60_000 });
  }

  /** Standard output of a command that must succeed. */
  async text(...args: string[]): Promise<string> {
    const { code, out, err } = await this.run(args);
    assert.equal(code, 0, `etcdctl ${args.join(" ")}: ${err}${out}`);
    return out;
  }

  async json<T>(...args: string[]): Promise<T> {
    return JSON.parse(await this.text(...args, "-w", "json")) as T;
  }

  /** `-w fields`, as a map from the name to the text of its value; of a name that comes twice, the last. */
  async fields(...args: string[]): Promise<ReadonlyMap<string, string>> {
    const text = await this.text(...args, "-w", "fields");
    return new Map(
      text.split("\n").flatMap((line) => {
        const [, name, value] = /^"(\w+)" : (.*)$/.exec(line) ?? [];
        return name === undefined || value === undefined ? [] : [[name, value] as const];
      }),
    );
  }

  /** A command that must fail. */
  async fails(...args: string[]): Promise<string> {
    const { code, err, out } = await this.run(args);
    assert.notEqual(code, 0, `etcdctl ${args.join(" ")} succeeded: ${out}`);
    return err;
  }

  start(...args: string[]): RunningCommand {
    return new RunningCommand(this.#command, args, this.#env);
  }
}

export interface Header {
  readonly cluster_id: number;
  readonly member_id: number;
  readonly revision: number;
  readonly raft_term: number;
}

export interface KeyValue {
  /** Base64, like the value. */
  readonly key: string;
  readonly value?: string;
  readonly create_revision: number;
  readonly mod_revision: number;
  readonly version: number;
  readonly lease?: number;
}

export interface RangeAnswer {
  readonly header: Header;
  readonly kvs?: readonly KeyValue[];
  readonly count?: number;
  readonly more?: boolean;
}

export const decoded = (text: string | undefined): string =>
  Buffer.from(text ?? "", "base64").toString("utf8");
