import { mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { BenchError, descendantsOf, ManagedProcess } from "./processes.ts";

const START_LIMIT_MS = 60_000;
const POLL_MS = 100;
const MEMBERS = 3;

/** Three running members of one system. */
export interface RunningSystem {
  /** host:port of each member's client door. */
  readonly endpoints: readonly string[];
  /** The members' processes. */
  memberPids(): readonly number[];
  /** @throws BenchError when a member has ended, with the end of its log. */
  assertAlive(): void;
  stop(): Promise<void>;
}

function assertAlive(processes: readonly ManagedProcess[]): void {
  for (const one of processes) {
    if (one.over) throw new BenchError(`a server has ended by itself; the end of its log:\n${one.logTail()}`);
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

function etcdArguments(index: number, basePort: number, directory: string): readonly string[] {
  const client = (member: number): string => `http://127.0.0.1:${String(basePort + member)}`;
  const peer = (member: number): string => `http://127.0.0.1:${String(basePort + MEMBERS + member)}`;
  const everyone = Array.from({ length: MEMBERS }, (_, member) => `m${String(member + 1)}=${peer(member)}`);
  // Everything else is etcd's default: fsync of each write, 100 ms heartbeats, 1 s election timeout.
  return [
    ...["--name", `m${String(index + 1)}`, "--data-dir", join(directory, `m${String(index + 1)}`)],
    ...["--listen-client-urls", client(index), "--advertise-client-urls", client(index)],
    ...["--listen-peer-urls", peer(index), "--initial-advertise-peer-urls", peer(index)],
    ...["--initial-cluster", everyone.join(","), "--initial-cluster-state", "new", "--log-level", "error"],
  ];
}

async function isHealthy(endpoint: string): Promise<boolean> {
  try {
    const answer = await fetch(`http://${endpoint}/health`, { signal: AbortSignal.timeout(2_000) });
    return answer.ok;
  } catch {
    return false; // not listening yet
  }
}

export async function startEtcd(binary: string, basePort: number, directory: string): Promise<RunningSystem> {
  const members = Array.from(
    { length: MEMBERS },
    (_, index) =>
      new ManagedProcess({
        command: binary,
        args: etcdArguments(index, basePort, directory),
        logFile: join(directory, `m${String(index + 1)}.log`),
      }),
  );
  const endpoints = members.map((_, index) => `127.0.0.1:${String(basePort + index)}`);
  const limit = performance.now() + START_LIMIT_MS;
  for (const endpoint of endpoints) {
    while (!(await isHealthy(endpoint))) {
      assertAlive(members);
      if (performance.now() > limit) throw new BenchError(`etcd's member at ${endpoint} did not get healthy`);
      await delay(POLL_MS);
    }
  }
  return {
    endpoints,
    memberPids: () => members.map((member) => member.pid),
    assertAlive: () => assertAlive(members),
    stop: async () => {
      await Promise.all(members.map((member) => member.stop()));
    },
  };
}

/** What `lockstep dev` prints, as one JSON line, when its cell serves. */
interface DevReady {
  readonly ready: true;
  readonly members: readonly { readonly client: string; readonly pid?: number }[];
}

function parseReady(line: string): DevReady | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    const parsed = JSON.parse(line) as Partial<DevReady>;
    return parsed.ready === true && Array.isArray(parsed.members) ? (parsed as DevReady) : undefined;
  } catch {
    return undefined;
  }
}

const lockstepCommand = join(import.meta.dirname, "../../cli/bin/lockstep.mjs");

export interface CellOptions {
  readonly basePort: number;
  readonly directory: string;
  /** Members write a CPU profile there when they stop. */
  readonly profileDirectory: string | undefined;
}

function cellEnvironment(profileDirectory: string | undefined): NodeJS.ProcessEnv {
  if (profileDirectory === undefined) return process.env;
  mkdirSync(profileDirectory, { recursive: true });
  const flags = `${process.env["NODE_OPTIONS"] ?? ""} --cpu-prof --cpu-prof-dir=${profileDirectory}`;
  return { ...process.env, NODE_OPTIONS: flags.trim() };
}

export async function startLockstep(options: CellOptions): Promise<RunningSystem> {
  const { promise: ready, resolve, reject } = Promise.withResolvers<DevReady>();
  const dev = new ManagedProcess({
    command: process.execPath,
    args: [
      lockstepCommand,
      ...["dev", "--members", String(MEMBERS), "--data", join(options.directory, "cell")],
      ...["--base-port", String(options.basePort)],
    ],
    env: cellEnvironment(options.profileDirectory),
    logFile: join(options.directory, "cell.log"),
    onLine: (line) => {
      const found = parseReady(line);
      if (found !== undefined) resolve(found);
    },
  });
  const limit = setTimeout(
    () =>
      reject(
        new BenchError(`the cell was not ready after ${String(START_LIMIT_MS / 1000)} s:\n${dev.logTail()}`),
      ),
    START_LIMIT_MS,
  );
  void dev.exited.then((how) =>
    reject(new BenchError(`lockstep dev ended (${String(how)}):\n${dev.logTail()}`)),
  );
  try {
    const { members } = await ready;
    const pids = members.flatMap((member) => (member.pid === undefined ? [] : [member.pid]));
    return {
      endpoints: members.map((member) => member.client),
      memberPids: () => (pids.length === MEMBERS ? pids : descendantsOf(dev.pid)),
      assertAlive: () => assertAlive([dev]),
      stop: () => dev.stop(),
    };
  } catch (error) {
    await dev.stop();
    throw error;
  } finally {
    clearTimeout(limit);
  }
}
