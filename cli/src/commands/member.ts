import { admin } from "@lockstep/proto";
import type { AdminClient } from "../admin-client.ts";
import type { Context } from "../context.ts";
import { CliError, EXIT } from "../exit-codes.ts";
import { formatTable, print } from "../output.ts";
import type { Terminal } from "../terminal.ts";
import { kindText } from "./cluster.ts";
import { catchUpOf, findMember, planPromotion, planRemoval, planReplacement } from "./membership-plan.ts";

const POLL_MS = 200;
const REPORT_MS = 2_000;

function membersJson(members: readonly admin.Member[]): unknown {
  return members.map((member) => ({ ...member, kind: kindText(member.kind) }));
}

function membersTable(members: readonly admin.Member[], leaderId: number): string {
  return formatTable(
    ["ID", "NAME", "KIND", "LEADER", "CLIENT", "HTTP", "PEER", "ADMIN", "OPS"],
    members.map(({ id, name, kind, addresses }) => [
      String(id),
      name,
      kindText(kind),
      id === leaderId ? "yes" : "-",
      addresses?.client ?? "-",
      addresses?.http ?? "-",
      addresses?.peer ?? "-",
      addresses?.admin ?? "-",
      addresses?.ops ?? "-",
    ]),
  );
}

export async function list(context: Context): Promise<number> {
  const listed = await context.withAdmin((client) => client.listMembers());
  print(context.terminal, context.options.output, {
    json: { ...listed, members: membersJson(listed.members) },
    text: () => membersTable(listed.members, listed.leaderId),
  });
  if (listed.joint) context.terminal.err("A membership change is under way (joint configuration).\n");
  return EXIT.ok;
}

function printChange(context: Context, changed: admin.ChangeMembershipResponse): void {
  print(context.terminal, context.options.output, {
    json: { configurationIndex: changed.configurationIndex, members: membersJson(changed.members) },
    text: () => membersTable(changed.members, 0),
  });
}

export interface AddFlags {
  readonly incarnation: string;
  readonly client: string;
  readonly http: string;
  readonly peer: string;
  readonly admin: string;
  readonly ops: string;
  readonly cellId?: string;
}

/** Announces a member by hand; `serve --join` does it by itself. */
export async function add(context: Context, name: string, flags: AddFlags): Promise<number> {
  const { incarnation, cellId, ...addresses } = flags;
  const added = await context.withAdmin((client) =>
    client.addLearner({
      name,
      incarnation,
      cellId: cellId ?? "",
      plannedOn: 0,
      addresses: {
        client: addresses.client,
        http: addresses.http,
        peer: addresses.peer,
        admin: addresses.admin,
        ops: addresses.ops,
      },
    }),
  );
  print(context.terminal, context.options.output, {
    json: { ...added, members: membersJson(added.members) },
    text: () => `${name} is learner ${String(added.memberId)} of cell ${added.cellId}\n`,
  });
  return EXIT.ok;
}

export interface PromoteFlags {
  readonly timeout: number;
  readonly force?: boolean;
}

export async function promote(
  context: Context,
  names: readonly string[],
  flags: PromoteFlags,
): Promise<number> {
  const changed = await context.withAdmin((client) =>
    promoteWhenCaughtUp(context.terminal, client, names, flags),
  );
  printChange(context, changed);
  return EXIT.ok;
}

/** Waits until all are caught up, then makes them voters in one change, planned on the newest configuration. */
export async function promoteWhenCaughtUp(
  terminal: Terminal,
  client: AdminClient,
  names: readonly string[],
  flags: PromoteFlags,
): Promise<admin.ChangeMembershipResponse> {
  if (flags.force !== true) await untilCaughtUp(terminal, client, names, flags.timeout);
  const listed = await client.listMembers();
  const members = names.map((name) => findMember(listed, name));
  for (const member of members) {
    if (member.kind !== admin.MemberKind.LEARNER) {
      throw new CliError(EXIT.usage, `${member.name} is a ${kindText(member.kind)} already`);
    }
  }
  return client.changeMembership(planPromotion(listed, members, flags.force ?? false));
}

/** Polls the leader's view of the members; reports now and then. */
async function untilCaughtUp(
  terminal: Terminal,
  client: AdminClient,
  names: readonly string[],
  timeoutMs: number,
): Promise<void> {
  const limit = terminal.now() + timeoutMs;
  let reportedAt = terminal.now();
  for (;;) {
    const listed = await client.listMembers();
    const members = names.map((name) => findMember(listed, name));
    const leader = listed.members.find(({ id }) => id === listed.leaderId);
    const leaderStatus =
      leader?.addresses === undefined ? undefined : await client.statusOrError(leader.addresses.admin);
    const progress =
      leaderStatus === undefined || "error" in leaderStatus ? [] : catchUpOf(members, leaderStatus.status);
    if (progress.length > 0 && progress.every(({ caughtUp }) => caughtUp)) return;
    const now = terminal.now();
    const report = progress
      .map(({ member, behind, active }) =>
        active ? `${member.name} is ${String(behind)} entries behind` : `${member.name} is silent`,
      )
      .join(", ");
    if (now >= limit) {
      throw new CliError(
        EXIT.unavailable,
        `not caught up in time: ${report === "" ? "the leader does not answer" : report}`,
        "Are the new members running, and can they reach the leader's peer address? A longer --timeout may help.",
      );
    }
    if (now - reportedAt >= REPORT_MS) {
      reportedAt = now;
      terminal.err(`${report === "" ? "waiting for the leader" : report}\n`);
    }
    await terminal.sleep(POLL_MS);
  }
}

export async function remove(
  context: Context,
  names: readonly string[],
  flags: { readonly force?: boolean },
): Promise<number> {
  const changed = await context.withAdmin(async (client) => {
    const listed = await client.listMembers();
    const members = names.map((name) => findMember(listed, name));
    return client.changeMembership(planRemoval(listed, members, flags.force ?? false));
  });
  printChange(context, changed);
  return EXIT.ok;
}

/** The new member must be a learner; it is waited for, leadership moves off the old one, one joint change does it. */
export async function replace(
  context: Context,
  oldName: string,
  newName: string,
  flags: PromoteFlags,
): Promise<number> {
  const { terminal } = context;
  const changed = await context.withAdmin(async (client) => {
    const before = await client.listMembers();
    // Refuses at once what waiting would not mend.
    planReplacement(before, findMember(before, oldName), findMember(before, newName));
    await untilCaughtUp(terminal, client, [newName], flags.timeout);
    if (before.leaderId === findMember(before, oldName).id) {
      terminal.err(`${oldName} leads: moving leadership away first\n`);
      await client.transferLeadership(0);
    }
    const listed = await client.listMembers();
    return client.changeMembership(
      planReplacement(listed, findMember(listed, oldName), findMember(listed, newName)),
    );
  });
  printChange(context, changed);
  return EXIT.ok;
}
