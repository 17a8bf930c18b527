import { admin } from "@lockstep/proto";
import { readFileSync } from "node:fs";
import { AdminClient } from "../admin-client.ts";
import { CELL_NODE_FLAGS, cellProgram } from "../commands/cell-program.ts";
import { promoteWhenCaughtUp } from "../commands/member.ts";
import type { Context } from "../context.ts";
import { CliError, EXIT } from "../exit-codes.ts";
import type { Terminal } from "../terminal.ts";
import { layOut, growthSteps, memberArguments, type DevLayout, type DevMember } from "./layout.ts";
import { requireFreePorts } from "./ports.ts";
import { Supervisor } from "./supervisor.ts";

const POLL_MS = 100;
const CALL_MS = 2_000;
const CATCH_UP_MS_MAX = 60_000;
const READY_MS_MAX = 120_000;

export interface DevFlags {
  readonly members: number;
  readonly data: string;
  readonly basePort: number;
  readonly restart: boolean;
}

/** Runs a whole cell of real processes on this machine until it is told to stop. */
export async function dev(context: Context, flags: DevFlags): Promise<number> {
  const { terminal } = context;
  const layout = layOut(flags.data, flags.members, flags.basePort);
  const program = cellProgram();
  await requireFreePorts(layout);
  const supervisors = layout.members.map(
    (member, index) =>
      new Supervisor(
        terminal,
        {
          member,
          command: process.execPath,
          args: [...CELL_NODE_FLAGS, program, ...memberArguments(layout, index)],
        },
        { restart: flags.restart },
      ),
  );
  let stop: () => void = () => undefined;
  const stopped = new Promise<void>((resolve) => (stop = resolve));
  const unsubscribe = terminal.onStop(() => stop());
  const client = new AdminClient(
    layout.members.map((member) => member.admin),
    { tls: undefined, timeoutMs: CALL_MS },
  );
  try {
    terminal.err(`starting ${String(flags.members)} member(s) in ${flags.data}\n`);
    for (const supervisor of supervisors) supervisor.start();
    const ready = untilReady(terminal, { client, layout, supervisors });
    // Failing is fatal only while nobody asked to stop: a stop makes every call fail.
    const first = await Promise.race([ready, stopped.then(() => undefined)]);
    ready.catch(() => undefined);
    if (first !== undefined) {
      terminal.out(`${JSON.stringify({ ready: true, members: first })}\n`);
      await stopped;
    }
    terminal.err("stopping\n");
    return EXIT.ok;
  } finally {
    unsubscribe();
    client.close();
    await Promise.all(supervisors.map((supervisor) => supervisor.stop()));
  }
}

interface DevCell {
  readonly client: AdminClient;
  readonly layout: DevLayout;
  readonly supervisors: readonly Supervisor[];
}

interface ReadyMember extends Omit<DevMember, "folder" | "logFile"> {
  readonly id: number;
  readonly pid: number | undefined;
}

/** Grows the cell to all its members as voters, two at a time, and waits until every one is ready. */
async function untilReady(terminal: Terminal, cell: DevCell): Promise<ReadyMember[]> {
  const { client, layout } = cell;
  const names = layout.members.map(({ name }) => name);
  const target = names.length;
  const voterNames = (listed: admin.ListMembersResponse): string[] =>
    listed.members.filter(({ kind }) => kind === admin.MemberKind.VOTER).map(({ name }) => name);

  let listed = await until(terminal, cell, "a leader", async () => {
    const answer = await client.listMembers();
    return answer.leaderId === 0 ? undefined : answer;
  });
  for (const step of growthSteps(voterNames(listed).length, target)) {
    const missing = names.filter((name) => !voterNames(listed).includes(name)).slice(0, step);
    terminal.err(`waiting for ${missing.join(" and ")} to catch up\n`);
    await until(terminal, cell, `${missing.join(" and ")} to join`, async () => {
      const now = await client.listMembers();
      return missing.every((name) => now.members.some((member) => member.name === name)) ? true : undefined;
    });
    listed = await until(terminal, cell, `${missing.join(" and ")} to be promoted`, async () => {
      const before = await client.listMembers();
      // The answer of an earlier try may have been lost, with the change made.
      const left = missing.filter((name) => !voterNames(before).includes(name));
      if (left.length > 0) await promoteWhenCaughtUp(terminal, client, left, { timeout: CATCH_UP_MS_MAX });
      const after = await client.listMembers();
      return after.joint ? undefined : after;
    });
  }
  await until(terminal, cell, "all members to be ready", async () => {
    for (const member of layout.members) {
      const status = await client.status(member.admin);
      if (!status.ready || status.leaderId === 0) return undefined;
    }
    return true;
  });
  const final = await client.listMembers();
  return layout.members.map((member, index) => ({
    id: final.members.find(({ name }) => name === member.name)?.id ?? 0,
    name: member.name,
    client: member.client,
    http: `http://${member.http}`,
    peer: member.peer,
    admin: member.admin,
    ops: member.ops,
    pid: cell.supervisors[index]?.pid,
  }));
}

/** Why a member ended, as the last line of its log tells; empty when it does not. */
function reasonText(logFile: string): string {
  try {
    const last = readFileSync(logFile, "utf8").trimEnd().split("\n").at(-1) ?? "";
    const { reason } = JSON.parse(last) as { readonly reason?: unknown };
    return typeof reason === "string" ? ` (${reason})` : "";
  } catch {
    return "";
  }
}

/** Repeats `check` until it gives a value; errors are those of members that are not up yet. */
async function until<T>(
  terminal: Terminal,
  cell: DevCell,
  what: string,
  check: () => Promise<T | undefined>,
): Promise<T> {
  const limit = terminal.now() + READY_MS_MAX;
  let last = "";
  for (;;) {
    try {
      const value = await check();
      if (value !== undefined) return value;
    } catch (error) {
      last = error instanceof Error ? error.message : String(error);
    }
    const dead = cell.layout.members.filter((_, index) => cell.supervisors[index]?.hopeless === true);
    if (dead.length > 0) {
      throw new CliError(
        EXIT.failed,
        `${dead.map(({ name, logFile }) => name + reasonText(logFile)).join(", ")} died before the cell was ready`,
        `The end of ${dead.map(({ logFile }) => logFile).join(", ")} tells more. Does another process use this folder?`,
      );
    }
    if (terminal.now() >= limit) {
      throw new CliError(
        EXIT.unavailable,
        `waited too long for ${what}${last === "" ? "" : `: ${last}`}`,
        `The members' logs are ${cell.layout.members.map(({ logFile }) => logFile).join(", ")}.`,
      );
    }
    await terminal.sleep(POLL_MS);
  }
}
