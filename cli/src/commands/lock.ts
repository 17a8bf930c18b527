import { Permit } from "@lockstep/client";
import type { Context } from "../context.ts";
import { CliError, EXIT } from "../exit-codes.ts";
import { runAsOwner, type OwnerFlags } from "./owner.ts";

export interface LockFlags extends OwnerFlags {
  /** In the order of asking. */
  readonly fair?: boolean;
}

/** Runs COMMAND while holding a lock. */
export function lock(
  context: Context,
  name: string,
  command: readonly string[],
  flags: LockFlags,
): Promise<number> {
  return runAsOwner(context, command, flags, {
    ...{ verb: "lock", name, what: `the lock "${name}"` },
    acquire: (client, options) =>
      flags.fair === true ? client.fairLock(name).acquire(options) : client.lock(name, options),
  });
}

export interface SemaphoreFlags extends OwnerFlags {
  readonly permits?: number;
}

/** Runs COMMAND while holding one of so many permits. */
export function semaphore(
  context: Context,
  name: string,
  command: readonly string[],
  flags: SemaphoreFlags,
): Promise<number> {
  const { permits } = flags;
  if (permits === undefined) {
    throw new CliError(
      EXIT.usage,
      "--permits is missing: how many may run at once (the same for all who use it)",
    );
  }
  return runAsOwner(context, command, flags, {
    ...{ verb: "semaphore", name, what: `a permit of the semaphore "${name}"` },
    acquire: (client, options) => client.semaphore(name, { permits }).acquire(options),
    environment: (claim) => (claim instanceof Permit ? { LOCKSTEP_PERMIT_SLOT: String(claim.slot) } : {}),
  });
}

export interface ElectFlags extends OwnerFlags {
  /** What observers see of the leader. */
  readonly value?: string;
}

/** Runs COMMAND while leading. */
export function elect(
  context: Context,
  name: string,
  command: readonly string[],
  flags: ElectFlags,
): Promise<number> {
  return runAsOwner(context, command, flags, {
    ...{ verb: "elect", name, what: `the election "${name}"` },
    acquire: (client, options) =>
      client
        .election(name)
        .campaign({ ...options, ...(flags.value !== undefined && { value: flags.value }) }),
  });
}

export interface RegisterFlags extends OwnerFlags {
  readonly id?: string;
  readonly value: string;
}

/** Runs COMMAND and keeps an endpoint of a service registered meanwhile. */
export function register(
  context: Context,
  name: string,
  command: readonly string[],
  flags: RegisterFlags,
): Promise<number> {
  const value = parseValue(flags.value);
  return runAsOwner(context, command, flags, {
    ...{ verb: "register", name, what: `the endpoint of "${name}"` },
    acquire: (client, { session, signal }) =>
      client
        .service(name)
        .register({ session, signal, value, ...(flags.id !== undefined && { id: flags.id }) }),
  });
}

/** JSON if it is, else the text itself: an address need not be quoted. */
function parseValue(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
