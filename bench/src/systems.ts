import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Cluster, commandLineOf, environmentOf, START_LIMIT_MS, type MemberSpec } from "./cluster.ts";
import { gaugeOf } from "./metrics.ts";
import { BenchError, ManagedProcess } from "./processes.ts";

const MEMBERS = 3;
/** Each system takes its ports from the base on; a member of a cell has ten. */
export const PORTS = 40;
/** Of a key that nobody writes. */
const PROBE_KEY = "bench-probe";

async function postJson(url: string, body: unknown, signal: AbortSignal): Promise<Record<string, unknown>> {
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(body), signal });
  if (!answer.ok) throw new BenchError(`${url} answered ${String(answer.status)}`);
  return (await answer.json()) as Record<string, unknown>;
}

async function answers(url: string, status: number, signal: AbortSignal): Promise<boolean> {
  const answer = await fetch(url, { signal });
  await answer.arrayBuffer();
  return answer.status === status;
}

async function etcdLeads(endpoint: string, signal: AbortSignal): Promise<boolean> {
  const status = await postJson(`http://${endpoint}/v3/maintenance/status`, {}, signal);
  const header = status["header"] as { readonly member_id?: string } | undefined;
  const leader = status["leader"];
  return leader !== undefined && leader !== "0" && leader === header?.member_id;
}

function etcdSpec(index: number, options: EtcdOptions): MemberSpec {
  const { basePort, directory } = options;
  const name = `m${String(index + 1)}`;
  const client = (member: number): string => `http://127.0.0.1:${String(basePort + member)}`;
  const peer = (member: number): string => `http://127.0.0.1:${String(basePort + MEMBERS + member)}`;
  const everyone = Array.from({ length: MEMBERS }, (_, member) => `m${String(member + 1)}=${peer(member)}`);
  const endpoint = `127.0.0.1:${String(basePort + index)}`;
  return {
    name: `etcd's ${name}`,
    endpoint,
    command: options.binary,
    // Everything else is etcd's default: fsync of each write, 100 ms heartbeats, 1 s election timeout.
    args: [
      ...["--name", name, "--data-dir", join(directory, name)],
      ...["--listen-client-urls", client(index), "--advertise-client-urls", client(index)],
      ...["--listen-peer-urls", peer(index), "--initial-advertise-peer-urls", peer(index)],
      ...["--initial-cluster", everyone.join(","), "--initial-cluster-state", "new", "--log-level", "error"],
    ],
    env: process.env,
    logFile: join(directory, `${name}.log`),
    // etcd's health is a linearizable read: a member that answers it has applied what was committed.
    isReady: (signal) => answers(`http://${endpoint}/health`, 200, signal),
    isLeader: (signal) => etcdLeads(endpoint, signal),
    canRead: async (signal) => {
      const key = Buffer.from(PROBE_KEY).toString("base64");
      const answer = await postJson(`http://${endpoint}/v3/kv/range`, { key }, signal);
      return answer["header"] !== undefined;
    },
    metricsUrl: `http://${endpoint}/metrics`,
  };
}

export interface EtcdOptions {
  readonly binary: string;
  readonly basePort: number;
  readonly directory: string;
}

/** Starts three members of etcd on empty folders. */
export function startEtcd(options: EtcdOptions): Promise<Cluster> {
  return started(new Cluster(Array.from({ length: MEMBERS }, (_, index) => etcdSpec(index, options))));
}

async function started(cluster: Cluster): Promise<Cluster> {
  try {
    await cluster.start();
    return cluster;
  } catch (error) {
    await cluster.stop();
    throw error;
  }
}

interface DevMember {
  readonly name: string;
  readonly client: string;
  /** With its scheme. */
  readonly http: string;
  readonly ops: string;
  readonly pid: number;
}

/** What `lockstep dev` prints, as one JSON line, when its cell serves. */
interface DevReady {
  readonly ready: true;
  readonly members: readonly DevMember[];
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
  /** More arguments of each member, such as `["--watches-max", "2000000"]`. */
  readonly memberArguments: readonly string[];
}

function profiled(env: NodeJS.ProcessEnv, profileDirectory: string | undefined): NodeJS.ProcessEnv {
  if (profileDirectory === undefined) return env;
  mkdirSync(profileDirectory, { recursive: true });
  const flags = `${env["NODE_OPTIONS"] ?? ""} --cpu-prof --cpu-prof-dir=${profileDirectory}`;
  return { ...env, NODE_OPTIONS: flags.trim() };
}

/**
 * Has `lockstep dev` form the cell. The bench then runs the members itself, with the very command lines that `dev`
 * used, so that it can end and start them one by one.
 */
async function formCell(options: CellOptions): Promise<readonly MemberSpec[]> {
  const { promise: ready, resolve, reject } = Promise.withResolvers<DevReady>();
  const dev = new ManagedProcess({
    command: process.execPath,
    args: [
      lockstepCommand,
      ...["dev", "--members", String(MEMBERS), "--data", join(options.directory, "cell")],
      ...["--base-port", String(options.basePort)],
    ],
    logFile: join(options.directory, "cell.log"),
    onLine: (line) => {
      const found = parseReady(line);
      if (found !== undefined) resolve(found);
    },
  });
  const limit = setTimeout(
    () => reject(new BenchError(`the cell was not ready in time:\n${dev.logTail()}`)),
    START_LIMIT_MS,
  );
  void dev.exited.then((how) =>
    reject(new BenchError(`lockstep dev ended (${String(how)}):\n${dev.logTail()}`)),
  );
  try {
    const { members } = await ready;
    return members.map((member) => cellSpec(member, options));
  } finally {
    clearTimeout(limit);
    await dev.stop();
  }
}

function cellSpec(member: DevMember, options: CellOptions): MemberSpec {
  const [command = "", ...args] = commandLineOf(member.pid);
  const metricsUrl = `http://${member.ops}/metrics`;
  // The key is not there, and saying so takes a quorum.
  const canRead = (signal: AbortSignal): Promise<boolean> =>
    answers(`${member.http}/v1/kv/${PROBE_KEY}`, 404, signal);
  return {
    name: member.name,
    endpoint: member.client,
    command,
    args: [...args, ...options.memberArguments],
    env: profiled(environmentOf(member.pid), options.profileDirectory),
    logFile: join(options.directory, `${member.name}.log`),
    // A member may be ready while it still gets the state from the leader; a linearizable read it answers only with
    // what was committed before. etcd's health is such a read too.
    isReady: async (signal) => (await answers(`http://${member.ops}/readyz`, 200, signal)) && canRead(signal),
    isLeader: async (signal) => {
      const text = await (await fetch(metricsUrl, { signal })).text();
      return gaugeOf(text, "lockstep_raft_is_leader") === 1;
    },
    canRead,
    metricsUrl,
  };
}

/** Starts a cell of three members on empty folders. */
export async function startLockstep(options: CellOptions): Promise<Cluster> {
  return started(new Cluster(await formCell(options)));
}

/**
 * Of the flags with their values those that the member's program knows: bounds that a bench wants higher than any
 * member should have by default.
 */
export function knownMemberFlags(wanted: Readonly<Record<string, number>>): readonly string[] {
  const program = fileURLToPath(import.meta.resolve("@lockstep/cell/main"));
  const help = spawnSync(process.execPath, [program, "member", "--help"], { encoding: "utf8" });
  return Object.entries(wanted).flatMap(([flag, value]) =>
    help.stdout.includes(`${flag} `) ? [flag, String(value)] : [],
  );
}
