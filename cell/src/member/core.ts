import { ChangesAtLeader } from "../admin/changes-at-leader.ts";
import { MembershipChanges } from "../admin/membership-changes.ts";
import { FORMAT_VERSION_MAX } from "../machine/index.ts";
import { createRaft } from "../raft/index.ts";
import type { MemberId } from "../raft/types.ts";
import { Compactor } from "../replica/compactor.ts";
import { CellCoordinator } from "../replica/coordinator.ts";
import { DeletedNamespaces } from "../replica/deleted-namespaces.ts";
import type { Environment, Measure } from "../replica/environment.ts";
import { REFUSED_FORWARD } from "../replica/forwarding.ts";
import { Leadership } from "../replica/leadership.ts";
import { Replica } from "../replica/replica.ts";
import { Snapshots } from "../replica/snapshots.ts";
import { SpaceWatch } from "../replica/space.ts";
import type { CellState } from "../replica/state.ts";
import type { Generations } from "../store/index.ts";
import { createSessionKeeper } from "../session/index.ts";
import type { SessionKeeper } from "../session/types.ts";
import type { Transport, TransportHandlers } from "../transport/types.ts";
import { createWatchHub } from "../watch/index.ts";
import type { WatchHub } from "../watch/types.ts";
import type { OpenedFolder } from "./folder.ts";
import type { MemberIdentity } from "./identity.ts";
import { parseAddress } from "./options.ts";
import type { MemberOptions } from "./options.ts";
import { createDoorkeeper } from "./peer-admission.ts";
import type { Platform } from "./platform.ts";

export interface MemberEvents {
  /** This member was removed from its cell: it has nothing more to do. */
  readonly onRemoved: () => void;
  /** A peer refused this member for good; the reason says how to go on. */
  readonly onRefused: (reason: string) => void;
}

const TRANSFER_WAIT_MS = 1_000;

/** A member without its doors: the replica, joined to its disk and its peers, and what serves its clients. */
export interface Core {
  readonly identity: MemberIdentity;
  readonly replica: Replica;
  readonly coordinator: CellCoordinator;
  readonly changes: MembershipChanges;
  readonly changesAtLeader: ChangesAtLeader;
  readonly sessions: SessionKeeper;
  readonly hub: WatchHub;
  readonly snapshots: Snapshots;
  /** Moves leadership to another voter, for a bounded time. */
  handOver(): Promise<void>;
  close(): Promise<void>;
}

export interface CoreParts {
  readonly options: MemberOptions;
  readonly environment: Environment;
  readonly platform: Platform;
  readonly folder: OpenedFolder;
  readonly events: MemberEvents;
  readonly measure: Measure;
}

/** Starts the replica over an opened folder. Resolves when it listens for peers. */
export async function startCore(parts: CoreParts): Promise<Core> {
  const { options, environment, platform, folder } = parts;
  const { identity, state } = folder;
  const hub = createHub({ options, environment, state, hashSeed: hashSeedOf(identity) });
  const electionTimeoutMs = options.tickMs * options.electionTimeoutTicks;
  const sessions = createSessionKeeper({
    electionTimeoutMs,
    checkpointIntervalMs: options.checkpointIntervalMs,
    expireBatchMax: 32,
    lateTickMs: electionTimeoutMs / 2,
    hashSeed: hashSeedOf(identity),
  });
  const replica = await createReplica(parts, hub);
  replica.newcomers.logged(folder.initial.entries);
  const snapshots = createSnapshots(replica, folder.generations);
  const leadership = createLeadership({ options, replica, sessions, electionTimeoutMs });
  // Requests that peers forward before the coordinator stands are refused.
  const late: { coordinator?: CellCoordinator } = {};
  const deletedNamespaces = new DeletedNamespaces({
    ...{ state, hub, sessions, after: environment.after },
    leaseEnded: (end) => late.coordinator?.leaseEnded(end),
  });
  const compactor = followCompaction(replica, parts.events, deletedNamespaces);
  const transport = await platform.createTransport({
    identity: {
      cellId: identity.cellId,
      memberId: identity.memberId,
      incarnation: identity.incarnation,
      address: options.advertise.peer,
    },
    listen: parseAddress("peer", options.listen.peer),
    handlers: peerHandlers({
      ...{ identity, replica, snapshots, events: parts.events },
      cellUid: options.tls?.cellUid,
      forwarded: () => late.coordinator,
    }),
    log: (level, message, detail) => environment.log[level](message, detail),
    random: environment.random,
    now: () => environment.clock.monotonicMs(),
    timers: environment,
  });
  snapshots.connect(transport);
  const changes = new MembershipChanges(replica);
  const changesAtLeader = new ChangesAtLeader({ replica, changes, transport });
  const coordinator = new CellCoordinator({
    replica,
    transport,
    sessions,
    leadership,
    admission: options.admission,
    watchesMax: options.watchesMax,
    changeMembership: (change) => changesAtLeader.forwarded(change),
    soon: queueMicrotask,
  });
  late.coordinator = coordinator;
  replica.start({ transport, snapshots, leadership });
  const stopTicking = environment.every(options.tickMs, () => environment.schedule(() => replica.tick()));
  return {
    ...{ identity, replica, coordinator, changes, changesAtLeader, sessions, hub, snapshots },
    handOver: () => handOver(replica, changes),
    close: async () => {
      stopTicking();
      coordinator.close();
      hub.close("the member is shutting down");
      compactor.close();
      deletedNamespaces.close();
      replica.close();
      await closeStorage(transport, replica, folder);
    },
  };
}

async function createReplica(
  { options, environment, platform, folder, measure }: CoreParts,
  hub: WatchHub,
): Promise<Replica> {
  const { identity, state, wal, initial } = folder;
  const raft = createRaft(
    {
      id: identity.memberId,
      random: environment.random,
      electionTimeoutTicks: options.electionTimeoutTicks,
      heartbeatTicks: options.heartbeatTicks,
      lazyCommit: true,
    },
    initial,
  );
  const space = new SpaceWatch(platform.disk, options.directory, options.reserveBytes);
  await space.measure();
  return new Replica({
    ...{ environment, raft, wal, state, hub, space, measure },
    self: identity.memberId,
    timing: { tickMs: options.tickMs, electionTimeoutTicks: options.electionTimeoutTicks },
    formatVersionMax: FORMAT_VERSION_MAX,
    logKeepBytes: options.logKeepBytes,
  });
}

function createSnapshots(replica: Replica, generations: Generations): Snapshots {
  const { self, environment, raft, state } = replica.parts;
  return new Snapshots({
    ...{ self, environment, raft, state, generations },
    announce: (from, term, snapshot) =>
      replica.receive([{ kind: "snapshot", from, to: self, term, snapshot }]),
    pump: () => replica.pump(),
  });
}

function createLeadership(parts: {
  readonly options: MemberOptions;
  readonly replica: Replica;
  readonly sessions: SessionKeeper;
  readonly electionTimeoutMs: number;
}): Leadership {
  const { options, replica, sessions, electionTimeoutMs } = parts;
  const { environment, state } = replica.parts;
  const leadership = new Leadership({
    sessions,
    state,
    monotonicMs: () => environment.clock.monotonicMs(),
    propose: (command, settled) => replica.proposeOwn(command, settled),
    proveLeadership: (settled) =>
      replica.read({
        serve: () => settled(true),
        fail: () => settled(false),
        deadlineMs: environment.clock.monotonicMs() + electionTimeoutMs * 10,
      }),
    retention: options.retention,
    retentionIntervalMs: options.retentionIntervalMs,
  });
  leadership.reload();
  return leadership;
}

function followCompaction(
  replica: Replica,
  events: MemberEvents,
  deletedNamespaces: DeletedNamespaces,
): Compactor {
  const { state, hub, environment } = replica.parts;
  const compactor = new Compactor({
    state,
    hub,
    after: environment.after,
    fatal: environment.fatal,
    deleted: (id, name) => deletedNamespaces.deleted(id, name),
  });
  replica.listen({
    applied: () => compactor.look(),
    configurationChanged: () => compactor.look(),
    removed: events.onRemoved,
  });
  compactor.look();
  return compactor;
}

async function closeStorage(transport: Transport, replica: Replica, folder: OpenedFolder): Promise<void> {
  await transport.close();
  await folder.wal.close();
  await replica.logKeeper.settle();
  await folder.generations.close();
}

/** A leader that stops gives leadership away first, so that the cell does not wait for an election timeout. */
async function handOver(replica: Replica, changes: MembershipChanges): Promise<void> {
  const { configuration } = replica.parts.state.membership;
  if (!replica.isLeader || configuration.voters.length < 2) return;
  await changes.transferLeadership(0 as MemberId, TRANSFER_WAIT_MS).catch(() => undefined);
}

/** Of tables whose keys clients choose: they are not told it. */
function hashSeedOf({ incarnation }: MemberIdentity): number {
  return Number.parseInt(incarnation.slice(0, 8), 16);
}

function createHub({
  options,
  environment,
  state,
  hashSeed,
}: {
  readonly options: MemberOptions;
  readonly environment: Environment;
  readonly state: CellState;
  readonly hashSeed: number;
}): WatchHub {
  return createWatchHub({
    source: {
      revision: () => state.machine.revision,
      compactRevision: (namespaceId) => state.machine.namespace(namespaceId)?.compactRevision ?? (0 as never),
      history: (request) => state.machine.history(request, state.store),
      stateAt: (namespaceId, key, revision) => state.machine.stateAt(namespaceId, key, revision, state.store),
    },
    schedule: environment.schedule,
    ringBytesMax: options.watchRingBytes,
    pendingBytesMax: options.watchPendingBytesMax,
    totalPendingBytesMax: 256 * 1024 * 1024,
    watchesMax: options.watchesMax,
    hashSeed,
  });
}

interface PeerParts {
  readonly identity: MemberIdentity;
  readonly replica: Replica;
  readonly snapshots: Snapshots;
  readonly events: MemberEvents;
  /** With TLS: the cell that peers' certificates must name. */
  readonly cellUid: string | undefined;
  /** Absent until the doors are up: requests forwarded before are answered by closing. */
  readonly forwarded: () => CellCoordinator | undefined;
}

function peerHandlers(parts: PeerParts): TransportHandlers {
  const { identity, replica, snapshots, events, cellUid } = parts;
  const { environment } = replica.parts;
  return {
    ...createDoorkeeper({ identity, replica, cellUid }),
    messages: (_from, messages) => replica.receive(messages),
    notice: (from, notice) => replica.notice(from, notice),
    disconnected: (peer) => replica.peerLost(peer),
    unreachable: (peer) => replica.unreachable(peer),
    request: (from, body, answer) => {
      const coordinator = parts.forwarded();
      if (coordinator === undefined) {
        answer(REFUSED_FORWARD);
        return;
      }
      try {
        coordinator.forwarded(body, answer);
      } catch (error) {
        environment.log.warn("a peer forwarded something malformed", { from, reason: String(error) });
        answer(REFUSED_FORWARD);
      }
    },
    snapshot: (from, offer) => snapshots.receive(from, offer),
    refused: (peer, reason) => {
      environment.log.warn("a peer refused this member", { peer, reason });
      if (reason === "removed" || reason === "wrong-incarnation") events.onRefused(reason);
    },
  };
}
