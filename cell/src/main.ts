// The program of one cell member, and of the offline tools over a member's folder. The only place in the cell with
// argv, signals, the real clock and the console.
import { Command, InvalidArgumentError } from "commander";
import { pino } from "pino";
import type { Logger } from "pino";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { ADMISSION_DEFAULTS } from "./admission/admission.ts";
import {
  MEMBER_DEFAULTS,
  STREAMS_MAX_BOUNDS,
  WATCHES_MAX_BOUNDS,
  assertListenAllowed,
  parseAddress,
  parseCount,
  tlsOptionsOf,
} from "./member/options.ts";
import type { CountBounds, MemberOptions, Origin, TlsFlags } from "./member/options.ts";
import { startMember } from "./member/member.ts";
import { dumpFolder, verifyFolder } from "./member/offline.ts";
import { createNodePlatform } from "./member/platform.ts";
import { recoveryReport, recoverOptionsOf } from "./member/recover-flags.ts";
import type { RecoverFlags } from "./member/recover-flags.ts";
import { recoverFolder } from "./member/recover.ts";
import type { RetentionPolicy } from "./machine/types.ts";
import type { Environment, Log } from "./replica/environment.ts";
import { NODE_TIMERS } from "./transport/timers.ts";

/** 0: stopped as asked. 1: could not start or bad usage. 2: the member had to stop (disk, invariant, divergence).
 * 3: removed from its cell, or refused for good. */
const EXIT = { ok: 0, failed: 1, fatal: 2, removed: 3 } as const;

interface MemberFlags extends TlsFlags {
  readonly data: string;
  readonly name: string;
  readonly bootstrap?: boolean;
  readonly join?: string;
  readonly client: string;
  readonly http: string;
  readonly peer: string;
  readonly admin: string;
  readonly ops: string;
  readonly advertiseClient?: string;
  readonly advertiseHttp?: string;
  readonly advertisePeer?: string;
  readonly advertiseAdmin?: string;
  readonly advertiseOps?: string;
  readonly logLevel: string;
  readonly logKeepBytes: number;
  readonly tickMs: number;
  readonly quotaBytes: number;
  readonly reserveBytes: number;
  readonly retentionAgeMs: number;
  readonly retentionRevisions?: number;
  readonly retentionBytes?: number;
  readonly retention: boolean;
  readonly watchesMax: number;
  readonly streamsMax: number;
  readonly clientHostSuffix?: string;
  readonly etcdProgressMs: number;
}

const version = (
  JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string }
).version;

const program = new Command("lockstep-cell")
  .description("One member of a Lockstep cell, and offline tools over its folder.")
  .version(version)
  .showHelpAfterError();

program
  .command("member")
  .description("Run one member. A fresh folder needs --bootstrap (the first voter of a new cell) or --join.")
  .requiredOption("--data <dir>", "the member's folder")
  .requiredOption("--name <name>", "the member's name, unique in the cell")
  .option("--bootstrap", "begin a new cell with this member as its only voter (a folder in use ignores it)")
  .option("--join <host:port,...>", "join the cell with these admin addresses (a folder in use ignores it)")
  .option("--client <host:port>", "gRPC for clients", "127.0.0.1:7400")
  .option("--http <host:port>", "HTTP/JSON for clients", "127.0.0.1:7401")
  .option("--peer <host:port>", "other members", "127.0.0.1:7402")
  .option("--admin <host:port>", "operators and the CLI", "127.0.0.1:7403")
  .option("--ops <host:port>", "probes and metrics, in plain text on any host", "127.0.0.1:7404")
  .option("--advertise-client <host:port>", "what clients are told to dial (default: --client)")
  .option("--advertise-http <host:port>", "what HTTP clients are told to dial (default: --http)")
  .option("--advertise-peer <host:port>", "what members dial (default: --peer)")
  .option("--advertise-admin <host:port>", "what operators are told to dial (default: --admin)")
  .option("--advertise-ops <host:port>", "where probes find it (default: --ops)")
  .option(
    "--tls-cert <file>",
    "this member's certificate: URI lockstep://CELL-UID/member/NAME (read anew on change)",
  )
  .option("--tls-key <file>", "its key")
  .option("--tls-ca <file>", "certificates of the authorities to trust; the four flags of TLS go together")
  .option("--tls-cell-uid <uid>", "the cell's name in certificates")
  .option("--log-level <level>", "debug, info, warn or error", "info")
  .option("--tick-ms <ms>", "unit of elections and heartbeats", count, MEMBER_DEFAULTS.tickMs)
  .option(
    "--quota-bytes <bytes>",
    "live and retained data the cell may hold",
    count,
    ADMISSION_DEFAULTS.quotaBytes,
  )
  .option(
    "--reserve-bytes <bytes>",
    "free space below which growth is refused",
    count,
    MEMBER_DEFAULTS.reserveBytes,
  )
  .option(
    "--log-keep-bytes <bytes>",
    "log kept for members that lag a little",
    count,
    MEMBER_DEFAULTS.logKeepBytes,
  )
  .option("--retention-age-ms <ms>", "history kept at least this long", count, 3_600_000)
  .option(
    "--retention-revisions <count>",
    "history kept at most this many revisions (default: not limited by it)",
    count,
  )
  .option("--retention-bytes <bytes>", "superseded history kept at most (default: not limited by it)", count)
  .option("--no-retention", "never give up history by itself")
  .option(
    "--watches-max <count>",
    "watches this member may have, at most 8000000",
    within(WATCHES_MAX_BOUNDS),
    MEMBER_DEFAULTS.watchesMax,
  )
  .option(
    "--streams-max <count>",
    "streams of native clients (one a process) this member may have, 1 to 1000000",
    within(STREAMS_MAX_BOUNDS),
    MEMBER_DEFAULTS.streamsMax,
  )
  .option(
    "--client-host-suffix <host,...>",
    "host names that etcd clients may put a namespace in front of: NAMESPACE.HOST (beside those of the members)",
  )
  .option(
    "--etcd-progress-ms <ms>",
    "how often idle etcd watches that ask for it are told that nothing happened",
    count,
    MEMBER_DEFAULTS.etcdProgressMs,
  )
  .action((flags: MemberFlags) => runMember(flags));

program
  .command("verify")
  .description("Check a stopped member's folder: every record of the log, every row of the store.")
  .argument("<dir>", "the member's folder")
  .option("-o, --output <format>", "text or json", "text")
  .action(async (directory: string, flags: { readonly output: string }) => {
    const report = await verifyFolder(directory);
    console.log(flags.output === "json" ? JSON.stringify(report, undefined, 2) : report.lines.join("\n"));
    process.exitCode = report.sound ? EXIT.ok : EXIT.failed;
  });

program
  .command("dump")
  .description("Print a stopped member's log and state as JSON lines.")
  .argument("<dir>", "the member's folder")
  .option("--values", "print values too")
  .action(async (directory: string, flags: { readonly values?: boolean }) => {
    for await (const line of dumpFolder(directory, { values: flags.values === true })) {
      if (!process.stdout.write(`${JSON.stringify(line)}\n`)) {
        await new Promise((resolve) => process.stdout.once("drain", resolve));
      }
    }
  });

program
  .command("recover")
  .description(
    "After a cell has lost its majority for good: make a stopped member's folder the only voter of a new cell. Run again, it changes nothing.",
  )
  .argument("<dir>", "the member's folder")
  .requiredOption("--name <name>", "the member's new name, never used in the old cell")
  .option("--expect-cell-id <id>", "refuse unless the folder belongs to this cell")
  .option(
    "--expect-applied-index <index>",
    "refuse unless the folder holds everything up to this index",
    count,
  )
  .option("--advertise-client <host:port>", "what clients are told to dial (default: as before)")
  .option("--advertise-http <host:port>", "what HTTP clients are told to dial (default: as before)")
  .option("--advertise-peer <host:port>", "what members dial (default: as before)")
  .option("--advertise-admin <host:port>", "what operators are told to dial (default: as before)")
  .option("--advertise-ops <host:port>", "where probes find it (default: as before)")
  .option("-o, --output <format>", "text or json", "text")
  .action(async (directory: string, flags: RecoverFlags) => {
    const recovery = await recoverFolder(recoverOptionsOf(directory, flags), createNodePlatform());
    const { lines } = recoveryReport(recovery);
    console.log(flags.output === "json" ? JSON.stringify(recovery, undefined, 2) : lines.join("\n"));
  });

program.parseAsync().catch((error: unknown) => {
  console.error(describe(error));
  process.exit(EXIT.failed);
});

async function runMember(flags: MemberFlags): Promise<void> {
  const logger = pino({ level: flags.logLevel, base: { member: flags.name } });
  const log = toLog(logger);
  let closing = false;
  const fatal = (error: Error): void => {
    // Nothing is answered after this: what was acknowledged is durable, the rest is unknown to its callers.
    logger.fatal({ err: error }, "the member stops");
    logger.flush();
    process.exit(EXIT.fatal);
  };
  const unexpected = (error: Error): void => {
    if (!closing) return fatal(error);
    // Something found its counterpart gone already; a failed disk tells `fatal` itself.
    logger.error({ err: error }, "while stopping");
  };
  process.on("uncaughtException", unexpected);
  process.on("unhandledRejection", (reason) =>
    unexpected(reason instanceof Error ? reason : new Error(String(reason))),
  );

  const stop = (code: number, why: string): void => {
    if (closing) return;
    closing = true;
    log.info("stopping", { why });
    const deadline = setTimeout(() => process.exit(code), 8_000);
    deadline.unref();
    const closed = running === undefined ? Promise.resolve() : running.close();
    closed.then(
      () => process.exit(code),
      (error: unknown) => {
        log.error("stopping failed", { reason: String(error) });
        process.exit(EXIT.fatal);
      },
    );
  };
  process.on("SIGHUP", () => running?.reloadCertificates());
  process.on("SIGTERM", () => stop(EXIT.ok, "SIGTERM"));
  process.on("SIGINT", () => stop(EXIT.ok, "SIGINT"));

  let running: Awaited<ReturnType<typeof startMember>> | undefined;
  try {
    running = await startMember(toOptions(flags), createEnvironment(log, fatal), {
      onRemoved: () => {
        log.warn("this member was removed from the cell; its folder can be deleted");
        // Long enough to tell the others that the removal is committed.
        setTimeout(() => stop(EXIT.removed, "removed from the cell"), 1_000).unref();
      },
      onRefused: (reason) => {
        log.error(
          "the cell refuses this member: remove it there if it is still listed, then join with an empty folder under a new name",
          { reason },
        );
        stop(EXIT.removed, reason);
      },
    });
  } catch (error) {
    log.error("the member could not start", {
      reason: describe(error),
    });
    logger.flush();
    process.exit(EXIT.failed);
  }
  log.info("serving", {
    cellId: running.identity.cellId,
    memberId: running.identity.memberId,
    client: flags.client,
    http: flags.http,
  });
}

/** A message with those of its causes: the last one is often what a person can act on. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}: ${describe(error.cause)}`;
}

function toOptions(flags: MemberFlags): MemberOptions {
  const listen = {
    client: flags.client,
    http: flags.http,
    peer: flags.peer,
    admin: flags.admin,
    ops: flags.ops,
  };
  const advertise = {
    client: flags.advertiseClient ?? flags.client,
    http: flags.advertiseHttp ?? flags.http,
    peer: flags.advertisePeer ?? flags.peer,
    admin: flags.advertiseAdmin ?? flags.admin,
    ops: flags.advertiseOps ?? flags.ops,
  };
  for (const [what, address] of Object.entries(listen)) parseAddress(what, address);
  for (const [what, address] of Object.entries(advertise)) parseAddress(`advertise-${what}`, address);
  const tls = tlsOptionsOf(flags);
  assertListenAllowed(listen, tls);
  return {
    directory: flags.data,
    name: flags.name,
    origin: originOf(flags),
    listen,
    advertise,
    ...(tls === undefined ? {} : { tls }),
    version,
    ...MEMBER_DEFAULTS,
    tickMs: flags.tickMs,
    admission: { ...ADMISSION_DEFAULTS, quotaBytes: flags.quotaBytes },
    reserveBytes: flags.reserveBytes,
    logKeepBytes: flags.logKeepBytes,
    retention: flags.retention ? retentionOf(flags) : undefined,
    watchesMax: flags.watchesMax,
    streamsMax: flags.streamsMax,
    hostSuffixes: flags.clientHostSuffix?.split(",") ?? [],
    etcdProgressMs: flags.etcdProgressMs,
  };
}

/** History is given up as soon as one of the bounds says so. */
function retentionOf(flags: MemberFlags): RetentionPolicy {
  return {
    ageMs: flags.retentionAgeMs,
    ...(flags.retentionRevisions === undefined ? {} : { revisions: flags.retentionRevisions }),
    ...(flags.retentionBytes === undefined ? {} : { bytes: flags.retentionBytes }),
  };
}

function originOf(flags: MemberFlags): Origin {
  if (flags.bootstrap === true && flags.join !== undefined) {
    throw new TypeError("give --bootstrap or --join, not both");
  }
  if (flags.bootstrap === true) return { kind: "bootstrap" };
  if (flags.join !== undefined) return { kind: "join", targets: flags.join.split(",") };
  return { kind: "existing" };
}

function createEnvironment(log: Log, fatal: (error: Error) => void): Environment {
  return {
    clock: { monotonicMs: () => performance.now(), wallMs: () => Date.now() },
    // 48 random bits: elections of many members must not fall into step.
    random: () => randomBytes(6).readUIntBE(0, 6) / 2 ** 48,
    ...NODE_TIMERS,
    log,
    fatal,
  };
}

function toLog(logger: Logger): Log {
  return {
    debug: (message, fields) => logger.debug(fields ?? {}, message),
    info: (message, fields) => logger.info(fields ?? {}, message),
    warn: (message, fields) => logger.warn(fields ?? {}, message),
    error: (message, fields) => logger.error(fields ?? {}, message),
  };
}

function count(text: string): number {
  return within()(text);
}

function within(bounds?: CountBounds): (text: string) => number {
  return (text) => {
    try {
      return parseCount(text, bounds);
    } catch (error) {
      throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
    }
  };
}
