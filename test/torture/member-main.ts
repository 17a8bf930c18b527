// A member of a tortured cell: the production member on a disk and a store that fail on command. Started by the torture
// only, with its options as JSON and an IPC channel; it ends itself when that channel closes.
import { pino } from "pino";
import { randomBytes } from "node:crypto";
import { flushCompileCache } from "node:module";
import { ADMISSION_DEFAULTS } from "../../cell/src/admission/admission.ts";
import { startMember } from "../../cell/src/member/member.ts";
import type { RunningMember } from "../../cell/src/member/member.ts";
import { MEMBER_DEFAULTS } from "../../cell/src/member/options.ts";
import type { MemberOptions } from "../../cell/src/member/options.ts";
import { createNodePlatform } from "../../cell/src/member/platform.ts";
import type { Environment } from "../../cell/src/replica/environment.ts";
import { EXIT } from "./member/control.ts";
import type { Command, Report } from "./member/control.ts";
import { FaultyDisk } from "./member/faulty-disk.ts";
import { FaultyStores } from "./member/faulty-store.ts";
import { Faults } from "./member/faults.ts";
import { MemberClock } from "./member/member-clock.ts";
import { trashOf } from "./member/power-cut.ts";
import { SyncJournal } from "./member/sync-journal.ts";

/** What the torture sets; the rest is as in production. */
export type TorturedOptions = Pick<MemberOptions, "directory" | "name" | "origin" | "listen" | "advertise"> &
  Partial<MemberOptions> & {
    /** The file of the disk's memory of what is not synced. */
    readonly journal: string;
    /** The disk lies about fsyncs: what must be found out. */
    readonly lyingDisk: boolean;
  };

const [, , json = ""] = process.argv;
const { journal, lyingDisk, ...chosen } = JSON.parse(json) as TorturedOptions;
const options: MemberOptions = {
  version: "torture",
  ...MEMBER_DEFAULTS,
  admission: ADMISSION_DEFAULTS,
  retention: undefined,
  ...chosen,
};
const logger = pino({ level: "info", base: { member: options.name, pid: process.pid } });
const clock = new MemberClock();
const faults = new Faults(() => tell({ kind: "sync-failed" }));
faults.lying = lyingDisk;
const stores = new FaultyStores(faults);
let closing = false;
let running: RunningMember | undefined;

const fatal = (error: Error): void => {
  logger.fatal({ err: error }, "the member stops");
  logger.flush();
  process.exit(EXIT.fatal);
};
const unexpected = (error: Error): void => {
  if (!closing) return fatal(error);
  logger.error({ err: error }, "while stopping");
};
process.on("uncaughtException", unexpected);
process.on("unhandledRejection", (reason) =>
  unexpected(reason instanceof Error ? reason : new Error(String(reason))),
);
process.on("disconnect", () => process.exit(EXIT.failed));
process.on("message", (command: Command) => {
  obey(command).catch(unexpected);
});
process.on("SIGTERM", () => stop(EXIT.ok, "SIGTERM"));
// Ctrl-C reaches the whole process group; the torture decides when its members stop.
process.on("SIGINT", () => undefined);

const { identity } = (running = await start());
logger.info({ memberId: identity.memberId }, "serving");
tell({ kind: "serving", memberId: identity.memberId });
// Members are started often and rarely end in peace: what was compiled must not be compiled again.
flushCompileCache();

async function start(): Promise<RunningMember> {
  const platform = createNodePlatform();
  const disk = new FaultyDisk({
    disk: platform.disk,
    journal: new SyncJournal(journal),
    faults,
    trash: trashOf(options.directory),
  });
  const events = {
    onRemoved: () => {
      logger.warn("this member was removed from the cell");
      // Long enough to tell the others that the removal is committed.
      setTimeout(() => stop(EXIT.removed, "removed from the cell"), 1_000).unref();
    },
    onRefused: (reason: string) => stop(EXIT.removed, reason),
  };
  try {
    return await startMember(options, createEnvironment(), events, {
      ...platform,
      disk,
      openStore: (directory, now) => stores.openGenerations(directory, now),
    });
  } catch (error) {
    logger.error({ err: error }, "the member could not start");
    logger.flush();
    return process.exit(EXIT.failed);
  }
}

function stop(code: number, why: string): void {
  if (closing) return;
  closing = true;
  logger.info({ why }, "stopping");
  setTimeout(() => process.exit(code), 8_000).unref();
  const closed = running === undefined ? Promise.resolve() : running.close();
  closed.then(
    () => process.exit(code),
    (error: unknown) => {
      logger.error({ err: error }, "stopping failed");
      process.exit(EXIT.fatal);
    },
  );
}

async function obey(command: Command): Promise<void> {
  logger.info({ ...command }, "fault");
  switch (command.kind) {
    case "slow-disk":
      return faults.slowDown(command.minMs, command.maxMs);
    case "fail-sync":
      return faults.failNext(command.of);
    case "full-disk":
      faults.full = command.full;
      return;
    case "pause-clock":
      return clock.pause(command.forMs);
    case "jump-clock":
      return clock.jump(command.byMs);
    case "stop-at-barrier":
      await stores.lastBarrier();
      tell({ kind: "at-barrier" });
      process.kill(process.pid, "SIGSTOP");
      return;
    case "release-barriers":
      return faults.releaseBarriers();
  }
}

function tell(report: Report): void {
  process.send?.(report);
}

function createEnvironment(): Environment {
  return {
    clock,
    random: () => randomBytes(6).readUIntBE(0, 6) / 2 ** 48,
    schedule: (task) => void setImmediate(task),
    soon: queueMicrotask,
    after: (delayMs, task) => {
      const timer = setTimeout(task, delayMs);
      return () => clearTimeout(timer);
    },
    every: (intervalMs, task) => {
      const timer = setInterval(task, intervalMs);
      return () => clearInterval(timer);
    },
    log: {
      debug: (message, fields) => logger.debug(fields ?? {}, message),
      info: (message, fields) => logger.info(fields ?? {}, message),
      warn: (message, fields) => logger.warn(fields ?? {}, message),
      error: (message, fields) => logger.error(fields ?? {}, message),
    },
    fatal,
  };
}
