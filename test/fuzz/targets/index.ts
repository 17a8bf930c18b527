import type { Target } from "../contract.ts";
import { ETCD_TARGETS } from "./etcd.ts";
import { FORWARDING_TARGETS } from "./forwarding.ts";
import { HTTP_DOOR_TARGETS } from "./http-door.ts";
import { HTTP_TARGETS } from "./http.ts";
import { MACHINE_TARGETS } from "./machine.ts";
import { NATIVE_TARGETS } from "./native.ts";
import { SNAPSHOT_TARGETS } from "./snapshot.ts";
import { TRANSPORT_TARGETS } from "./transport.ts";
import { WAL_TARGETS } from "./wal.ts";

/** Every decoder under test: from clients, from members, from disks. */
export const TARGETS: readonly Target[] = [
  ...NATIVE_TARGETS,
  ...ETCD_TARGETS,
  ...HTTP_TARGETS,
  ...HTTP_DOOR_TARGETS,
  ...TRANSPORT_TARGETS,
  ...FORWARDING_TARGETS,
  ...WAL_TARGETS,
  ...SNAPSHOT_TARGETS,
  ...MACHINE_TARGETS,
];
