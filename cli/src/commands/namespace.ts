import { randomUUID } from "node:crypto";
import type { admin } from "@lockstep/proto";
import type { Context } from "../context.ts";
import { CliError, EXIT } from "../exit-codes.ts";
import { bytesText, formatTable, print } from "../output.ts";

export async function list(context: Context): Promise<number> {
  const listed = await context.withAdmin((client) => client.listNamespaces());
  print(context.terminal, context.options.output, {
    json: listed,
    text: () =>
      formatTable(
        ["NAME", "UID", "EPOCH", "KEYS", "DATA"],
        listed.namespaces.map(({ name, uid, epoch, keys, bytes }) => [
          name,
          uid === "" ? "-" : uid,
          String(epoch),
          String(keys),
          bytesText(bytes),
        ]),
      ),
  });
  return EXIT.ok;
}

export interface UidFlags {
  readonly uid?: string;
}

export async function create(context: Context, name: string, flags: UidFlags): Promise<number> {
  const uid = flags.uid ?? randomUUID();
  const { namespace } = await context.withAdmin((client) => client.createNamespace({ name, uid }));
  print(context.terminal, context.options.output, {
    json: namespace,
    text: () => `${name} is there, with uid ${uid}\n`,
  });
  return EXIT.ok;
}

/** Without a uid, whichever is listed under that name is meant: a person has just looked at it. */
export async function remove(context: Context, name: string, flags: UidFlags): Promise<number> {
  const { terminal, options } = context;
  const deleted = await context.withAdmin(async (client) => {
    let { uid } = flags;
    if (uid === undefined) {
      const { namespaces } = await client.listNamespaces();
      const found: admin.CellNamespace | undefined = namespaces.find((each) => each.name === name);
      if (found === undefined) {
        throw new CliError(
          EXIT.notFound,
          `there is no namespace ${name}`,
          "`lockstep namespace list` shows the namespaces there are.",
        );
      }
      uid = found.uid;
    }
    return (await client.deleteNamespace({ name, uid })).deleted;
  });
  print(terminal, options.output, {
    json: { name, deleted },
    text: () => (deleted ? `${name} is deleted\n` : `${name} was gone already\n`),
  });
  return EXIT.ok;
}
