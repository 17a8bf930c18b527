// `npm run quickstart`: the main job of a coordination cell, told with real processes. Exit code 0 only if every step
// was observed. On a terminal the cell keeps running afterwards, unless `--exit` is given.
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Talker } from "./processes.ts";
import { startGuardedResource } from "./resource.ts";
import type { GuardedResource } from "./resource.ts";

const { values: flags } = parseArgs({
  options: {
    exit: { type: "boolean", default: false },
    "base-port": { type: "string", default: "7400" },
    help: { type: "boolean", default: false },
  },
});
if (flags.help) {
  console.log("npm run quickstart -- [--exit] [--base-port 7400]\n");
  console.log(
    "Starts a local three-member cell and shows: a lock with its token, the death of the leader, a",
  );
  console.log("paused owner, its successor's larger token, and the refused late write.");
  process.exit(0);
}

interface DevMember {
  readonly id: number;
  readonly name?: string;
  readonly client: string;
  readonly http: string;
  readonly admin: string;
  readonly pid: number;
}

const root = join(import.meta.dirname, "../..");
const TTL_MS = 3_000;
const started = performance.now();
let stepNumber = 0;
const step = (text: string): void => {
  stepNumber += 1;
  const seconds = ((performance.now() - started) / 1000).toFixed(1).padStart(5);
  console.log(`${seconds} s  ${String(stepNumber)}. ${text}`);
};
function observed(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(`not observed: ${what}`);
}

const basePort = await freeBasePort(Number(flags["base-port"]));
const data = mkdtempSync(join(tmpdir(), "lockstep-quickstart-"));
const cleanups: (() => Promise<void> | void)[] = [() => rmSync(data, { recursive: true, force: true })];
let failed = false;
process.on("SIGINT", () => void finish(130));
process.on("SIGTERM", () => void finish(143));

try {
  await story();
} catch (error) {
  failed = true;
  console.error(`\n✗ ${error instanceof Error ? error.message : String(error)}`);
}
if (failed || flags.exit || !process.stdout.isTTY) await finish(failed ? 1 : 0);

/** What the parts of the story share. */
interface Stage {
  readonly members: readonly DevMember[];
  readonly endpoints: string;
  readonly resource: GuardedResource;
  readonly worker: (name: string) => Talker;
}

/** A matcher for a worker's JSON lines. */
function is(event: string): (line: { readonly event?: string }) => boolean {
  return (line) => line.event === event;
}

async function story(): Promise<void> {
  const stage = await setTheStage();
  const first = stage.worker("worker-17");
  const firstToken = await takesTheLock(stage, first);
  const survivors = await theLeaderDies(stage, first, firstToken);
  await thePausedOwnerIsFenced(stage, first, firstToken);
  console.log("\nNo second owner ever wrote: every ownership carries a token that only grows.");
  if (!flags.exit && process.stdout.isTTY) thingsToTry(stage, survivors);
}

async function setTheStage(): Promise<Stage> {
  const cell = new Talker(join(root, "cli/bin/lockstep.mjs"), [
    "dev",
    ...["--members", "3", "--data", data, "--base-port", String(basePort)],
  ]);
  cleanups.unshift(() => cell.end("SIGTERM", 12_000));
  const ready = await cell.next("three voters and a leader", (line) => line["ready"] === true, 90_000);
  const members = ready["members"] as readonly DevMember[];
  const endpoints = members.map((member) => member.client).join(",");
  const processes = members.map((member) => `${member.client} (pid ${String(member.pid)})`);
  step(`A cell of ${String(members.length)} members serves: ${processes.join(", ")}`);
  const resource = await startGuardedResource();
  cleanups.unshift(() => resource.close());
  const worker = (name: string): Talker => {
    const script = join(import.meta.dirname, "worker.ts");
    const talker = new Talker(script, [name, endpoints, resource.url, String(TTL_MS)]);
    cleanups.unshift(() => talker.end("SIGTERM", 2_000));
    return talker;
  };
  return { members, endpoints, resource, worker };
}

async function takesTheLock({ members }: Stage, first: Talker): Promise<number> {
  const session = await first.next("worker-17 has a session", is("session"), 30_000);
  const locked = await first.next("worker-17 holds the lock", is("locked"), 15_000);
  const token = Number(locked["token"]);
  step(
    `worker-17 holds the lock report-42: fencing token ${String(token)} (lease ${String(session["leaseId"])}, TTL ${String(TTL_MS / 1000)} s)`,
  );
  first.tell({ do: "write", text: "written by worker-17" });
  const written = await first.next("worker-17's write is stored", is("written"), 5_000);
  observed(written["status"] === 200, "the resource takes worker-17's write");
  step(`The protected resource takes worker-17's write with token ${String(token)}`);

  const seen = await readOverHttp(members, String(locked["key"]));
  observed(seen.token === String(token), "the HTTP door shows the same token");
  step(`Any member shows it over HTTP: GET ${seen.url} -> Lockstep-Fencing-Token: ${seen.token}`);
  return token;
}

async function theLeaderDies(
  { members }: Stage,
  first: Talker,
  firstToken: number,
): Promise<readonly DevMember[]> {
  const leader = await leaderOf(members);
  process.kill(leader.pid, "SIGKILL");
  step(`kill -9 of the leader (member ${String(leader.id)}, pid ${String(leader.pid)})`);
  const survivors = members.filter((member) => member.id !== leader.id);
  const next = await untilLeader(survivors, leader.id);
  first.tell({ do: "check" });
  const checked = await first.next("worker-17 checks its lock", is("checked"), 15_000);
  observed(
    checked["stillMine"] === true && !first.has(is("session-lost")),
    "the session survives the leader",
  );
  step(
    `Member ${String(next.id)} leads now; worker-17's session survived, its token is still ${String(firstToken)}`,
  );
  return survivors;
}

async function thePausedOwnerIsFenced(stage: Stage, first: Talker, firstToken: number): Promise<void> {
  const { resource, worker } = stage;
  const second = worker("worker-18");
  await second.next("worker-18 has a session and waits", is("session"), 30_000);
  observed(!second.has(is("locked")), "worker-18 waits while worker-17 holds the lock");
  step("worker-18 wants the same lock and waits");

  first.signal("SIGSTOP");
  step("worker-17 is paused (SIGSTOP), longer than its lease");
  const taken = await second.next("worker-18 takes over", is("locked"), 20_000);
  const secondToken = Number(taken["token"]);
  observed(secondToken > firstToken, "the second token is larger");
  step(
    `worker-17's lease ended; worker-18 holds the lock: fencing token ${String(secondToken)} > ${String(firstToken)}`,
  );
  second.tell({ do: "write", text: "written by worker-18" });
  const written = await second.next("worker-18's write is stored", is("written"), 5_000);
  observed(written["status"] === 200, "the resource takes worker-18's write");
  step(`The protected resource takes worker-18's write with token ${String(secondToken)}`);

  first.tell({ do: "write", text: "LATE write by worker-17" });
  first.signal("SIGCONT");
  const late = await first.next("worker-17's late write is answered", is("written"), 10_000);
  observed(late["status"] === 409, "the resource refuses the late write");
  observed(resource.text() === "written by worker-18", "the resource still holds worker-18's write");
  step(`worker-17 wakes and writes late: refused, "${String(late["answer"])}"`);
  await first.next("worker-17 learns that its session is over", is("session-lost"), 10_000);
  step("worker-17 learns that its session is over and stops acting as the owner");
}

function thingsToTry({ members, endpoints }: Stage, survivors: readonly DevMember[]): void {
  const http = survivors[0]?.http ?? "";
  const admins = members.map((member) => member.admin).join(",");
  console.log(`\nThe cell keeps running (data in ${data}); Ctrl-C ends it. Three things to try:\n`);
  console.log(`  curl -i -X PUT ${http}/v1/kv/locks/report-43 -H 'If-Version: 0' -d worker-19`);
  console.log(`  npx lockstep status --admin-endpoints ${admins}`);
  console.log(
    `  npx lockstep lock nightly --endpoints ${endpoints} -- sh -c 'echo "token $LOCKSTEP_FENCING_TOKEN"'\n`,
  );
}

async function finish(code: number): Promise<never> {
  for (const cleanup of cleanups.splice(0)) await cleanup();
  process.exit(code);
}

async function readOverHttp(
  members: readonly DevMember[],
  key: string,
): Promise<{ readonly url: string; readonly token: string | null }> {
  const member = members[members.length - 1];
  observed(member !== undefined, "there is a member to ask");
  const path = (key.startsWith("/") ? key.slice(1) : key).split("/").map(encodeURIComponent).join("/");
  const url = `${member.http}/v1/kv/${path}`;
  const response = await fetch(url);
  return { url, token: response.headers.get("lockstep-fencing-token") };
}

async function leaderOf(members: readonly DevMember[]): Promise<DevMember> {
  for (const member of members) {
    const info = await infoOf(member);
    const leader = members.find((candidate) => candidate.id === info?.leader?.memberId);
    if (leader !== undefined) return leader;
  }
  throw new Error("not observed: a member that names the leader");
}

/** Polls: a leader is elected by time-outs, and nobody announces it to a process that is not connected. */
async function untilLeader(survivors: readonly DevMember[], deadId: number): Promise<DevMember> {
  const deadline = performance.now() + 15_000;
  while (performance.now() < deadline) {
    for (const member of survivors) {
      const id = (await infoOf(member))?.leader?.memberId;
      const leader = survivors.find((candidate) => candidate.id === id);
      if (id !== deadId && leader !== undefined) return leader;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("not observed within 15 s: a new leader");
}

interface Info {
  readonly leader?: { readonly memberId: number };
}

async function infoOf(member: DevMember): Promise<Info | undefined> {
  try {
    const response = await fetch(`${member.http}/v1/info`, { signal: AbortSignal.timeout(2_000) });
    return response.ok ? ((await response.json()) as Info) : undefined;
  } catch {
    return undefined;
  }
}

/** The asked base port if its block is free, else the next free block: a second quickstart must not fail. */
async function freeBasePort(wanted: number): Promise<number> {
  for (let base = wanted; base < wanted + 2_000; base += 100) {
    const ports = [0, 10, 20].flatMap((member) => [0, 1, 2, 3, 4].map((port) => base + member + port));
    if ((await Promise.all(ports.map(isFree))).every(Boolean)) return base;
  }
  throw new Error(`no free ports from ${String(wanted)} on`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}
