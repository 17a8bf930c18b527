import type { RangeInput, TxnResult } from "@lockstep/client";
import type { Context } from "../context.ts";
import { EXIT, usageError } from "../exit-codes.ts";
import { keyValueJson, stepJson, txnJson } from "../json.ts";
import { formatTable, KEY_VALUE_HEAD, keyValueRow, print } from "../output.ts";
import { parseTxn } from "../txn-json.ts";

export interface RangeFlags {
  readonly prefix?: boolean;
  readonly from?: boolean;
  readonly rangeEnd?: string;
}

/** The keys that KEY and the range flags mean. */
export function rangeOf(key: string, flags: RangeFlags): RangeInput {
  const chosen = [flags.prefix === true, flags.from === true, flags.rangeEnd !== undefined];
  if (chosen.filter(Boolean).length > 1) throw usageError("use only one of --prefix, --from and --range-end");
  if (flags.prefix === true) return { prefix: key };
  if (flags.from === true) return { from: key };
  if (flags.rangeEnd !== undefined) return { from: key, to: flags.rangeEnd };
  if (key === "") throw usageError("the key is empty", "The whole namespace is `--prefix ''`.");
  return key;
}

export interface GetFlags extends RangeFlags {
  readonly revision?: number;
  readonly limit?: number;
  readonly keysOnly?: boolean;
  readonly countOnly?: boolean;
  readonly reverse?: boolean;
  readonly serializable?: boolean;
  readonly raw?: boolean;
}

export async function get(context: Context, key: string, flags: GetFlags): Promise<number> {
  const range = rangeOf(key, flags);
  const result = await context.withClient((client) =>
    client.range(range, {
      ...(flags.revision === undefined ? {} : { revision: flags.revision }),
      ...(flags.limit === undefined ? {} : { limit: flags.limit }),
      keysOnly: flags.keysOnly ?? false,
      countOnly: flags.countOnly ?? false,
      reverse: flags.reverse ?? false,
      consistency: flags.serializable === true ? "serializable" : "linearizable",
    }),
  );
  const { terminal, options } = context;
  if (flags.raw === true) {
    for (const kv of result.kvs) terminal.out(kv.value);
  } else if (flags.countOnly === true) {
    print(terminal, options.output, {
      json: { revision: result.revision, count: result.count },
      text: () => `${String(result.count)}\n`,
    });
  } else {
    print(terminal, options.output, {
      json: {
        items: result.kvs.map(keyValueJson),
        count: result.count,
        more: result.more,
        revision: result.revision,
      },
      text: () => (result.kvs.length === 0 ? "" : formatTable(KEY_VALUE_HEAD, result.kvs.map(keyValueRow))),
    });
    if (result.more && options.output === "table") {
      terminal.err(
        `There are more: ${String(result.count)} keys in all. Use --limit, or --from the last key.\n`,
      );
    }
  }
  if (result.count > 0 || typeof range !== "string") return EXIT.ok;
  if (options.output === "table") terminal.err(`There is no key "${key}".\n`);
  return EXIT.notFound;
}

export interface PutFlags {
  readonly lease?: string;
  readonly sequential?: boolean;
  readonly previous?: boolean;
}

/** Without VALUE the value comes from standard input, as it is. */
export async function put(
  context: Context,
  key: string,
  value: string | undefined,
  flags: PutFlags,
): Promise<number> {
  if (key === "" && flags.sequential !== true) throw usageError("the key is empty");
  const content = value ?? (await context.terminal.readInput());
  const result = await context.withClient((client) =>
    client.put(key, content, {
      ...(flags.lease === undefined ? {} : { leaseId: flags.lease }),
      sequential: flags.sequential ?? false,
      returnPrevious: flags.previous ?? false,
    }),
  );
  print(context.terminal, context.options.output, {
    json: stepJson(result)["put"],
    text: () => {
      const stored = flags.sequential === true ? `${result.key.toString("utf8")} ` : "";
      const line = `${stored}revision ${String(result.revision)}, version ${String(result.version)}\n`;
      return result.previous === undefined
        ? line
        : line + formatTable(KEY_VALUE_HEAD, [keyValueRow(result.previous)]);
    },
  });
  return EXIT.ok;
}

export async function del(
  context: Context,
  key: string,
  flags: RangeFlags & { readonly previous?: boolean },
): Promise<number> {
  const range = rangeOf(key, flags);
  const result = await context.withClient((client) =>
    client.delete(range, { returnPrevious: flags.previous ?? false }),
  );
  print(context.terminal, context.options.output, {
    json: stepJson(result)["delete"],
    text: () =>
      `${String(result.deleted)} deleted, revision ${String(result.revision)}\n` +
      (result.previous.length === 0 ? "" : formatTable(KEY_VALUE_HEAD, result.previous.map(keyValueRow))),
  });
  return result.deleted === 0 ? EXIT.notFound : EXIT.ok;
}

export async function txn(context: Context): Promise<number> {
  const request = parseTxn(await context.terminal.readInput());
  const result = await context.withClient((client) => client.txn(request));
  print(context.terminal, context.options.output, {
    json: txnJson(result),
    text: () => txnText(result),
  });
  return result.succeeded ? EXIT.ok : EXIT.compareFailed;
}

function txnText(result: TxnResult): string {
  const lines = [
    `${result.succeeded ? "succeeded" : "compares failed"}, revision ${String(result.revision)}\n`,
  ];
  for (const { index, actual } of result.failures) {
    lines.push(
      actual === undefined
        ? `compare ${String(index)}: there is no such key\n`
        : `compare ${String(index)}: the key is\n${formatTable(KEY_VALUE_HEAD, [keyValueRow(actual)])}`,
    );
  }
  for (const [index, response] of result.responses.entries()) {
    if (response.kind === "put") lines.push(`${String(index)}: put, version ${String(response.version)}\n`);
    else if (response.kind === "delete")
      lines.push(`${String(index)}: ${String(response.deleted)} deleted\n`);
    else if (response.kvs.length === 0) lines.push(`${String(index)}: no keys\n`);
    else lines.push(formatTable(KEY_VALUE_HEAD, response.kvs.map(keyValueRow)));
  }
  return lines.join("");
}
