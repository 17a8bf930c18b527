// What the clients talk to: three members of etcd, or of a Lockstep cell. LOCKSTEP_ETCD_TARGET chooses.
import { spawn, type ChildProcess } from "node:child_process";
import { createWriteStream, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TestCell, type MemberProcess } from "../../support/cell.ts";
import { freePortBlock } from "../../support/ports.ts";
import { until } from "../../support/until.ts";
import { etcdPrograms } from "./tools.ts";

const MEMBERS = 3;
const START_MS_MAX = 60_000;
/** The scenarios that wait for progress notifications count on it. */
const PROGRESS_INTERVAL = "1s";

/** Three members that serve the etcd v3 API in plain text on loopback. */
export interface Target {
  readonly kind: "etcd" | "lockstep";
  /** host:port of each member. */
  readonly endpoints: readonly string[];
  /** Ends a member at once. One that is down already is fine. */
  kill(member: number): Promise<void>;
  /** Asks a member to end, and waits until it has. */
  terminate(member: number): Promise<void>;
  /** Starts an ended member again with its data. One that runs already is fine. */
  start(member: number): Promise<void>;
  /** Ends all of it and removes its data, unless LOCKSTEP_KEEP is set. */
  stop(): Promise<void>;
}

export interface TargetOptions {
  /** Quota of etcd's store. Default: etcd's own. A Lockstep cell has none of this kind. */
  readonly quotaBytes?: number;
}

/** What LOCKSTEP_ETCD_TARGET names: `lockstep` (the default) or `etcd`. */
export const targetKind: Target["kind"] =
  process.env["LOCKSTEP_ETCD_TARGET"] === "etcd" ? "etcd" : "lockstep";

export function startTarget(options: TargetOptions = {}): Promise<Target> {
  return targetKind === "etcd" ? EtcdTarget.start(options) : LockstepTarget.start();
}

class EtcdMember {
  readonly #command: string;
  readonly #args: readonly string[];
  readonly #log: string;
  #child: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();

  constructor(command: string, args: readonly string[], log: string) {
    this.#command = command;
    this.#args = args;
    this.#log = log;
  }

  start(): void {
    if (this.#child !== undefined) return;
    const child = spawn(this.#command, this.#args, { stdio: ["ignore", "pipe", "pipe"] });
    const log = createWriteStream(this.#log, { flags: "a" });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    this.#child = child;
    this.#exited = new Promise((resolve) => {
      child.once("close", () => {
        this.#child = undefined;
        log.end();
        resolve();
      });
    });
  }

  end(signal: NodeJS.Signals): Promise<void> {
    this.#child?.kill(signal);
    return this.#exited;
  }

  get running(): boolean {
    return this.#child !== undefined;
  }

  log(): string {
    return readFileSync(this.#log, "utf8").trimEnd().split("\n").slice(-20).join("\n");
  }
}

class EtcdTarget implements Target {
  readonly kind = "etcd";
  readonly endpoints: readonly string[];
  readonly #directory = mkdtempSync(join(tmpdir(), "lockstep-etcd-"));
  readonly #members: readonly EtcdMember[];

  private constructor(command: string, base: number, options: TargetOptions) {
    const indexes = Array.from({ length: MEMBERS }, (_, index) => index);
    this.endpoints = indexes.map((index) => `127.0.0.1:${String(base + index)}`);
    this.#members = indexes.map((index) => {
      const directory = join(this.#directory, `m${String(index + 1)}`);
      return new EtcdMember(
        command,
        [...etcdArguments(index, base, directory), ...quotaArguments(options)],
        `${directory}.log`,
      );
    });
  }

  static async start(options: TargetOptions): Promise<Target> {
    const { etcd } = await etcdPrograms();
    const target = new EtcdTarget(etcd, await freePortBlock(2 * MEMBERS), options);
    try {
      for (const member of target.#members) member.start();
      await Promise.all(target.endpoints.map((_, index) => target.#healthy(index)));
      return target;
    } catch (error) {
      await target.stop();
      throw error;
    }
  }

  #member(index: number): EtcdMember {
    const member = this.#members[index];
    if (member === undefined) throw new TypeError(`there is no member ${String(index)}`);
    return member;
  }

  #healthy(index: number): Promise<true> {
    return until(
      `etcd's member ${String(index)} serves`,
      async () => {
        if (!this.#member(index).running) throw new Error(this.#member(index).log());
        const address = `http://${this.endpoints[index] ?? ""}/health?serializable=true`;
        const answer = await fetch(address, { signal: AbortSignal.timeout(2_000) });
        return answer.ok || undefined;
      },
      START_MS_MAX,
    );
  }

  kill(member: number): Promise<void> {
    return this.#member(member).end("SIGKILL");
  }

  terminate(member: number): Promise<void> {
    return this.#member(member).end("SIGTERM");
  }

  start(member: number): Promise<void> {
    this.#member(member).start();
    return Promise.resolve();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#members.map((member) => member.end("SIGKILL")));
    if (process.env["LOCKSTEP_KEEP"] === undefined) rmSync(this.#directory, { recursive: true, force: true });
  }
}

function etcdArguments(index: number, base: number, directory: string): readonly string[] {
  const client = `http://127.0.0.1:${String(base + index)}`;
  const peer = (member: number): string => `http://127.0.0.1:${String(base + MEMBERS + member)}`;
  const everyone = Array.from({ length: MEMBERS }, (_, member) => `m${String(member + 1)}=${peer(member)}`);
  return [
    ...["--name", `m${String(index + 1)}`, "--data-dir", directory],
    ...["--listen-client-urls", client, "--advertise-client-urls", client],
    ...["--listen-peer-urls", peer(index), "--initial-advertise-peer-urls", peer(index)],
    ...["--initial-cluster", everyone.join(","), "--initial-cluster-state", "new", "--log-level", "warn"],
    ...["--watch-progress-notify-interval", PROGRESS_INTERVAL],
    // What these tests are about is no question of disks, and these are shared with other tests.
    "--unsafe-no-fsync",
  ];
}

function quotaArguments(options: TargetOptions): readonly string[] {
  return options.quotaBytes === undefined ? [] : ["--quota-backend-bytes", String(options.quotaBytes)];
}

/** More flags for every member of the cell, separated by spaces. */
const lockstepFlags = (process.env["LOCKSTEP_ETCD_FLAGS"] ?? "").split(" ").filter((flag) => flag !== "");

class LockstepTarget implements Target {
  readonly kind = "lockstep";
  readonly #cell: TestCell;

  private constructor(cell: TestCell) {
    this.#cell = cell;
  }

  static async start(): Promise<Target> {
    return new LockstepTarget(await TestCell.start(MEMBERS, { flags: lockstepFlags }));
  }

  get endpoints(): readonly string[] {
    return this.#cell.endpoints;
  }

  #member(index: number): MemberProcess {
    const member = this.#cell.members[index];
    if (member === undefined) throw new TypeError(`there is no member ${String(index)}`);
    return member;
  }

  async kill(member: number): Promise<void> {
    await this.#member(member).kill("SIGKILL");
  }

  async terminate(member: number): Promise<void> {
    await this.#member(member).kill("SIGTERM");
  }

  start(member: number): Promise<void> {
    if (!this.#member(member).running) this.#member(member).start();
    return Promise.resolve();
  }

  stop(): Promise<void> {
    return this.#cell.stop();
  }
}
