import { spawn, type ChildProcess } from "node:child_process";
import { constants, hostname } from "node:os";
import { LockstepError, type Lock } from "@lockstep/client";
import type { Context } from "../context.ts";
import { CliError, describe, EXIT } from "../exit-codes.ts";
import { Guardian, RUN_VARIABLE } from "../guardian/client.ts";

export interface LockFlags {
  readonly ttl: number;
  /** Milliseconds; absent: for ever. */
  readonly wait?: number;
  /** Milliseconds between TERM and KILL. */
  readonly grace: number;
}

/**
 * Runs COMMAND, without a shell, while holding the lock. The session gives itself up early enough that TERM, the
 * grace period and KILL are over before the cell may hand the lock to somebody else. A guardian process sees to it, so
 * that it happens also when this one is stopped or killed.
 */
export async function lock(
  context: Context,
  name: string,
  command: readonly string[],
  flags: LockFlags,
): Promise<number> {
  const [program, ...args] = command;
  if (program === undefined) {
    throw new CliError(EXIT.usage, "say what to run: lockstep lock NAME -- COMMAND [ARGUMENT...]");
  }
  if (flags.grace >= flags.ttl / 2) {
    throw new CliError(
      EXIT.usage,
      "--grace must be less than half of --ttl: COMMAND has to be gone before the lock is anybody else's",
    );
  }
  // From here a stop waits for its turn: it ends the waiting, or is handed on to COMMAND.
  const stopped = new AbortController();
  let child: ChildProcess | undefined;
  const starting = Guardian.start(flags.grace);
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
        // Before the lock: nobody should wait for a lock whose owner is still getting ready.
        const guardian = await starting;
        const held = await client.lock(name, {
          session,
          signal: stopped.signal,
          ...(flags.wait === undefined ? {} : { waitMs: flags.wait }),
        });
        // A stop that came with the lock: nobody handed it on.
        stopped.signal.throwIfAborted();
        return await whileHeld(context, held, {
          ...{ grace: flags.grace, guardian },
          start: () => (child = start([program, ...args], held, guardian.run)),
        });
      } finally {
        await session.close();
      }
    });
  } catch (error) {
    throw lockError(error, stopped.signal);
  } finally {
    unsubscribe();
    await starting.then(
      (guardian) => guardian.close(),
      () => undefined,
    );
  }
}

/** TERM goes out this long before the cell may end the session: the grace period, and a tenth of the TTL beside. */
function margin(flags: LockFlags): number {
  return flags.grace + Math.max(500, flags.ttl / 10);
}

function start(command: readonly [string, ...string[]], lock: Lock, run: string): ChildProcess {
  const [program, ...args] = command;
  return spawn(program, args, {
    stdio: "inherit",
    env: {
      ...process.env,
      LOCKSTEP_FENCING_TOKEN: lock.tokenString,
      LOCKSTEP_LOCK_NAME: lock.name,
      LOCKSTEP_LOCK_KEY: lock.key,
      LOCKSTEP_LEASE_ID: lock.session.leaseId,
      [RUN_VARIABLE]: run,
    },
  });
}

async function whileHeld(
  context: Context,
  lock: Lock,
  run: { readonly grace: number; readonly guardian: Guardian; readonly start: () => ChildProcess },
): Promise<number> {
  const { guardian } = run;
  guardian.watch(lock.session);
  lock.assertHeld();
  const child = run.start();
  if (child.pid !== undefined) guardian.started(child.pid);
  let killTimer: NodeJS.Timeout | undefined;
  const onLost = (): void => {
    context.terminal.err(`lockstep: the lock "${lock.name}" is lost or about to be: stopping the command\n`);
    guardian.stop();
    if (guardian.isThere) return;
    // Somebody has ended the guardian: what can be done from here.
    child.kill("SIGTERM");
    killTimer = setTimeout(() => child.kill("SIGKILL"), run.grace);
  };
  lock.held.addEventListener("abort", onLost, { once: true });
  if (lock.held.aborted) onLost();
  try {
    const code = await exitCode(child);
    return lock.held.aborted ? EXIT.lockLost : code;
  } finally {
    clearTimeout(killTimer);
    lock.held.removeEventListener("abort", onLost);
    await lock[Symbol.asyncDispose]();
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

/** A failure of `lock` itself must not look like one of COMMAND. */
function lockError(error: unknown, stopped: AbortSignal): CliError {
  if (error instanceof CliError) return error;
  if (stopped.aborted) {
    const signal = stopped.reason as NodeJS.Signals;
    return new CliError(EXIT.signalled + constants.signals[signal], "stopped while waiting for the lock");
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
