import { createEtcdDoor, createNativeDoor, healthService, reflectionServices } from "@lockstep/gateway";
import type { EtcdControl, GrpcService } from "@lockstep/gateway";
import type { Coordinator } from "@lockstep/gateway/coordinator";

export interface ClientDoorsOptions {
  readonly coordinator: Coordinator;
  /** Streams of the native protocol at most. */
  readonly streamsMax: number;
  readonly control: EtcdControl;
  readonly etcd: {
    readonly secure: boolean;
    readonly hostSuffixes: readonly string[];
    readonly progressIntervalMs: number;
  };
  readonly log: (level: "info" | "warn" | "error", message: string, fields?: object) => void;
}

/** Everything that the client port serves. */
export interface ClientDoors {
  readonly services: readonly GrpcService[];
  /** Ends all streams and refuses what comes. */
  close(): void;
}

/** The native protocol and the etcd v3 API, side by side on one port, with health and reflection for both. */
export function createClientDoors(options: ClientDoorsOptions): ClientDoors {
  const { coordinator, streamsMax, control, etcd, log } = options;
  const { secure, hostSuffixes, progressIntervalMs } = etcd;
  const native = createNativeDoor({ coordinator, doorLimits: { streamsMax }, log });
  const etcdDoor = createEtcdDoor({
    coordinator,
    control,
    secure,
    hostSuffixes,
    doorLimits: { progressIntervalMs },
    log,
  });
  const names: string[] = [];
  const services = [
    native,
    ...etcdDoor.services,
    healthService(coordinator, (name) => names.includes(name)),
    ...reflectionServices(() => names),
  ];
  names.push(...services.map(({ name }) => name).sort());
  return {
    services,
    close: () => {
      native.close();
      etcdDoor.close();
    },
  };
}
