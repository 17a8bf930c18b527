import type { AdminClient } from "../admin-client.ts";
import type { Context } from "../context.ts";
import { CliError, EXIT } from "../exit-codes.ts";
import { print } from "../output.ts";

/** To VERSION, or to the newest that every member applies. There is no way back. */
export async function raise(context: Context, version: number | undefined): Promise<number> {
  const { terminal, options } = context;
  const raised = await context.withAdmin(async (client) => {
    const { members, configurationIndex } = await client.listMembers();
    const addresses = members.map(({ name, addresses: at }) => ({ name, admin: at?.admin ?? "" }));
    const newest = await newestOfAll(client, addresses);
    const wanted = version ?? newest;
    if (wanted > newest) {
      throw new CliError(
        EXIT.failed,
        `not every member applies format version ${String(wanted)}, only ${String(newest)}`,
        "Upgrade all members first: one that cannot apply the format would stop.",
      );
    }
    return client.raiseFormatVersion({ version: wanted, plannedOn: configurationIndex });
  });
  print(terminal, options.output, {
    json: raised,
    text: () => `the cell's format version is ${String(raised.formatVersion)}\n`,
  });
  return EXIT.ok;
}

/** Every member is asked: one that does not answer may be an old program. */
async function newestOfAll(
  client: AdminClient,
  members: readonly { readonly name: string; readonly admin: string }[],
): Promise<number> {
  const answers = await Promise.all(members.map(({ admin }) => client.statusOrError(admin)));
  let newest = Number.MAX_SAFE_INTEGER;
  for (const [position, answer] of answers.entries()) {
    const name = members[position]?.name ?? "";
    if ("error" in answer) {
      throw new CliError(
        EXIT.unavailable,
        `${name} does not answer: ${answer.error}`,
        "Bring it back or remove it: a member that cannot apply the format would stop.",
      );
    }
    newest = Math.min(newest, answer.status.formatVersionMax);
  }
  return newest;
}
