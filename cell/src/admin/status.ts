import { admin } from "@lockstep/proto";
import { isJoint } from "../raft/index.ts";
import type { Role } from "../raft/types.ts";
import type { AdminServiceOptions } from "./service.ts";

/** What this member knows of itself and of its cell, at once and without asking anybody. */
export function statusOf(options: AdminServiceOptions): admin.StatusResponse {
  const { replica, self } = options;
  const { raft, state, space, wal, environment, formatVersionMax } = replica.parts;
  const status = raft.status();
  const { machine, membership } = state;
  const checkpoint = replica.divergence.newest;
  const notReady = options.notReady();
  const nowMs = environment.clock.monotonicMs();
  const alarms: string[] = [];
  if (space.anyLow(membership.configuration.voters)) alarms.push("no-space");
  if (replica.isDiverged) alarms.push("diverged");
  return {
    cellId: membership.cellId,
    memberId: status.id,
    name: self.name,
    incarnation: self.incarnation,
    version: self.version,
    formatVersion: machine.formatVersion,
    role: roleNumber(status.role),
    term: status.term,
    leaderId: status.leader,
    lastIndex: status.lastIndex,
    commitIndex: status.commit,
    appliedIndex: machine.appliedIndex,
    revision: machine.revision,
    configurationIndex: membership.configurationIndex,
    joint: isJoint(membership.configuration),
    databaseBytes: state.store.statistics().bytes,
    logBytes: wal.bytes,
    logFirstIndex: status.firstIndex,
    barrierIndex: replica.logKeeper.barrierIndex,
    leases: options.leases(),
    watches: options.watches(),
    digest: hex(machine.digest.hash),
    digestCheckpointIndex: checkpoint?.index ?? 0,
    digestAtCheckpoint: checkpoint === undefined ? "" : hex(checkpoint.hash),
    alarms,
    progress: status.progress.map((view) => ({
      memberId: view.id,
      state: view.state,
      match: view.match,
      recentlyActive: view.recentActive,
      silentMs: replica.hearing.silentMs(view.id, nowMs),
    })),
    freeBytes: Number.isFinite(space.freeBytes) ? space.freeBytes : 0,
    ready: notReady === undefined,
    keys: machine.namespaces().reduce((sum, namespace) => sum + namespace.keys, 0),
    formatVersionMax,
    tls: options.tls?.(),
    volumeBytes: space.volumeBytes,
    syncP90Us: options.syncP90Us(),
    notReady: notReady ?? "",
  };
}

function roleNumber(role: Role): admin.Role {
  switch (role) {
    case "follower":
      return admin.Role.FOLLOWER;
    case "pre-candidate":
      return admin.Role.PRE_CANDIDATE;
    case "candidate":
      return admin.Role.CANDIDATE;
    case "leader":
      return admin.Role.LEADER;
  }
}

function hex(hash: number): string {
  return hash.toString(16).padStart(8, "0");
}
