import { describeError, drive, inThousands, scaled, withCluster } from "../context.ts";
import type { BenchContext, Running } from "../context.ts";
import type { Stage } from "../load-report.ts";
import type { SystemName } from "../options.ts";
import { knownMemberFlags } from "../systems.ts";

const SESSIONS = 1_000_000;
const WATCHES = 2_000_000;
/** etcd grants some thousand leases a second and keeps some kilobytes a watch: a tenth is what it does in this time. */
const ETCD_SESSIONS = 100_000;
const ETCD_WATCHES = 100_000;
const CONNECTIONS = 500;
const ETCD_CONNECTIONS = 10;
const CLIENTS = 64;
const STAGE_SECONDS = 2;
/** The bound of a member without the flag for more. */
const DEFAULT_WATCHES_MAX = 1_000_000;

/** The curve of one system: sessions first, then watches beside them. */
export interface SessionsResult {
  readonly system: SystemName;
  readonly stages: readonly Stage[];
  /** Watches that were wanted and that a member has no flag to take. */
  readonly watchesLeftOut: number;
  readonly failure?: string;
}

function coreOf({ renewalsPerCore }: Stage): string {
  return renewalsPerCore === undefined
    ? ""
    : ` (${inThousands(renewalsPerCore)}/s of one core of the leader)`;
}

function entriesOf({ renewalLogEntries }: Stage): string {
  return renewalLogEntries === undefined ? "" : `, ${inThousands(renewalLogEntries)} log entries`;
}

function stageLine(stage: Stage): string {
  const what =
    stage.kind === "sessions"
      ? `${inThousands(stage.sessions)} sessions`
      : `${inThousands(stage.sessions)} sessions and ${inThousands(stage.watches)} watches`;
  const memory = `${inThousands((stage.residentBytes[0] ?? 0) / 1e6)} MB`;
  const renewals =
    stage.renewalsPerSecond === 0
      ? ""
      : `, ${inThousands(stage.renewalsPerSecond)} renewals/s${coreOf(stage)}${entriesOf(stage)}`;
  return `  ${what}: the leader has ${memory}, put p50 ${stage.putP50Ms.toFixed(2)} ms${renewals}`;
}

interface Climb {
  readonly sessions: number;
  readonly watches: number;
  readonly onStage: (stage: Stage) => void;
}

async function climb(running: Running, { sessions, watches, onStage }: Climb): Promise<void> {
  const { system, cluster, context } = running;
  const leader = await cluster.leader();
  const others = cluster.members.filter((member) => member !== leader);
  await drive(running, {
    name: "scale",
    request: {
      mode: "scale",
      clients: CLIENTS,
      connections: system === "etcd" ? ETCD_CONNECTIONS : CONNECTIONS,
      keys: context.options.sizes.keys,
      leases: sessions,
      watches,
      warmupSeconds: 1,
      measureSeconds: STAGE_SECONDS,
      ...(system === "lockstep" ? { metricsUrl: leader.spec.metricsUrl } : {}),
      serverPids: [leader, ...others].map((member) => member.pid),
      target: "leader",
    },
    onStage: (stage) => {
      context.say(stageLine(stage));
      onStage(stage);
    },
  });
}

async function runOn(system: SystemName, context: BenchContext): Promise<SessionsResult> {
  const { options, say } = context;
  const sessions = scaled(options, system === "etcd" ? ETCD_SESSIONS : SESSIONS);
  const wanted = scaled(options, system === "etcd" ? ETCD_WATCHES : WATCHES);
  const memberArguments = system === "etcd" ? [] : knownMemberFlags({ "--watches-max": wanted });
  const bound = system === "etcd" || memberArguments.length > 0 ? wanted : DEFAULT_WATCHES_MAX;
  const watches = Math.min(wanted, bound);
  say(`sessions: ${system}, up to ${inThousands(sessions)} sessions and ${inThousands(watches)} watches`);
  if (watches < wanted) say(`  this member has no flag --watches-max, and takes no more`);
  // What was reached before a failure is worth showing.
  const stages: Stage[] = [];
  const onStage = (stage: Stage): void => void stages.push(stage);
  try {
    await withCluster({ system, name: `sessions-${system}`, memberArguments }, context, (running) =>
      climb(running, { sessions, watches, onStage }),
    );
    return { system, stages, watchesLeftOut: wanted - watches };
  } catch (error) {
    say(`  FAILED: ${describeError(error)}`);
    return { system, stages, watchesLeftOut: wanted - watches, failure: describeError(error) };
  }
}

/** More and more sessions on one leader, then more and more watches beside them. */
export async function runSessions(context: BenchContext): Promise<readonly SessionsResult[]> {
  const all: SessionsResult[] = [];
  for (const system of context.options.systems.filter((one) => one !== "lockstep-etcd-api")) {
    all.push(await runOn(system, context));
  }
  return all;
}
