import type { Coordinator, Limits } from "../coordinator/index.ts";
import { LIMITS } from "../coordinator/index.ts";
import type { GrpcService } from "../grpc/call.ts";
import type { DoorLog } from "../log.ts";
import { NO_LOG } from "../log.ts";
import { ProtoReader } from "../native/reader.ts";
import { ReverseWriter } from "../native/writer.ts";
import { authService } from "./auth.ts";
import { clusterService } from "./cluster.ts";
import type { EtcdContext } from "./context.ts";
import { InFlight } from "./context.ts";
import type { EtcdControl } from "./control.ts";
import { electionService } from "./election.ts";
import { AnswerFacts } from "./facts.ts";
import { kvService } from "./kv.ts";
import { leaseService } from "./lease.ts";
import type { EtcdDoorLimits } from "./limits.ts";
import { ETCD_DOOR_LIMITS } from "./limits.ts";
import { lockService } from "./lock.ts";
import { maintenanceService } from "./maintenance.ts";
import { CallNamespaces } from "./namespaces.ts";
import { WatchService } from "./watch.ts";

export interface EtcdDoorOptions {
  readonly coordinator: Coordinator;
  /** Absent (a router): Cluster and Maintenance are not served. */
  readonly control?: EtcdControl;
  /** Whether clients reach this listener with TLS, which the members' URLs then say. Default: false. */
  readonly secure?: boolean;
  /**
   * Host names that a namespace may stand in front of in a client's `:authority`, beside those of the members. Default:
   * none.
   */
  readonly hostSuffixes?: readonly string[];
  /** Default: {@link LIMITS}. */
  readonly limits?: Limits;
  /** Overrides of {@link ETCD_DOOR_LIMITS}. */
  readonly doorLimits?: Partial<EtcdDoorLimits>;
  readonly log?: DoorLog;
}

/** Figures for metrics. */
export interface EtcdDoorStats {
  readonly watchStreams: number;
  readonly watches: number;
  readonly unaryInFlight: number;
}

/** The etcd v3 API over one coordinator: give its services to `startGrpcServer`. */
export interface EtcdDoor {
  readonly services: readonly GrpcService[];
  stats(): EtcdDoorStats;
  /** Ends every stream with UNAVAILABLE and refuses what comes. */
  close(): void;
}

/** Opens the etcd door over a coordinator. What differs from etcd is in docs/etcd.md. */
export function createEtcdDoor(options: EtcdDoorOptions): EtcdDoor {
  const { coordinator, control, secure = false, limits = LIMITS, log = NO_LOG } = options;
  const doorLimits: EtcdDoorLimits = { ...ETCD_DOOR_LIMITS, ...options.doorLimits };
  const facts = new AnswerFacts();
  const namespaces = new CallNamespaces(coordinator, limits, options.hostSuffixes ?? []);
  const inFlight = new InFlight(doorLimits.unaryInFlightMax);
  const context: EtcdContext = {
    coordinator,
    limits,
    doorLimits,
    facts,
    namespaces,
    log,
    reader: new ProtoReader(),
    writer: new ReverseWriter(),
    inFlight,
  };
  const watches = new WatchService(context);
  facts.update(coordinator.info());
  const unsubscribe = coordinator.onLeaderChange((leader) => {
    facts.update(coordinator.info());
    namespaces.forget();
    watches.leaderChanged(leader);
  });
  const services = [
    kvService(context),
    watches.service,
    leaseService(context),
    authService(context),
    lockService(context),
    electionService(context),
  ];
  if (control !== undefined) {
    services.push(clusterService(context, control, secure), maintenanceService(context, control));
  }
  return {
    services,
    stats: () => ({
      watchStreams: watches.streamCount,
      watches: watches.watchCount,
      unaryInFlight: inFlight.count,
    }),
    close: () => {
      if (inFlight.closed) return;
      inFlight.closed = true;
      unsubscribe();
      watches.close();
    },
  };
}
