import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { BenchError, ManagedProcess, usageOf } from "./processes.ts";

export const START_LIMIT_MS = 120_000;
const POLL_MS = 100;
/** While a restart is timed: the figure is off by no more than this. */
const FAST_POLL_MS = 10;
const PROBE_MS_MAX = 5_000;

/** How one member is started, and how it is asked for what the bench wants to know. */
export interface MemberSpec {
  readonly name: string;
  /** host:port of its client door. */
  readonly endpoint: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly logFile: string;
  /** It has caught up and serves. */
  readonly isReady: (signal: AbortSignal) => Promise<boolean>;
  readonly isLeader: (signal: AbortSignal) => Promise<boolean>;
  /** It answers a linearizable read. */
  readonly canRead: (signal: AbortSignal) => Promise<boolean>;
  /** Where its metrics are, in Prometheus' format. */
  readonly metricsUrl: string;
}

/** A probe of a member that is not there yet is a "no". */
async function ask(probe: (signal: AbortSignal) => Promise<boolean>, signal?: AbortSignal): Promise<boolean> {
  const limit = AbortSignal.timeout(PROBE_MS_MAX);
  try {
    return await probe(signal === undefined ? limit : AbortSignal.any([limit, signal]));
  } catch {
    return false;
  }
}

/** One member's process, which may be ended and started again. */
export class Member {
  readonly spec: MemberSpec;
  #process: ManagedProcess | undefined;

  constructor(spec: MemberSpec) {
    this.spec = spec;
  }

  get pid(): number {
    return this.#process?.pid ?? 0;
  }

  get over(): boolean {
    return this.#process?.over ?? true;
  }

  start(): void {
    const { command, args, env, logFile } = this.spec;
    this.#process = new ManagedProcess({ command, args, env, logFile });
  }

  /** Resolves when the present process has ended, by whoever's doing. */
  async exited(): Promise<void> {
    await this.#process?.exited;
  }

  async stop(): Promise<void> {
    await this.#process?.stop();
  }

  logTail(): string {
    return this.#process?.logTail() ?? "";
  }

  ready(): Promise<boolean> {
    return ask(this.spec.isReady);
  }

  leads(): Promise<boolean> {
    return ask(this.spec.isLeader);
  }
}

/** Members of one system that run on this machine. */
export class Cluster {
  readonly members: readonly Member[];

  constructor(specs: readonly MemberSpec[]) {
    this.members = specs.map((spec) => new Member(spec));
  }

  /** host:port of each member's client door. */
  get endpoints(): readonly string[] {
    return this.members.map((member) => member.spec.endpoint);
  }

  memberPids(): readonly number[] {
    return this.members.map((member) => member.pid);
  }

  /** Of each member that runs; empty where there is no /proc. */
  residentBytes(): readonly number[] {
    return this.memberPids().flatMap((pid) => usageOf(pid)?.residentBytes ?? []);
  }

  /** @throws BenchError when a member has ended, with the end of its log. */
  assertAlive(): void {
    for (const member of this.members) {
      if (member.over) {
        throw new BenchError(
          `${member.spec.name} has ended by itself; the end of its log:\n${member.logTail()}`,
        );
      }
    }
  }

  /** Starts all members and waits until each has caught up. */
  async start(): Promise<void> {
    for (const member of this.members) member.start();
    await this.untilReady();
  }

  /** @throws BenchError when a member is not there, caught up, in time. */
  async untilReady(limitMs: number = START_LIMIT_MS): Promise<void> {
    const limit = performance.now() + limitMs;
    for (const member of this.members) {
      while (!(await member.ready())) {
        this.assertAlive();
        if (performance.now() > limit) {
          throw new BenchError(`${member.spec.name} did not get ready:\n${member.logTail()}`);
        }
        await delay(POLL_MS);
      }
    }
  }

  /** @throws BenchError when nobody leads in time. */
  async leader(): Promise<Member> {
    const limit = performance.now() + START_LIMIT_MS;
    for (;;) {
      for (const member of this.members) if (await member.leads()) return member;
      this.assertAlive();
      if (performance.now() > limit) throw new BenchError("no member says that it leads");
      await delay(POLL_MS);
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.stop()));
  }

  /** Stops all members, starts them at once, and tells the milliseconds until one answered a linearizable read. */
  async restartMs(): Promise<number> {
    await this.stop();
    const begin = performance.now();
    for (const member of this.members) member.start();
    const done = new AbortController();
    const limit = setTimeout(
      () => done.abort(new BenchError("no linearizable read was answered after the restart")),
      START_LIMIT_MS,
    );
    const answered = async (member: Member): Promise<void> => {
      while (!done.signal.aborted) {
        if (await ask(member.spec.canRead, done.signal)) return;
        await delay(FAST_POLL_MS);
      }
      throw done.signal.reason;
    };
    try {
      await Promise.any(this.members.map(answered));
      return performance.now() - begin;
    } catch {
      this.assertAlive();
      throw new BenchError("no linearizable read was answered after the restart");
    } finally {
      clearTimeout(limit);
      done.abort();
    }
  }
}

/** @throws BenchError when a port of the range is in use. */
export async function assertPortsFree(first: number, count: number): Promise<void> {
  for (let port = first; port < first + count; port += 1) {
    await new Promise<void>((resolve, reject) => {
      const probe = createServer();
      probe.once("error", () =>
        reject(new BenchError(`port ${String(port)} is in use: choose others with --base-port`)),
      );
      probe.listen(port, "127.0.0.1", () => probe.close(() => resolve()));
    });
  }
}

/** What a process was started with, as Linux tells it. @throws BenchError where there is no /proc. */
export function commandLineOf(pid: number): readonly string[] {
  return nulSeparated(`/proc/${String(pid)}/cmdline`);
}

export function environmentOf(pid: number): NodeJS.ProcessEnv {
  const pairs = nulSeparated(`/proc/${String(pid)}/environ`).map((pair): [string, string] => {
    const at = pair.indexOf("=");
    return [pair.slice(0, at), pair.slice(at + 1)];
  });
  return Object.fromEntries(pairs);
}

function nulSeparated(file: string): readonly string[] {
  try {
    return readFileSync(file, "utf8").split("\0").slice(0, -1);
  } catch {
    throw new BenchError(`${file} cannot be read: the bench needs Linux, whose /proc tells about processes`);
  }
}
