// A server of somebody else's as a private process of a test.
import { spawn, type ChildProcess } from "node:child_process";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { run } from "../../support/run.ts";

const READY_MS_MAX = 60_000;
const STOP_MS_MAX = 10_000;
const LINES_KEPT = 50;

/** Whoever runs a server that refuses to be root. Undefined: we are nobody special, and it runs as ourselves. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** An unprivileged account with a name, which PostgreSQL asks for. */
export async function unprivileged(): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ["postgres", "nobody"]) {
    const [uid, gid] = await Promise.all([run("id", ["-u", name]), run("id", ["-g", name])]);
    if (uid.code === 0 && gid.code === 0) return { uid: Number(uid.out), gid: Number(gid.out) };
  }
  throw new Error("there is no account to run a server as");
}

/** A folder that goes with the server. Paths of Unix sockets are short, so it lies directly in the temporary folder. */
export function serverFolder(name: string, account?: Account): string {
  const folder = mkdtempSync(join(tmpdir(), `lockstep-${name}-`));
  if (account !== undefined) chownSync(folder, account.uid, account.gid);
  return folder;
}

export interface ServerOptions {
  readonly command: string;
  readonly args: readonly string[];
  /** A line of standard output or error, by which we see that it serves. */
  readonly ready: RegExp;
  /** Removed when the server has stopped. */
  readonly folder: string;
  readonly account?: Account | undefined;
  /** How it is asked to stop. Default: SIGTERM. */
  readonly stopSignal?: NodeJS.Signals;
}

export class ServerProcess {
  /** What {@link ServerOptions.ready} matched. */
  readonly readyLine: string;
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  readonly #options: ServerOptions;

  private constructor(child: ChildProcess, ended: Promise<void>, readyLine: string, options: ServerOptions) {
    this.#child = child;
    this.#ended = ended;
    this.readyLine = readyLine;
    this.#options = options;
  }

  static async start(options: ServerOptions): Promise<ServerProcess> {
    const { account } = options;
    // A test that is killed takes its servers with it.
    const wrap = [
      "--pdeathsig=KILL",
      ...(account === undefined
        ? []
        : [`--reuid=${String(account.uid)}`, `--regid=${String(account.gid)}`, "--clear-groups"]),
    ];
    const child = spawn("setpriv", [...wrap, "--", options.command, ...options.args], {
      cwd: options.folder,
      stdio: ["pipe", "pipe", "pipe"],
    });
    const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
    const said: string[] = [];
    const ready = Promise.withResolvers<string>();
    for (const stream of [child.stdout, child.stderr])
      createInterface({ input: stream }).on("line", (line) => {
        if (said.push(line) > LINES_KEPT) said.shift();
        if (options.ready.test(line)) ready.resolve(line);
      });
    const fail = (what: string): void =>
      ready.reject(new Error(`${options.command} ${what}:\n${said.join("\n")}`));
    child.once("error", (error) => fail(error.message));
    void ended.then(() => fail("ended"));
    const timer = setTimeout(() => fail("is not ready in time"), READY_MS_MAX);
    try {
      return new ServerProcess(child, ended, await ready.promise, options);
    } catch (error) {
      child.kill("SIGKILL");
      rmSync(options.folder, { recursive: true, force: true });
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async stop(): Promise<void> {
    this.#child.kill(this.#options.stopSignal ?? "SIGTERM");
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MS_MAX);
    await this.#ended;
    clearTimeout(timer);
    rmSync(this.#options.folder, { recursive: true, force: true });
  }
}
