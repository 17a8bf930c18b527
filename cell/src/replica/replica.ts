import type { LeaderHint, Revision } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import { createCommandEncoder } from "../machine/index.ts";
import { findMember } from "../machine/membership.ts";
import type { Applied, Command, CommandOutcome } from "../machine/types.ts";
import { isMember, validateChange } from "../raft/index.ts";
import type {
  Append,
  Entry,
  LogIndex,
  MemberId,
  Message,
  RaftNode,
  Ready,
  Role,
  Term,
} from "../raft/types.ts";
import type { Store } from "../store/types.ts";
import type { PeerNotice, Transport } from "../transport/types.ts";
import type { Wal } from "../wal/types.ts";
import type { WatchHub } from "../watch/types.ts";
import { AppendLane } from "./append-lane.ts";
import { ApplyQueue } from "./apply-queue.ts";
import { awaitedIndex } from "./awaited-log.ts";
import { DivergenceDetector } from "./divergence.ts";
import type { Environment, Measure } from "./environment.ts";
import { Hearing } from "./hearing.ts";
import type { Leadership } from "./leadership.ts";
import { LogKeeper } from "./log-keeper.ts";
import { Newcomers, peerAddressOf } from "./newcomers.ts";
import { Proposals, type Waiter } from "./proposals.ts";
import { ReadRounds, type PendingRead } from "./reads.ts";
import { Removal } from "./removal.ts";
import type { Snapshots } from "./snapshots.ts";
import type { SpaceWatch } from "./space.ts";
import { StallWatch } from "./stall-watch.ts";
import type { CellState, ChangeOutcome } from "./state.ts";

export interface ReplicaTiming {
  readonly tickMs: number;
  readonly electionTimeoutTicks: number;
}

export interface ReplicaParts {
  readonly environment: Environment;
  readonly self: MemberId;
  readonly timing: ReplicaTiming;
  readonly raft: RaftNode;
  readonly wal: Wal;
  readonly state: CellState;
  readonly hub: WatchHub;
  readonly space: SpaceWatch;
  readonly formatVersionMax: number;
  readonly logKeepBytes: number;
  readonly measure: Measure;
}

/** Parts that need the replica to exist first. */
export interface ReplicaConnections {
  readonly transport: Transport;
  readonly snapshots: Snapshots;
  readonly leadership: Leadership;
}

/** What the doors and the admin API want to hear from the replica. */
export interface ReplicaListener {
  /** In apply order, in the same turn as the answers. */
  applied?(applied: Applied): void;
  /** undefined: none known for three election timeouts. */
  leaderChanged?(leader: LeaderHint | undefined): void;
  configurationChanged?(): void;
  /** This member is no longer part of the cell. */
  removed?(): void;
  /** Several times a second: fail what is past its deadline. */
  deadlines?(nowMs: number): void;
}

/**
 * What became of a proposed membership change: the entry at its index has this term, and this outcome if it is a change
 * at all. No term: nobody here can tell.
 */
export type ChangeDecided = (term: Term | undefined, outcome: ChangeOutcome | undefined) => void;

/** Heartbeat rounds whose send time is remembered: more than an election timeout's worth. */
const TICKS_REMEMBERED = 1024;
const ONE_SECOND_MS = 1000;
const COMMIT_ANNOUNCE_MS = 2;
const DEADLINE_CHECK_MS = 50;

/**
 * One member's loop: the only place where the consensus core, the log, the store and the state machine meet. Inputs
 * (messages, ticks, proposals, durable writes) go into the core; `pump` carries out what it says, in the order that
 * safety needs (R52): messages that may leave at once, the append, then what is committed.
 */
export class Replica {
  readonly parts: ReplicaParts;
  readonly proposals: Proposals;
  readonly reads: ReadRounds;
  readonly logKeeper: LogKeeper;
  readonly divergence: DivergenceDetector;
  readonly newcomers: Newcomers;
  readonly hearing: Hearing = new Hearing();
  readonly #lane: AppendLane;
  readonly #stalls: StallWatch;
  readonly #applyQueue: ApplyQueue;
  readonly #removal: Removal;
  readonly #listeners = new Set<ReplicaListener>();
  readonly #changeWaiters = new Map<LogIndex, ChangeDecided>();
  readonly #tickTimes = new Float64Array(TICKS_REMEMBERED).fill(Number.NEGATIVE_INFINITY);
  #connections: ReplicaConnections | undefined;
  #pumping = false;
  #closed = false;
  #lastTickMs: number;
  #nextSecondMs = 0;
  #nextExpiryMs = 0;
  #role: Role = "follower";
  #leader: MemberId = 0 as MemberId;
  #term: Term = 0 as Term;
  #leaderlessTicks = 0;
  #diverged = false;
  #announcing = false;
  /** Ticks until this member asks for votes because the leader's connection broke; -1: not. */
  #campaignIn = -1;

  constructor(parts: ReplicaParts) {
    const { environment, raft, state, wal } = parts;
    this.parts = parts;
    this.#lastTickMs = environment.clock.monotonicMs();
    const fatal = (error: Error): void => this.#fatal(error);
    const pump = (): void => this.pump();
    this.proposals = new Proposals({
      encoder: createCommandEncoder(),
      propose: (data) => raft.propose(data),
      wallMs: () => environment.clock.wallMs(),
      schedule: environment.schedule,
      pump,
    });
    this.newcomers = new Newcomers({
      ...{ self: parts.self, environment },
      membership: () => state.membership,
      transport: () => this.#connections?.transport,
      learnt: () => this.#updatePeers(),
    });
    this.reads = new ReadRounds({
      readIndex: (request) => raft.readIndex(request),
      hasLeader: () => raft.leader !== 0,
      appliedIndex: () => state.appliedIndex,
      schedule: environment.schedule,
      pump,
    });
    this.divergence = new DivergenceDetector(parts.self);
    this.logKeeper = new LogKeeper({
      raft,
      wal,
      state,
      fatal,
      keepBytes: parts.logKeepBytes,
      pinned: () => this.#connections?.snapshots.pinnedIndex(),
      awaited: () => awaitedIndex({ ...parts, hearing: this.hearing }),
    });
    this.#lane = new AppendLane({
      wal,
      appended: (token) => raft.appended(token),
      send: (messages) => this.#send(messages),
      install: (append) => this.#install(append),
      ...{ pump, soon: environment.soon, fatal },
    });
    this.#stalls = new StallWatch({
      ...{ self: parts.self, raft, log: environment.log },
      oldestAppend: () => this.#lane.oldest,
      electionTimeoutTicks: parts.timing.electionTimeoutTicks,
    });
    this.#removal = new Removal(raft, () => this.#listeners.forEach((listener) => listener.removed?.()));
    this.#applyQueue = new ApplyQueue({
      state,
      step: (index, change) => {
        const refused = validateChange(state.membership.configuration, change);
        if (refused !== undefined) return { refused };
        return { configuration: raft.applyConfiguration(index, change) };
      },
      wantEvents: () => parts.hub.watchers > 0,
      // A leader's callers wait for the apply; a follower's leader waits for its word that the log is durable.
      begin: (slice) => (this.isLeader ? slice() : this.#lane.giveWay(slice)),
      refuse: (index) => raft.refuseConfiguration(index),
      onApplied: (entries, applied) => this.#publish(entries, applied),
      onConfiguration: (entry, outcome) => this.#configurationApplied(entry, outcome),
      onSlice: (last) => this.#sliceApplied(last),
      now: () => environment.clock.monotonicMs(),
      measure: (durationMs) => parts.measure.apply(durationMs),
      schedule: environment.schedule,
      fatal,
    });
  }

  /** Begins to take part. The transport already listens; nothing was handed to this replica before. */
  start(connections: ReplicaConnections): void {
    assert(this.#connections === undefined, "a replica is started once");
    this.#connections = connections;
    this.#updatePeers();
    this.pump();
  }

  get isLeader(): boolean {
    return this.parts.raft.role === "leader";
  }

  get leaderId(): MemberId {
    return this.parts.raft.leader;
  }

  get isDiverged(): boolean {
    return this.#diverged;
  }

  get revision(): Revision {
    return this.parts.state.machine.revision;
  }

  /** Committed here and not yet applied. */
  get applyLag(): number {
    return this.#applyQueue.length;
  }

  /** When the newest heartbeat round that a quorum answered was sent; -Infinity: none in this term. */
  get quorumContactMs(): number {
    const { raft } = this.parts;
    const tick = raft.quorumContactTick;
    if (tick < 0 || raft.ticks - tick >= TICKS_REMEMBERED) return Number.NEGATIVE_INFINITY;
    return this.#tickTimes[tick % TICKS_REMEMBERED] ?? Number.NEGATIVE_INFINITY;
  }

  /** Who leads and where it listens, as far as this member knows. */
  leaderHint(): LeaderHint | undefined {
    const { leaderId } = this;
    const record = findMember(this.parts.state.membership, leaderId) ?? this.newcomers.find(leaderId);
    if (record === undefined) return undefined;
    return {
      memberId: record.id,
      clientAddress: record.addresses.client,
      httpAddress: record.addresses.http,
    };
  }

  listen(listener: ReplicaListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Only on the leader; elsewhere the waiter's `retry` or failure is called at the end of the turn. */
  propose(command: Command, waiter: Waiter | undefined): void {
    this.proposals.add(command, waiter);
  }

  /**
   * A command of the leader's own. No deadline: it is decided, refused, or its leadership is lost, and to propose it
   * again before that would only add to what is slow.
   */
  proposeOwn(command: Command, settled: (outcome: CommandOutcome) => void): void {
    this.proposals.add(command, { deliver: settled, deadlineMs: Number.POSITIVE_INFINITY, settled: false });
  }

  read(read: PendingRead): void {
    this.reads.add(read);
  }

  /** Calls back once the entry at `index` was decided. @returns the function that calls it off. */
  onConfigurationDecided(index: LogIndex, decided: ChangeDecided): () => void {
    // An entry of an earlier leadership that was cut here may still be committed elsewhere.
    this.#changeDecided(index, undefined, undefined);
    this.#changeWaiters.set(index, decided);
    return () => {
      if (this.#changeWaiters.get(index) === decided) this.#changeWaiters.delete(index);
    };
  }

  receive(messages: readonly Message[]): void {
    if (this.#closed) return;
    const { raft, environment } = this.parts;
    const nowMs = environment.clock.monotonicMs();
    this.#guard(() => {
      for (const message of messages) {
        this.hearing.heard(message.from, nowMs);
        raft.step(message);
      }
    });
    this.pump();
  }

  notice(from: MemberId, notice: PeerNotice): void {
    this.parts.space.told(from, notice.spaceLow);
    this.hearing.told(from, notice.formatVersionMax);
    if (notice.digestIndex < 0) return;
    const { configuration } = this.parts.state.membership;
    const verdict = this.divergence.told(
      from,
      notice.digestIndex as LogIndex,
      notice.digestHash,
      configuration,
    );
    if (verdict.kind === "minority") {
      this.#fatal(
        new Error(
          `this member's state differs from a majority's at index ${String(verdict.index)} (digest ${verdict.own.toString(16)}, majority ${verdict.majority.toString(16)}): it stops. Keep its folder for analysis and replace the member`,
        ),
      );
    } else if (verdict.kind === "split" && !this.#diverged) {
      this.#diverged = true;
      this.parts.environment.log.error(
        "members disagree about the state and no majority agrees: writes are refused",
        {
          index: verdict.index,
        },
      );
    }
  }

  /**
   * A reset connection of the leader is evidence of its death: forget it, and ask for votes after a short random
   * delay. Members that still hear it refuse the pre-vote, so a false alarm deposes nobody.
   */
  peerLost(peer: MemberId): void {
    const { raft, environment, space } = this.parts;
    // What it said of its disk ends with it: a voter that died short of space must not stop the cell from growing. If it
    // lives it says so again within a second.
    space.told(peer, false);
    if (this.#closed || raft.leader !== peer || raft.role !== "follower") return;
    environment.log.info("the leader's connection broke: forgetting it", { leader: peer });
    this.#guard(() => raft.forgetLeader());
    this.pump();
    const delayTicks = 1 + Math.floor(environment.random() * 4);
    this.#campaignIn = delayTicks;
  }

  unreachable(peer: MemberId): void {
    if (this.#closed) return;
    this.#guard(() => this.parts.raft.reportUnreachable(peer));
    this.pump();
  }

  /** Call every `tickMs`; a late call delivers the missed ticks, at most one election timeout's worth (R57). */
  tick(): void {
    if (this.#closed) return;
    const { environment, timing, raft } = this.parts;
    const nowMs = environment.clock.monotonicMs();
    const missed = Math.floor((nowMs - this.#lastTickMs) / timing.tickMs);
    if (missed <= 0) return;
    this.#lastTickMs += missed * timing.tickMs;
    const ticks = Math.min(missed, timing.electionTimeoutTicks - 1);
    this.#guard(() => {
      for (let i = 0; i < ticks; i += 1) {
        raft.tick();
        this.#tickTimes[raft.ticks % TICKS_REMEMBERED] = nowMs;
      }
      this.#stalls.tick(ticks);
      if (this.#campaignIn > 0) {
        this.#campaignIn -= 1;
        if (this.#campaignIn === 0 && raft.leader === 0 && !raft.hasPromised) raft.campaign();
      }
    });
    this.pump();
    this.#lane.proceed();
    this.#watchLeaderless(ticks);
    this.#connections?.leadership.tick(nowMs, this.quorumContactMs);
    if (nowMs >= this.#nextExpiryMs) {
      this.#nextExpiryMs = nowMs + DEADLINE_CHECK_MS;
      this.proposals.expire(nowMs);
      this.reads.expire(nowMs);
      for (const listener of this.#listeners) listener.deadlines?.(nowMs);
    }
    if (nowMs >= this.#nextSecondMs) {
      this.#nextSecondMs = nowMs + ONE_SECOND_MS;
      this.#everySecond();
    }
  }

  pump(): void {
    if (this.#closed) return;
    // What a nested call would carry out, the loop below finds by itself.
    if (this.#pumping) return;
    this.#pumping = true;
    this.#guard(() => {
      const { raft } = this.parts;
      while (raft.hasReady()) {
        const ready = raft.ready();
        // Before anything is applied that a later leader committed: from then on this member's sessions do not count.
        this.#observeLeadership();
        this.#carryOut(ready);
      }
      this.#observeLeadership();
    });
    this.#pumping = false;
  }

  /** No more input is taken; whoever waits is told. */
  close(): void {
    if (this.#closed) return;
    this.proposals.close();
    this.reads.close();
    for (const index of [...this.#changeWaiters.keys()]) this.#changeDecided(index, undefined, undefined);
    this.#closed = true;
    this.#lane.close();
  }

  #carryOut(ready: Ready): void {
    if (ready.messages.length > 0) this.#send(ready.messages);
    if (ready.append !== undefined) {
      this.newcomers.logged(ready.append.entries);
      this.#lane.push(ready.append);
    }
    if (ready.committed.length > 0) this.#applyQueue.push(ready.committed);
    for (const read of ready.reads) this.reads.confirmed(read.request, read.index);
    for (const request of ready.readsDropped) this.reads.dropped(request);
    for (const peer of ready.snapshotsWanted) this.#connections?.snapshots.send(peer);
  }

  #send(messages: readonly Message[]): void {
    this.#connections?.transport.send(messages);
  }

  #publish(entries: readonly Entry[], applied: Applied): void {
    for (let position = 0; position < applied.entries.length; position += 1) {
      const entry = entries[position];
      const result = applied.entries[position];
      if (entry === undefined || result === undefined) continue;
      this.proposals.applied(entry.index, entry.term, result.outcomes);
      this.logKeeper.applied(entry.index, entry.data.length);
      if (this.#changeWaiters.size > 0) this.#changeDecided(entry.index, entry.term, undefined);
    }
    this.#connections?.leadership.changed(applied.leaseChanges);
    this.parts.hub.publish(applied.events, this.revision);
    for (const listener of this.#listeners) listener.applied?.(applied);
  }

  #configurationApplied(entry: Entry, outcome: ChangeOutcome): void {
    const { environment, state, self } = this.parts;
    this.proposals.applied(entry.index, entry.term, []);
    if (outcome.accepted) {
      environment.log.info("membership changed", {
        configurationIndex: outcome.configurationIndex,
        voters: state.membership.configuration.voters.join(" "),
        outgoing: state.membership.configuration.outgoing.join(" "),
        learners: state.membership.configuration.learners.join(" "),
      });
      this.#updatePeers();
      for (const listener of this.#listeners) listener.configurationChanged?.();
      if (!isMember(state.membership.configuration, self)) this.#removal.applied(entry.index);
    } else {
      environment.log.warn("membership change refused", { reason: outcome.reason, detail: outcome.detail });
    }
    this.#changeDecided(entry.index, entry.term, outcome);
  }

  #changeDecided(index: LogIndex, term: Term | undefined, outcome: ChangeOutcome | undefined): void {
    const decided = this.#changeWaiters.get(index);
    if (decided === undefined) return;
    this.#changeWaiters.delete(index);
    decided(term, outcome);
  }

  #sliceApplied(last: Entry): void {
    const { raft, state } = this.parts;
    assert(state.appliedIndex === last.index, "the store is exactly where the log was applied to", {
      store: state.appliedIndex,
      entry: last.index,
    });
    this.divergence.record(state.machine.digest);
    raft.applied(last.index);
    this.#connections?.leadership.appliedTo(last.index);
    this.reads.appliedTo(last.index);
    this.proposals.flush();
    this.pump();
    if (this.isLeader) this.#announceSoon();
  }

  /** Under load the commit index rides with the next append; without, followers learn it after this pause. */
  #announceSoon(): void {
    if (this.#announcing) return;
    this.#announcing = true;
    this.parts.environment.after(COMMIT_ANNOUNCE_MS, () => {
      this.#announcing = false;
      if (this.#closed) return;
      this.#guard(() => this.parts.raft.announceCommit());
      this.pump();
    });
  }

  /** The store first, then everything that was derived from the old one (W14, B7). */
  async #install(append: Append): Promise<void> {
    const snapshot = append.snapshot;
    assert(snapshot !== undefined && this.#connections !== undefined, "there is a snapshot to install");
    this.#applyQueue.pause();
    await this.#connections.snapshots.adopt(snapshot, (store) => this.#swap(store, snapshot.index));
    this.#applyQueue.resume(snapshot.index);
    this.parts.environment.log.info("state installed from the leader", { index: snapshot.index });
  }

  /** In one synchronous block everything that was derived from the old state follows the new one. */
  #swap(store: Store, index: LogIndex): void {
    const { state, hub } = this.parts;
    state.replace(store);
    assert(state.appliedIndex === index, "the installed state is the one that was announced", {
      installed: state.appliedIndex,
      announced: index,
    });
    this.proposals.skippedTo(index);
    for (const at of [...this.#changeWaiters.keys()]) {
      if (at <= index) this.#changeDecided(at, undefined, undefined);
    }
    this.divergence.reset();
    this.logKeeper.installed(index);
    this.#connections?.leadership.reload();
    hub.reset();
    this.#updatePeers();
    for (const listener of this.#listeners) listener.configurationChanged?.();
    this.reads.appliedTo(index);
  }

  #observeLeadership(): void {
    const { raft, environment } = this.parts;
    const termChanged = raft.term !== this.#term;
    if (raft.role !== this.#role || termChanged) {
      const wasLeader = this.#role === "leader";
      this.#role = raft.role;
      this.#term = raft.term;
      environment.log.info("role changed", { role: raft.role, term: raft.term });
      if (wasLeader) {
        this.#connections?.leadership.deposed();
        this.proposals.leadershipLost();
      }
      if (raft.role === "leader") {
        this.hearing.elected(environment.clock.monotonicMs());
        this.#connections?.leadership.elected(raft.term, raft.lastIndex);
      }
    }
    if (raft.leader !== this.#leader) {
      this.#leader = raft.leader;
      if (raft.leader === 0) return;
      this.#leaderlessTicks = 0;
      const hint = this.leaderHint();
      for (const listener of this.#listeners) listener.leaderChanged?.(hint);
      this.reads.flush();
      this.proposals.flush();
    }
  }

  #watchLeaderless(ticks: number): void {
    if (this.parts.raft.leader !== 0) return;
    const bound = 3 * this.parts.timing.electionTimeoutTicks;
    const before = this.#leaderlessTicks;
    this.#leaderlessTicks += ticks;
    if (before < bound && this.#leaderlessTicks >= bound) {
      for (const listener of this.#listeners) listener.leaderChanged?.(undefined);
    }
  }

  #everySecond(): void {
    // An answer to a follower's read-index question may be lost: ask again.
    if (!this.isLeader) this.reads.askAgain();
    this.logKeeper.tick();
    this.#removal.look();
    this.parts.space.measure().catch((error: unknown) => this.#fatal(toError(error)));
    const digest = this.divergence.newest;
    const notice: PeerNotice = {
      digestIndex: digest?.index ?? -1,
      digestHash: digest?.hash ?? 0,
      spaceLow: this.parts.space.low,
      formatVersionMax: this.parts.formatVersionMax,
    };
    for (const { id } of this.parts.state.membership.members) {
      if (id !== this.parts.self) this.#connections?.transport.notify(id, notice);
    }
  }

  #updatePeers(): void {
    const { state, self, environment } = this.parts;
    const members = state.membership.members.map(({ id }) => id);
    this.hearing.membersAre(members, environment.clock.monotonicMs());
    const peers = [...state.membership.members.map(peerAddressOf), ...this.newcomers.peers()];
    this.#connections?.transport.setPeers(peers.filter(({ memberId }) => memberId !== self));
  }

  #guard(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#fatal(toError(error));
    }
  }

  #fatal(error: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    this.parts.environment.fatal(error);
  }
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
