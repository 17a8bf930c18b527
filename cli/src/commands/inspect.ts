import type { Client, LockState } from "@lockstep/client";
import type { Context } from "../context.ts";
import { CliError, EXIT } from "../exit-codes.ts";
import { durationText, formatTable, print } from "../output.ts";

interface Row extends LockState {
  readonly kind: "lock" | "fair lock" | "semaphore" | "election";
  readonly role: "holds" | "waits";
  /** Of its session; undefined: it ends just now. */
  readonly leftMs: number | undefined;
}

/** More waiters than this are counted and not shown. */
const SHOWN_MAX = 50;

/** Who holds what has this name, since when and for how long yet, and who waits for it. */
export async function inspect(context: Context, name: string): Promise<number> {
  const { rows, waiting } = await context.withClient((client) => look(client, name));
  if (rows.length === 0) {
    const message = `nobody holds or waits for a lock, a semaphore or an election "${name}"`;
    throw new CliError(EXIT.notFound, message);
  }
  const now = Date.now();
  print(context.terminal, context.options.output, {
    json: { name, waiting, rows: rows.map((row) => ({ ...row, owner: row.owner })) },
    text: () =>
      formatTable(
        ["WHAT", "ROLE", "TOKEN", "OWNER", "SINCE", "LEASE LEFT"],
        rows.map((row) => [
          row.kind,
          row.role,
          String(row.token),
          printable(row.owner),
          row.sinceMs === undefined ? "" : `${durationText(Math.max(0, now - row.sinceMs))} ago`,
          row.leftMs === undefined ? "ended" : durationText(row.leftMs),
        ]),
      ) + (waiting > SHOWN_MAX ? `${String(waiting)} wait; the first ${String(SHOWN_MAX)} are shown\n` : ""),
  });
  return EXIT.ok;
}

async function look(
  client: Client,
  name: string,
): Promise<{ readonly rows: readonly Row[]; readonly waiting: number }> {
  const [holder, fair, semaphore, leader] = await Promise.all([
    client.lock(name).holder(),
    client.fairLock(name).inspect(),
    // The limit matters to those who take permits alone.
    client.semaphore(name, { permits: 1 }).inspect(),
    client.election(name).leader(),
  ]);
  const found: Omit<Row, "leftMs">[] = [
    ...as("lock", "holds", holder === undefined ? [] : [holder]),
    ...as("fair lock", "holds", fair.holder === undefined ? [] : [fair.holder]),
    ...as("fair lock", "waits", fair.waiters),
    ...as("semaphore", "holds", semaphore.holders),
    ...as("semaphore", "waits", semaphore.waiters),
    ...as("election", "holds", leader === undefined ? [] : [leader]),
  ];
  const waiting = found.filter(({ role }) => role === "waits");
  const hidden = new Set(waiting.slice(SHOWN_MAX));
  const shown = found.filter((row) => !hidden.has(row));
  const rows = await Promise.all(
    shown.map(async (row) => {
      const { remainingMs } = await client.leaseTimeToLive(row.leaseId);
      return { ...row, leftMs: remainingMs < 0 ? undefined : remainingMs };
    }),
  );
  return { rows, waiting: waiting.length };
}

function as(kind: Row["kind"], role: Row["role"], states: readonly LockState[]): Omit<Row, "leftMs">[] {
  return states.map(({ token, leaseId, owner, sinceMs }) => ({
    ...{ kind, role, token, leaseId, owner },
    ...(sinceMs !== undefined && { sinceMs }),
  }));
}

/** What others wrote must not move the cursor. */
function printable(text: string): string {
  return text.replaceAll(/[\u0000-\u001f\u007f]/g, "?");
}
