import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { cpSync, existsSync, openSync, closeSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Origin } from "../../../cell/src/member/options.ts";
import { AdminApi } from "../../support/admin.ts";
import { PeerProxy } from "../../support/peer-proxy.ts";
import { freePortBlock } from "../../support/ports.ts";
import { until } from "../../support/until.ts";
import type { Dice } from "../dice.ts";
import type { TorturedOptions } from "../member-main.ts";
import type { Command, Report } from "../member/control.ts";
import { cutPower } from "../member/power-cut.ts";
import type { PowerCut } from "../member/power-cut.ts";
import type { Volume } from "./volume.ts";

const MAIN = new URL("../member-main.ts", import.meta.url).pathname;
const MIB = 1024 * 1024;
/** Small, so that a member that was down for some seconds needs the whole state, and segments come and go. */
const LOG_KEEP_BYTES = 256 * 1024;
const SEGMENT_BYTES = 256 * 1024;
export const RESERVE_BYTES: number = 48 * MIB;
const READY_MS_MAX = 60_000;
const LOG_LINE_CHARACTERS_MAX = 400;

/** How a process ended. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface MemberSite {
  readonly name: string;
  readonly volume: Volume;
  /** Where its log and what else concerns it is kept, outside of its volume. */
  readonly scratch: string;
  readonly lyingDisk: boolean;
  /** The process ended and no fault said that it would. */
  readonly onDeath: (member: TorturedMember, exit: Exit) => void;
}

/** One member of the tortured cell: a process, a volume, and a proxy before its peer port. */
export class TorturedMember {
  readonly name: string;
  readonly volume: Volume;
  readonly adminApi: AdminApi;
  readonly proxy: PeerProxy;
  /** Known from its first start on. */
  memberId = 0;
  /** Its disk is gone: it must never be started again. */
  wiped = false;
  readonly #site: MemberSite;
  readonly #base: number;
  #origin: Origin = { kind: "existing" };
  #child: ChildProcess | undefined;
  #exit: Promise<Exit> = Promise.resolve({ code: null, signal: null });
  #serving = false;
  #retired = false;
  /** Exits are part of a fault while this is above 0. */
  #mayDie = 0;
  readonly #reports = new Set<(report: Report) => void>();

  private constructor(site: MemberSite, base: number, proxy: PeerProxy) {
    this.#site = site;
    this.name = site.name;
    this.volume = site.volume;
    this.#base = base;
    this.proxy = proxy;
    this.adminApi = new AdminApi(this.#address(3));
  }

  static async create(site: MemberSite): Promise<TorturedMember> {
    const base = await freePortBlock(6);
    return new TorturedMember(site, base, await PeerProxy.start(base + 5, base + 2));
  }

  get clientAddress(): string {
    return this.#address(0);
  }

  get httpAddress(): string {
    return this.#address(1);
  }

  get adminAddress(): string {
    return this.#address(3);
  }

  get running(): boolean {
    return this.#child !== undefined;
  }

  /** Told that it serves since its last start. */
  get serving(): boolean {
    return this.running && this.#serving;
  }

  get logPath(): string {
    return join(this.#site.scratch, `${this.name}.log`);
  }

  /** @param origin for the first start; kept, because a folder becomes a member's only once the cell took it in */
  start(origin: Origin = this.#origin): void {
    this.#origin = origin;
    if (this.wiped) throw new TypeError(`${this.name} has lost its disk and must not be started`);
    if (this.running || this.#retired) return;
    const [client, http, peer, admin, ops] = [0, 1, 2, 3, 4].map((port) => this.#address(port)) as [
      string,
      string,
      string,
      string,
      string,
    ];
    const listen = { client, http, peer, admin, ops };
    const options: TorturedOptions = {
      directory: this.volume.directory,
      name: this.name,
      origin,
      listen,
      advertise: { ...listen, peer: this.#address(5) },
      journal: this.#journal,
      lyingDisk: this.#site.lyingDisk,
      logKeepBytes: LOG_KEEP_BYTES,
      segmentBytes: SEGMENT_BYTES,
      reserveBytes: this.volume.mounted ? RESERVE_BYTES : 1,
    };
    const log = openSync(this.logPath, "a");
    const child = spawn(process.execPath, [MAIN, JSON.stringify(options)], {
      stdio: ["ignore", log, log, "ipc"],
      env: { ...process.env, NODE_COMPILE_CACHE: join(this.#site.scratch, "compiled") },
    });
    closeSync(log);
    this.#serving = false;
    this.#child = child;
    child.on("message", (report: Report) => {
      if (report.kind === "serving") {
        this.memberId = report.memberId;
        this.#serving = true;
      }
      for (const listener of [...this.#reports]) listener(report);
    });
    // A message to a process that just died.
    child.on("error", () => undefined);
    this.#exit = new Promise((resolve) => {
      child.once("exit", (code, signal) => {
        this.#child = undefined;
        this.#serving = false;
        if (this.#mayDie === 0) this.#site.onDeath(this, { code, signal });
        resolve({ code, signal });
      });
    });
  }

  /** It is never started again, whoever asks. */
  retire(): void {
    this.#retired = true;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  tell(command: Command): void {
    this.#child?.send(command, () => undefined);
  }

  /** Until then its process may end without that being a finding. @returns the end of that */
  mayDie(): () => void {
    this.#mayDie += 1;
    let over = false;
    return () => {
      if (!over) this.#mayDie -= 1;
      over = true;
    };
  }

  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<Exit> {
    const end = this.mayDie();
    this.signal("SIGCONT");
    this.signal(signal);
    const exit = await this.#exit;
    end();
    return exit;
  }

  /** Resolves when the process is gone. */
  exited(): Promise<Exit> {
    return this.#exit;
  }

  /** Resolves when it serves; fails when it does not in time, or ends. */
  async untilServing(timeoutMs: number = READY_MS_MAX): Promise<void> {
    const ended = await until(
      `${this.name} serves`,
      () => {
        if (!this.running) return true;
        return this.#serving ? false : undefined;
      },
      timeoutMs,
    );
    if (ended) throw new Error(`${this.name} ended:\n${this.logTail()}`);
  }

  /** Calls back for reports until the returned function is called. */
  listen(listener: (report: Report) => void): () => void {
    this.#reports.add(listener);
    return () => this.#reports.delete(listener);
  }

  /**
   * Stands still right after a barrier of its store and lets the store's folder be copied as of then; goes on after
   * that with no further barrier. False: it did not come to that in time, and goes on as before.
   */
  async copyAtBarrier(timeoutMs: number): Promise<boolean> {
    const { pid } = this.#child ?? {};
    if (pid === undefined) return false;
    let told = false;
    const stopListening = this.listen((report) => {
      if (report.kind === "at-barrier") told = true;
    });
    this.tell({ kind: "stop-at-barrier" });
    try {
      await until(
        `${this.name} stands still after a barrier`,
        () => (told && isStopped(pid) ? true : undefined),
        timeoutMs,
      );
      rmSync(this.#copy, { recursive: true, force: true });
      cpSync(join(this.volume.directory, "store"), this.#copy, { recursive: true });
      this.signal("SIGCONT");
      return true;
    } catch {
      this.tell({ kind: "release-barriers" });
      this.signal("SIGCONT");
      return false;
    } finally {
      stopListening();
    }
  }

  /** Of a dead member: what was not synced is gone, by dice; with a copy, the store is as of its barrier. */
  losePower(dice: Dice, options: { readonly storeFromCopy: boolean }): PowerCut {
    if (options.storeFromCopy) {
      const store = join(this.volume.directory, "store");
      rmSync(store, { recursive: true, force: true });
      cpSync(this.#copy, `${store}.back`, { recursive: true });
      renameSync(`${store}.back`, store);
      rmSync(this.#copy, { recursive: true, force: true });
    }
    return cutPower(this.volume.directory, this.#journal, dice);
  }

  /** The disk is lost. */
  async wipe(): Promise<void> {
    await this.kill();
    this.wiped = true;
    this.close();
  }

  /** Ends what is left of it; the volume is gone too unless the evidence is wanted. */
  close(): void {
    this.adminApi.close();
    this.proxy.close();
    this.volume.destroy();
    rmSync(this.#copy, { recursive: true, force: true });
  }

  /** Keeps a copy of the folder before the volume goes. */
  keepEvidence(): void {
    if (this.wiped || !existsSync(this.volume.directory)) return;
    cpSync(this.volume.directory, join(this.#site.scratch, `${this.name}.data`), { recursive: true });
  }

  /** The last things it said that were not just news. */
  logTail(lines = 6): string {
    return readFileSync(this.logPath, "utf8")
      .split("\n")
      .filter((line) => !line.startsWith('{"level":30,') && line !== "")
      .slice(-lines)
      .map(toSentence)
      .join("\n");
  }

  /** 0: client, 1: http, 2: peer, 3: admin, 4: ops, 5: the proxy before 2. */
  #address(port: number): string {
    return `127.0.0.1:${String(this.#base + port)}`;
  }

  get #journal(): string {
    return join(this.#site.scratch, `${this.name}.unsynced`);
  }

  get #copy(): string {
    return join(this.#site.scratch, `${this.name}.barrier`);
  }
}

/** Whether a process was stopped by a signal; everywhere but on Linux its word must do. */
function isStopped(pid: number): boolean {
  if (process.platform !== "linux") return true;
  const stat = readFileSync(`/proc/${String(pid)}/stat`, "utf8");
  return stat.slice(stat.lastIndexOf(")") + 2).startsWith("T");
}

/** A line of a member's log, short enough to be read. */
function toSentence(line: string): string {
  try {
    const { msg, err, ...rest } = JSON.parse(line) as {
      readonly msg: string;
      readonly err?: { readonly message: string };
    };
    return `    ${msg}: ${err?.message ?? JSON.stringify(rest)}`.slice(0, LOG_LINE_CHARACTERS_MAX);
  } catch {
    return `    ${line.slice(0, LOG_LINE_CHARACTERS_MAX)}`;
  }
}
