/** Runs COMMAND while something is held: what `lock`, `semaphore`, `elect` and `register` have in common. */
import { spawn, type ChildProcess } from "node:child_process";
import { constants, hostname } from "node:os";
import { LockstepError, type Claim, type Client, type Session } from "@lockstep/client";
import type { Context } from "../context.ts";
import { CliError, describe, EXIT } from "../exit-codes.ts";
import { Guardian, RUN_VARIABLE, tellMs } from "../guardian/client.ts";

export interface OwnerFlags {
  readonly ttl: number;
  /** Milliseconds; absent: for ever. */
  readonly wait?: number;
  /** Milliseconds between TERM and KILL. */
  readonly grace: number;
}

export interface Owning {
  /** The subcommand, for messages. */
  readonly verb: string;
  readonly name: string;
  /** What is held, for messages: `the lock "nightly"`. */
  readonly what: string;
  readonly acquire: (
    client: Client,
    options: { readonly session: Session; readonly signal: AbortSignal; readonly waitMs?: number },
  ) => Promise<Claim>;
  /** More of COMMAND's environment. */
  readonly environment?: (claim: Claim) => Readonly<Record<string, string>>;
}

/**
 * Runs COMMAND, without a shell, while it is held. The session gives itself up early enough that TERM, the grace period
 * and KILL are over before the cell may hand it to somebody else. A guardian process sees to it, so that it happens also
 * when this one is stopped or killed.
 */
export async function runAsOwner(
  context: Context,
  command: readonly string[],
  flags: OwnerFlags,
  owning: Owning,
): Promise<number> {
  const [program, ...args] = command;
  if (program === undefined) {
    const usage = `lockstep ${owning.verb} ${owning.name} -- COMMAND [ARGUMENT...]`;
    throw new CliError(EXIT.usage, `say what to run: ${usage}`);
  }
  // What is left of the TTL must hold a renewal or two, or COMMAND would be stopped on a good day.
  const graceMsMax = (flags.ttl * 2) / 3 - (margin(flags) - flags.grace) - 2 * tellMs(flags.ttl);
  if (flags.grace > graceMsMax) {
    throw new CliError(
      EXIT.usage,
      `--grace must be at most ${String(Math.max(0, Math.floor(graceMsMax)))}ms with this --ttl: COMMAND has to be gone before ${owning.what} is anybody else's`,
    );
  }
  // From here a stop waits for its turn: it ends the waiting, or is handed on to COMMAND.
  const stopped = new AbortController();
  let child: ChildProcess | undefined;
  const starting = Guardian.start(flags.grace);
  // Told where it is awaited.
  starting.catch(() => undefined);
  const unsubscribe = context.terminal.onStop((signal) => {
    stopped.abort(signal);
    child?.kill(signal);
  });
  try {
    return await context.withClient(async (client) => {
      const session = await client.session({
        ttlMs: flags.ttl,
        owner: `${hostname()} ${String(process.pid)} ${program}`,
        marginMs: margin(flags),
      });
      try {
        // Before anything is held: nobody should wait for an owner who is still getting ready.
        const guardian = await starting;
        const claim = await owning.acquire(client, {
          session,
          signal: stopped.signal,
          ...(flags.wait === undefined ? {} : { waitMs: flags.wait }),
        });
        // A stop that came with it: nobody handed it on.
        stopped.signal.throwIfAborted();
        return await whileHeld(context, claim, {
          ...{ what: owning.what, grace: flags.grace, guardian },
          start: () => {
            child = start([program, ...args], {
              ...environmentOf(owning, claim),
              [RUN_VARIABLE]: guardian.run,
            });
            return child;
          },
        });
      } finally {
        await session.close();
      }
    });
  } catch (error) {
    throw ownerError(error, owning.what, stopped.signal);
  } finally {
    unsubscribe();
    await starting.then(
      (guardian) => guardian.close(),
      () => undefined,
    );
  }
}

/** TERM goes out this long before the cell may end the session: the grace period, and a tenth of the TTL beside. */
function margin(flags: OwnerFlags): number {
  return flags.grace + Math.max(500, flags.ttl / 10);
}

function environmentOf(owning: Owning, claim: Claim): Record<string, string> {
  return {
    LOCKSTEP_FENCING_TOKEN: claim.tokenString,
    LOCKSTEP_LOCK_NAME: owning.name,
    LOCKSTEP_LOCK_KEY: claim.key,
    LOCKSTEP_LEASE_ID: claim.session.leaseId,
    ...owning.environment?.(claim),
  };
}

function start(
  [program, ...args]: readonly [string, ...string[]],
  environment: Readonly<Record<string, string>>,
): ChildProcess {
  return spawn(program, args, { stdio: "inherit", env: { ...process.env, ...environment } });
}

interface Run {
  readonly what: string;
  readonly grace: number;
  readonly guardian: Guardian;
  readonly start: () => ChildProcess;
}

async function whileHeld(context: Context, claim: Claim, run: Run): Promise<number> {
  const { guardian } = run;
  guardian.watch(claim.session);
  claim.assertHeld();
  const child = run.start();
  if (child.pid !== undefined) guardian.started(child.pid);
  let killTimer: NodeJS.Timeout | undefined;
  const onLost = (): void => {
    context.terminal.err(`lockstep: ${run.what} is lost or about to be: stopping the command\n`);
    guardian.stop();
    // Beside the guardian, which somebody may have ended.
    if (!guardian.isThere) child.kill("SIGTERM");
    killTimer = setTimeout(() => child.kill("SIGKILL"), run.grace);
  };
  claim.held.addEventListener("abort", onLost, { once: true });
  // This process may have been stopped while it began COMMAND: the clock tells.
  if (claim.held.aborted || claim.session.remainingMs() <= 0) onLost();
  try {
    const code = await exitCode(child);
    if (!claim.held.aborted) return code;
    await guardian.untilNothingIsLeft();
    return EXIT.lockLost;
  } finally {
    clearTimeout(killTimer);
    claim.held.removeEventListener("abort", onLost);
    await claim[Symbol.asyncDispose]();
  }
}

function exitCode(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.once("error", (error: NodeJS.ErrnoException) => {
      const missing = error.code === "ENOENT";
      reject(
        new CliError(
          missing ? EXIT.commandNotFound : EXIT.cannotExecute,
          missing
            ? `the command was not found: ${error.message}`
            : `the command cannot be run: ${error.message}`,
        ),
      );
    });
    child.once("exit", (code, signal) => {
      resolve(signal === null ? (code ?? 0) : EXIT.signalled + constants.signals[signal]);
    });
  });
}

/** A failure of our own must not look like one of COMMAND. */
function ownerError(error: unknown, what: string, stopped: AbortSignal): CliError {
  if (error instanceof CliError) return error;
  if (stopped.aborted) {
    const signal = stopped.reason as NodeJS.Signals;
    return new CliError(EXIT.signalled + constants.signals[signal], `stopped while waiting for ${what}`);
  }
  if (error instanceof LockstepError && error.code === "lock-timeout") {
    return new CliError(EXIT.lockTimeout, error.message);
  }
  if (error instanceof LockstepError && error.code === "not-held") {
    return new CliError(EXIT.lockLost, `${error.message}: it was lost before the command ran`);
  }
  const described = describe(error);
  return new CliError(EXIT.lockFailed, described.message, described.hint);
}
