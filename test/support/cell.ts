import { admin } from "@lockstep/proto";
import type { ChannelCredentials } from "@grpc/grpc-js";
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { createWriteStream, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AdminApi } from "./admin.ts";
import { ClientProxy } from "./client-proxy.ts";
import { PeerProxy } from "./peer-proxy.ts";
import { freePortBlock } from "./ports.ts";
import type { LinkRule } from "./proxied-link.ts";
import { until } from "./until.ts";

const MAIN = new URL("../../cell/src/main.ts", import.meta.url).pathname;

/** From starting processes to promoting them: on a busy machine it is the starting that takes long. */
const PROMOTION_MS_MAX = 90_000;

export interface CellOptions {
  /** More flags for every member. */
  readonly flags?: readonly string[];
  /** Members reach each other through proxies, so that they can be cut off from each other. */
  readonly proxied?: boolean;
  /** Clients reach members through proxies, so that one process can be cut off (`shapeClients`). */
  readonly proxiedClients?: boolean;
  /** More environment for one member, known by its name. */
  readonly envOf?: (name: string) => Readonly<Record<string, string>>;
  /** Flags of one member alone, known by its name. */
  readonly flagsOf?: (name: string) => readonly string[];
  /** How the test speaks with the admin API. Default: in plain text. */
  readonly adminCredentials?: () => ChannelCredentials;
}

/** One member as a real process with a folder of its own. */
export class MemberProcess {
  readonly name: string;
  readonly directory: string;
  readonly base: number;
  /** Replaced when the test has new certificates. */
  adminApi: AdminApi;
  readonly #flags: readonly string[];
  /** Added to this process's own. */
  env: Readonly<Record<string, string>> = {};
  #child: ChildProcess | undefined;
  #exit: Promise<number | undefined> = Promise.resolve(undefined);

  /** @param adminCredentials for {@link adminApi}; default: plain text */
  constructor(
    name: string,
    directory: string,
    base: number,
    flags: readonly string[],
    adminCredentials?: ChannelCredentials,
  ) {
    this.name = name;
    this.directory = directory;
    this.base = base;
    this.#flags = flags;
    this.adminApi = new AdminApi(this.address(3), adminCredentials);
  }

  /** 0: client, 1: http, 2: peer, 3: admin, 4: ops. */
  address(port: number): string {
    return `127.0.0.1:${String(this.base + port)}`;
  }

  get http(): string {
    return `http://${this.address(1)}`;
  }

  get pid(): number {
    return this.#child?.pid ?? -1;
  }

  get running(): boolean {
    return this.#child !== undefined;
  }

  /** Starts the process (again). `origin` matters for a fresh folder only. */
  start(origin: readonly string[] = [], flags: readonly string[] = []): void {
    const args = [MAIN, "member", "--data", this.directory, "--name", this.name, ...origin];
    ["client", "http", "peer", "admin", "ops"].forEach((port, offset) => {
      args.push(`--${port}`, this.address(offset));
    });
    const child = spawn(process.execPath, [...args, ...this.#flags, ...flags], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...this.env },
    });
    const log = createWriteStream(`${this.directory}.log`, { flags: "a" });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    this.#child = child;
    this.#exit = new Promise((resolve) => {
      child.once("exit", (code) => {
        if (this.#child === child) this.#child = undefined;
        log.end();
        resolve(code ?? undefined);
      });
    });
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Resolves with the exit code once the process is gone. */
  exited(): Promise<number | undefined> {
    return this.#exit;
  }

  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<number | undefined> {
    this.signal("SIGCONT");
    this.signal(signal);
    return this.#exit;
  }

  log(): string {
    return readFileSync(`${this.directory}.log`, "utf8");
  }
}

/** A cell of real processes on loopback, grown the way users grow one: one voter, learners, promotion. */
export class TestCell {
  readonly directory: string;
  readonly members: MemberProcess[] = [];
  readonly #options: CellOptions;
  readonly #proxies = new Map<string, PeerProxy>();
  readonly #clientProxies = new Map<string, ClientProxy>();

  private constructor(options: CellOptions) {
    this.#options = options;
    this.directory = mkdtempSync(join(tmpdir(), "lockstep-cell-"));
  }

  static async start(size: 1 | 3 | 5, options: CellOptions = {}): Promise<TestCell> {
    const cell = new TestCell(options);
    try {
      await cell.#grow(size);
    } catch (error) {
      // Nobody else knows of the processes: they would outlive the test, which would wait for them.
      await cell.stop();
      throw error;
    }
    return cell;
  }

  async #grow(size: 1 | 3 | 5): Promise<void> {
    const first = await this.addProcess("m1");
    first.start(["--bootstrap"]);
    await this.leader();
    for (let n = 2; n <= size; n += 1) (await this.addProcess(`m${String(n)}`)).start(this.joinFlags());
    if (size >= 3) await this.promote(["m2", "m3"]);
    if (size >= 5) await this.promote(["m4", "m5"]);
  }

  get running(): readonly MemberProcess[] {
    return this.members.filter((member) => member.running);
  }

  /** Client addresses of all members: of their proxies, where they have some. */
  get endpoints(): string[] {
    return this.members.map((member) => member.address(this.#options.proxiedClients === true ? 6 : 0));
  }

  /** From now on, each process's connections to members are treated so. */
  shapeClients(rule: (pid: number) => LinkRule): void {
    for (const proxy of this.#clientProxies.values()) proxy.shape(rule);
  }

  joinFlags(): string[] {
    return ["--join", this.members.map((member) => member.address(3)).join(",")];
  }

  async addProcess(name: string): Promise<MemberProcess> {
    const base = await freePortBlock(7);
    const { adminCredentials, flagsOf } = this.#options;
    const flags = [...(this.#options.flags ?? []), ...(flagsOf?.(name) ?? [])];
    if (this.#options.proxied === true) {
      this.#proxies.set(name, await PeerProxy.start(base + 5, base + 2));
      flags.push("--advertise-peer", `127.0.0.1:${String(base + 5)}`);
    }
    if (this.#options.proxiedClients === true) {
      this.#clientProxies.set(name, await ClientProxy.start(base + 6, base));
      flags.push("--advertise-client", `127.0.0.1:${String(base + 6)}`);
    }
    const directory = join(this.directory, name);
    const member = new MemberProcess(name, directory, base, flags, adminCredentials?.());
    member.env = this.#options.envOf?.(name) ?? {};
    this.members.push(member);
    return member;
  }

  /** Cuts a member off from all others, both ways. */
  async isolate(name: string): Promise<void> {
    const { memberId } = await this.member(name).adminApi.status();
    for (const [other, proxy] of this.#proxies) {
      proxy.cut(other === name ? () => true : (from) => from === memberId);
    }
  }

  heal(): void {
    for (const proxy of this.#proxies.values()) proxy.heal();
  }

  member(name: string): MemberProcess {
    const found = this.members.find((member) => member.name === name);
    if (found === undefined) throw new TypeError(`there is no process ${name}`);
    return found;
  }

  /** The member that leads, as it says itself. */
  leader(timeoutMs = 30_000): Promise<MemberProcess> {
    return until(
      "a leader",
      async () => {
        if (this.running.length === 0) throw new Error(this.members.map((member) => member.log()).join("\n"));
        for (const member of this.running) {
          const status = await member.adminApi.status(1_000).catch(() => undefined);
          if (status?.role === admin.Role.LEADER && status.leaderId === status.memberId) return member;
        }
        return undefined;
      },
      timeoutMs,
    );
  }

  /** Promotes caught-up learners in one change; waits until they are. */
  async promote(names: readonly string[]): Promise<void> {
    await until(
      `${names.join(" and ")} are promoted`,
      async () => {
        const { adminApi } = await this.leader();
        const list = await adminApi.members();
        const learners = names.map((name) => list.members.find((member) => member.name === name));
        if (learners.some((member) => member === undefined)) return undefined;
        const promote = learners.flatMap((member) => (member === undefined ? [] : [member.id]));
        return adminApi.change({ plannedOn: list.configurationIndex, promote });
      },
      PROMOTION_MS_MAX,
    );
  }

  /** Waits until all running members applied the same index; @returns its digest, which must be one. */
  async agreedDigest(timeoutMs = 60_000): Promise<string> {
    const digests = await until(
      "all members at one applied index",
      async () => {
        const statuses = await Promise.all(this.running.map((member) => member.adminApi.status()));
        const indexes = new Set(statuses.map((status) => status.appliedIndex));
        return indexes.size === 1 ? new Set(statuses.map((status) => status.digest)) : undefined;
      },
      timeoutMs,
    );
    const [digest] = digests;
    if (digests.size !== 1 || digest === undefined) {
      throw new Error(`members disagree: ${[...digests].join(" ")}`);
    }
    return digest;
  }

  /** Copies what the members have said, for whoever looks into a failure. */
  keepLogs(folder: string): void {
    mkdirSync(folder, { recursive: true });
    for (const member of this.members) writeFileSync(join(folder, `${member.name}.log`), member.log());
  }

  /** Ends all processes and removes the folder, unless LOCKSTEP_KEEP is set. */
  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.kill("SIGKILL")));
    for (const member of this.members) member.adminApi.close();
    for (const proxy of this.#proxies.values()) proxy.close();
    for (const proxy of this.#clientProxies.values()) proxy.close();
    if (process.env["LOCKSTEP_KEEP"] === undefined) rmSync(this.directory, { recursive: true, force: true });
  }
}
