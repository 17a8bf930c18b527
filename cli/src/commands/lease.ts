import type { LeaseSummary } from "@lockstep/client";
import type { Context } from "../context.ts";
import { CliError, EXIT } from "../exit-codes.ts";
import { leaseText } from "../json.ts";
import { durationText, formatTable, print } from "../output.ts";

const PAGE = 1_000;

export async function grant(
  context: Context,
  ttlMs: number,
  flags: { readonly owner?: string; readonly id?: string },
): Promise<number> {
  const granted = await context.withClient((client) =>
    client.leaseGrant({
      ttlMs,
      ...(flags.owner === undefined ? {} : { owner: flags.owner }),
      ...(flags.id === undefined ? {} : { leaseId: flags.id }),
    }),
  );
  print(context.terminal, context.options.output, {
    json: { leaseId: leaseText(granted.leaseId), ttlMs: granted.ttlMs, revision: granted.revision },
    text: () => `${leaseText(granted.leaseId)}\n`,
  });
  if (granted.ttlMs !== ttlMs) context.terminal.err(`The cell granted ${durationText(granted.ttlMs)}.\n`);
  return EXIT.ok;
}

/** Renews a lease until it is stopped; with --once, one time. */
export async function keepAlive(
  context: Context,
  leaseId: string,
  flags: { readonly once?: boolean },
): Promise<number> {
  const { terminal } = context;
  const stop = new AbortController();
  const unsubscribe = terminal.onStop(() => stop.abort());
  try {
    return await context.withClient(async (client) => {
      for (;;) {
        const { remainingMs } = await client.leaseRenew([leaseId]);
        const [left = 0] = remainingMs;
        if (left <= 0) throw noSuchLease(leaseId);
        print(terminal, context.options.output, {
          json: { leaseId: leaseText(leaseId), remainingMs: left },
          text: () => `${leaseText(leaseId)} renewed, ${durationText(left)} left\n`,
        });
        if (flags.once === true) return EXIT.ok;
        await waitOrStop(context, left / 3, stop.signal);
        if (stop.signal.aborted) return EXIT.ok;
      }
    });
  } finally {
    unsubscribe();
  }
}

async function waitOrStop(context: Context, ms: number, signal: AbortSignal): Promise<void> {
  await Promise.race([
    context.terminal.sleep(ms),
    new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
  ]);
}

export async function revoke(context: Context, leaseId: string): Promise<number> {
  const result = await context.withClient((client) => client.leaseRevoke(leaseId));
  print(context.terminal, context.options.output, {
    json: { leaseId: leaseText(leaseId), revision: result.revision, deleted: result.deleted },
    text: () => `${leaseText(leaseId)} revoked, ${String(result.deleted)} keys deleted\n`,
  });
  return EXIT.ok;
}

export async function show(context: Context, leaseId: string): Promise<number> {
  const lease = await context.withClient((client) => client.leaseTimeToLive(leaseId, { keys: true }));
  if (lease.remainingMs < 0) throw noSuchLease(leaseId);
  const keys = lease.keys.map((key) => key.toString("utf8"));
  print(context.terminal, context.options.output, {
    json: {
      leaseId: leaseText(leaseId),
      remainingMs: lease.remainingMs,
      ttlMs: lease.ttlMs,
      owner: lease.owner,
      keys,
    },
    text: () =>
      formatTable(
        ["LEASE", "LEFT", "TTL", "OWNER", "KEYS"],
        [
          [
            leaseText(leaseId),
            durationText(lease.remainingMs),
            durationText(lease.ttlMs),
            lease.owner === "" ? "-" : lease.owner,
            keys.length === 0 ? "-" : keys.join(" "),
          ],
        ],
      ),
  });
  return EXIT.ok;
}

export async function list(context: Context): Promise<number> {
  const leases = await context.withClient(async (client) => {
    const all: LeaseSummary[] = [];
    for (let after = "0"; ;) {
      const page = await client.leaseList({ after, limit: PAGE });
      all.push(...page.leases);
      const last = page.leases.at(-1);
      if (!page.more || last === undefined) return all;
      after = last.leaseId;
    }
  });
  print(context.terminal, context.options.output, {
    json: { leases: leases.map((lease) => ({ ...lease, leaseId: leaseText(lease.leaseId) })) },
    text: () =>
      formatTable(
        ["LEASE", "TTL", "OWNER"],
        leases.map((lease) => [
          leaseText(lease.leaseId),
          durationText(lease.ttlMs),
          lease.owner === "" ? "-" : lease.owner,
        ]),
      ),
  });
  return EXIT.ok;
}

function noSuchLease(leaseId: string): CliError {
  return new CliError(
    EXIT.notFound,
    `there is no ${leaseText(leaseId)}: it ended, or never was`,
    "`lockstep lease list` shows the leases there are.",
  );
}
