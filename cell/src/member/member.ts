import { serviceOf, startGrpcServer, startHttpDoor } from "@lockstep/gateway";
import type { GrpcServerOptions } from "@lockstep/gateway";
import { admin } from "@lockstep/proto";
import { createAdminService } from "../admin/service.ts";
import { isMember, isVoter } from "../raft/index.ts";
import type { Environment } from "../replica/environment.ts";
import { Readiness } from "../replica/readiness.ts";
import { createClientDoors } from "./client-doors.ts";
import type { ClientDoors, ClientDoorsOptions } from "./client-doors.ts";
import { startCore } from "./core.ts";
import type { Core, MemberEvents } from "./core.ts";
import { createEtcdControl } from "./etcd-control.ts";
import { openMemberFolder } from "./folder.ts";
import type { MemberIdentity } from "./identity.ts";
import { MemberMetrics } from "./metrics.ts";
import { startOpsServer } from "./ops-server.ts";
import { parseAddress } from "./options.ts";
import type { MemberOptions } from "./options.ts";
import { createNodePlatform } from "./platform.ts";
import type { Platform } from "./platform.ts";
import { RecentSyncs } from "./recent-syncs.ts";
import { authorizeAdmin } from "./tls-access.ts";
import { observeTls } from "./tls-metrics.ts";
import { TlsSource } from "./tls-source.ts";

export interface RunningMember {
  readonly identity: MemberIdentity;
  /** Looks at the certificate files now instead of at the next look; does nothing without TLS. */
  reloadCertificates(): void;
  /** Stops cleanly: gives leadership away, answers whoever waits, fixes the store. */
  close(): Promise<void>;
}

/** Starts one member: the folder, the replica, and the doors over it. Resolves when everything listens. */
export async function startMember(
  options: MemberOptions,
  environment: Environment,
  events: MemberEvents,
  given?: Platform,
): Promise<RunningMember> {
  const metrics = new MemberMetrics();
  const tls = await openTls(options, environment);
  if (tls !== undefined) observeTls(metrics.registry, tls);
  const platform = given ?? createNodePlatform(tls);
  const syncs = new RecentSyncs();
  const parts = { options, environment, platform };
  const folder = await openMemberFolder({
    ...parts,
    onSync: (durationMs) => {
      metrics.fsyncSeconds.observe(durationMs / 1000);
      syncs.add(durationMs, environment.clock.monotonicMs());
    },
  });
  const core = await startCore({ ...parts, folder, events, measure: metrics.measure() });
  const doors = await openDoors(options, environment, core, { metrics, syncs, tls });
  return {
    identity: folder.identity,
    reloadCertificates: () => void tls?.source.reload(),
    close: async () => {
      tls?.source.close();
      await core.handOver();
      await doors.close();
      await core.close();
      metrics.close();
    },
  };
}

interface MemberTls {
  readonly source: TlsSource;
  readonly cellUid: string;
}

async function openTls(options: MemberOptions, environment: Environment): Promise<MemberTls | undefined> {
  if (options.tls === undefined) return undefined;
  const source = await TlsSource.open({
    options: options.tls,
    memberName: options.name,
    log: environment.log,
    wallMs: () => environment.clock.wallMs(),
    every: environment.every,
  });
  return { source, cellUid: options.tls.cellUid };
}

/** Looks whether this member is ready as time passes; see {@link Readiness} for what that means. */
function watchReadiness({ replica, snapshots }: Core): Readiness {
  const { state, self, timing } = replica.parts;
  const readiness = new Readiness({
    // When clients are told that there is none.
    leaderlessMsMax: 3 * timing.electionTimeoutTicks * timing.tickMs,
    view: {
      part: () => {
        const { configuration } = state.membership;
        if (isVoter(configuration, self)) return "voter";
        return isMember(configuration, self) ? "learner" : "none";
      },
      hasLeader: () => replica.leaderId !== 0,
      isDiverged: () => replica.isDiverged,
      isInstalling: () => snapshots.isInstalling,
      read: (read) => replica.read(read),
    },
  });
  replica.listen({ deadlines: (nowMs) => readiness.look(nowMs) });
  return readiness;
}

/** What listeners have in common. */
type ListenAt = Pick<GrpcServerOptions, "host" | "port" | "tls" | "cellUid" | "log">;

interface DoorParts {
  readonly metrics: MemberMetrics;
  readonly syncs: RecentSyncs;
  readonly tls: MemberTls | undefined;
}

function openClientDoors(
  { hostSuffixes, etcdProgressMs, admission, streamsMax }: MemberOptions,
  { replica, coordinator, changes, changesAtLeader }: Core,
  { secure, log }: { readonly secure: boolean; readonly log: ClientDoorsOptions["log"] },
): ClientDoors {
  const control = createEtcdControl({ replica, changes, changesAtLeader, quotaBytes: admission.quotaBytes });
  const etcd = { secure, hostSuffixes, progressIntervalMs: etcdProgressMs };
  return createClientDoors({ coordinator, streamsMax, control, etcd, log });
}

async function openDoors(
  options: MemberOptions,
  environment: Environment,
  core: Core,
  { metrics, syncs, tls }: DoorParts,
): Promise<{ close(): Promise<void> }> {
  const { replica, coordinator, sessions, hub } = core;
  const log = (level: "info" | "warn" | "error", message: string, fields = {}): void =>
    environment.log[level](message, fields);
  const closers: (() => Promise<void>)[] = [];
  const readiness = watchReadiness(core);
  const notReady = (): string | undefined => readiness.reason(environment.clock.monotonicMs());
  const secure = tls === undefined ? undefined : { tls: tls.source.current, cellUid: tls.cellUid };
  const listenAt = (what: "client" | "http" | "admin"): ListenAt => ({
    ...parseAddress(what, options.listen[what]),
    ...secure,
    log,
  });
  metrics.observe({
    replica,
    leases: () => sessions.count,
    watches: () => hub.watchers,
    slowConsumerCuts: () => hub.slowConsumerCuts,
  });

  const clientDoors = openClientDoors(options, core, { secure: secure !== undefined, log });
  const grpc = await startGrpcServer({ ...listenAt("client"), services: clientDoors.services });
  closers.push(() => {
    clientDoors.close();
    return grpc.close();
  });

  const http = await startHttpDoor({ ...listenAt("http"), coordinator });
  closers.push(() => http.close());

  const service = createAdminService({
    replica,
    coordinator,
    changes: core.changes,
    self: { name: core.identity.name, incarnation: core.identity.incarnation, version: options.version },
    leases: () => sessions.count,
    watches: () => hub.watchers,
    syncP90Us: () => syncs.p90Us(environment.clock.monotonicMs()),
    notReady,
    tls: () => tls?.source.status(),
  });
  const adminServer = await startGrpcServer({
    ...listenAt("admin"),
    authorize: authorizeAdmin,
    services: [serviceOf(admin.AdminService, service)],
  });
  closers.push(() => adminServer.close());
  if (secure !== undefined) {
    tls?.source.listen(secure.tls, (renewed) => {
      for (const door of [grpc, http, adminServer]) door.updateTls(renewed);
    });
  }

  const ops = await startOpsServer({
    ...parseAddress("ops", options.listen.ops),
    registry: metrics.registry,
    notReady,
  });
  closers.push(() => ops.close());
  return {
    close: async () => {
      await Promise.all(closers.map((close) => close()));
    },
  };
}
