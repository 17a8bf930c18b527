import type {
  Coordinator,
  CoordinatorInfo,
  Failure,
  LeaderHint,
  LeaseEnd,
  LeaseTimeToLiveOperation,
  Mutation,
  MutationOutcome,
  Read,
  ReadOutcome,
  ReadResult,
  Renewal,
  RenewalOutcome,
  WatchHandle,
  WatchRequest,
  WatchSink,
} from "@lockstep/gateway/coordinator";
import { admitMutation, admitRead } from "../admission/admission.ts";
import type { AdmissionLimits, Load } from "../admission/admission.ts";
import { assertNever } from "../invariant.ts";
import { encodeMembership } from "../machine/membership.ts";
import { isMember } from "../raft/index.ts";
import type { Applied, CommandOutcome, NamespaceInfo } from "../machine/types.ts";
import type { LogIndex, MemberId } from "../raft/types.ts";
import type { SessionKeeper } from "../session/types.ts";
import type { Transport } from "../transport/types.ts";
import { failures } from "./failures.ts";
import {
  decodeForwarded,
  decodeMutationAnswer,
  decodeReadAnswer,
  decodeRenewalAnswer,
  encodeChangeAnswer,
  encodeForwarded,
  encodeMutationAnswer,
  encodeReadAnswer,
  encodeRenewalAnswer,
} from "./forwarding.ts";
import type { Forwarded } from "./forwarding.ts";
import type { ChangeRefused, ForwardedChange } from "./forwarding-heads.ts";
import { FOLLOWING_MS_MAX, FollowingAnswers } from "./following.ts";
import type { Leadership } from "./leadership.ts";
import type { Waiter } from "./proposals.ts";
import type { Replica } from "./replica.ts";

export interface CoordinatorOptions {
  readonly replica: Replica;
  readonly transport: Transport;
  readonly sessions: SessionKeeper;
  readonly leadership: Leadership;
  readonly admission: AdmissionLimits;
  readonly watchesMax: number;
  /** Makes a change that another member passed on. Never rejects. */
  readonly changeMembership: (change: ForwardedChange) => Promise<ChangeRefused | undefined>;
  /** Runs before the next I/O event: answers never come before the call has returned. */
  readonly soon: (task: () => void) => void;
}

const DEADLINE_MS_DEFAULT = 10_000;
const DEADLINE_MS_MAX = 10 * 60_000;
/** One in this many commands and reads is timed: measuring each would cost more than it tells. */
const SAMPLE_EVERY = 16;
/** What changes slowly and costs more to read than a command may cost is read this often. */
const SLOW_LOAD_AGE_MS_MAX = 5;
/** Calls that wait for a leader. */
const PARKED_MAX = 10_000;

type Deliver<T> = (outcome: T) => void;

/** One mutation on its way: proposed here, forwarded to the leader, or waiting for one. One object an operation. */
class MutationCall implements Waiter {
  settled = false;
  /** An earlier attempt reached a leader and its answer was lost. */
  mayBeApplied = false;
  readonly mutation: Mutation;
  readonly deadlineMs: number;
  readonly #coordinator: CellCoordinator;
  readonly #deliver: Deliver<MutationOutcome>;

  constructor(
    coordinator: CellCoordinator,
    mutation: Mutation,
    deadlineMs: number,
    deliver: Deliver<MutationOutcome>,
  ) {
    this.#coordinator = coordinator;
    this.mutation = mutation;
    this.deadlineMs = deadlineMs;
    this.#deliver = deliver;
  }

  deliver(outcome: CommandOutcome): void {
    this.settled = true;
    // What a later attempt was refused for says nothing about the first.
    const uncertain = this.mayBeApplied && !outcome.ok && outcome.failure.outcome === "not-applied";
    const whole = uncertain ? { ...outcome, failure: { ...outcome.failure, outcome: "unknown" } } : outcome;
    this.#deliver(whole as MutationOutcome);
  }

  fail(failure: Failure): void {
    this.deliver({ ok: false, failure });
  }

  /** Its turn ended without a proposal (leadership moved): it was certainly not applied, so it may go elsewhere. */
  retry(): void {
    this.settled = false;
    this.#coordinator.park(this);
  }
}

interface RevisionWaiter {
  readonly revision: number;
  readonly deadlineMs: number;
  readonly serve: () => void;
  readonly fail: (failure: Failure) => void;
}

/**
 * The `Coordinator` that a member serves to its doors. Any member takes any request: the leader proposes, another
 * member forwards; reads are served here once their point in the log is applied here.
 */
export class CellCoordinator implements Coordinator {
  readonly #options: CoordinatorOptions;
  #parked: MutationCall[] = [];
  #revisionWaiters: RevisionWaiter[] = [];
  readonly #following: FollowingAnswers;
  readonly #leaseEndListeners = new Set<(end: LeaseEnd) => void>();
  readonly #leaderListeners = new Set<(leader: LeaderHint | undefined) => void>();
  #closed = false;
  #sample = 0;
  #slowLoad: Pick<Load, "logicalBytes" | "stallPressure" | "spaceLow"> = {
    logicalBytes: 0,
    stallPressure: 0,
    spaceLow: false,
  };
  #slowLoadMs = Number.NEGATIVE_INFINITY;

  constructor(options: CoordinatorOptions) {
    this.#options = options;
    this.#following = new FollowingAnswers(() => options.replica.parts.state.appliedIndex);
    options.replica.listen({
      applied: (applied) => this.#applied(applied),
      leaderChanged: (leader) => {
        for (const listener of this.#leaderListeners) listener(leader);
        if (leader !== undefined) this.#options.soon(() => this.#unpark());
      },
      configurationChanged: () => {
        // A state transfer moves the revision without an apply.
        this.#serveRevisionWaiters();
        this.#following.check();
        const leader = options.replica.leaderHint();
        if (leader === undefined) return;
        for (const listener of this.#leaderListeners) listener(leader);
      },
      deadlines: (nowMs) => this.#checkDeadlines(nowMs),
    });
  }

  mutate(mutation: Mutation, whole: Deliver<MutationOutcome>): void {
    const deliver = this.#sampled(whole, this.#options.replica.parts.measure.proposal);
    this.#route(new MutationCall(this, mutation, this.#deadline(mutation.deadlineMs), deliver));
  }

  read(read: Read, deliver: Deliver<ReadOutcome>): void {
    const { replica } = this.#options;
    const failLater = (failure: Failure): void => this.#options.soon(() => deliver({ ok: false, failure }));
    if (this.#closed) return failLater(failures.shuttingDown("not-applied"));
    if (!this.#isMember()) return failLater(failures.noLeader());
    const operation = read.operation;
    if (operation.kind === "lease-time-to-live" && !replica.isLeader) {
      return this.#forwardLeaseRead(read, operation, deliver);
    }
    const serve = (): void => deliver(this.#serve(read));
    const fail = (failure: Failure): void => deliver({ ok: false, failure });
    const serializable = read.consistency === "serializable" && operation.kind !== "lease-time-to-live";
    const { minRevision = 0 } = read;
    if (serializable && minRevision <= replica.revision) {
      this.#expect(read);
      return this.#options.soon(serve);
    }
    const readsPending = replica.reads.pending + this.#revisionWaiters.length;
    const refused = admitRead({ readsPending }, this.#options.admission);
    if (refused !== undefined) return failLater(refused);
    this.#expect(read);
    const deadlineMs = this.#deadline(read.deadlineMs);
    if (serializable) this.#revisionWaiters.push({ revision: minRevision, deadlineMs, serve, fail });
    else replica.read({ serve: this.#sampled(serve, replica.parts.measure.read), fail, deadlineMs });
  }

  renew(renewal: Renewal, deliver: Deliver<RenewalOutcome>): void {
    const { replica, transport } = this.#options;
    if (replica.isLeader) return this.#renewHere(renewal, deliver);
    const leader = replica.leaderId;
    if (leader === 0 || this.#closed) {
      this.#options.soon(() => deliver({ ok: false, failure: failures.noLeader() }));
      return;
    }
    transport.request(leader, encodeForwarded({ kind: "renew", renewal }), DEADLINE_MS_DEFAULT, (answer) => {
      if (answer === undefined || answer === "unsent") {
        deliver({ ok: false, failure: failures.noLeader() });
      } else {
        deliver(decodeRenewalAnswer(answer));
      }
    });
  }

  watch(request: WatchRequest, sink: WatchSink): WatchHandle | Failure {
    const { replica, watchesMax } = this.#options;
    // A joiner that has no state yet would show an empty past.
    if (!this.#isMember()) return failures.noLeader();
    const namespace = replica.parts.state.machine.namespaceByName(request.namespace);
    if (namespace === undefined) return failures.namespaceNotFound(request.namespace);
    if (epochDiffers(namespace, request.epoch)) return failures.wrongEpoch(namespace.epoch);
    const handle = replica.parts.hub.watch(
      {
        namespaceId: namespace.id,
        range: request.range,
        returnPrevious: request.returnPrevious === true,
        ...(request.startRevision === undefined ? {} : { startRevision: request.startRevision }),
        ...(request.omit === undefined ? {} : { omit: request.omit }),
      },
      sink,
    );
    return handle ?? failures.tooManyWatches(watchesMax);
  }

  onLeaseEnd(listener: (end: LeaseEnd) => void): () => void {
    this.#leaseEndListeners.add(listener);
    return () => this.#leaseEndListeners.delete(listener);
  }

  onLeaderChange(listener: (leader: LeaderHint | undefined) => void): () => void {
    this.#leaderListeners.add(listener);
    return () => this.#leaderListeners.delete(listener);
  }

  info(): CoordinatorInfo {
    const { replica } = this.#options;
    const leader = replica.leaderHint();
    return {
      cellId: replica.parts.state.membership.cellId,
      memberId: replica.parts.self,
      term: replica.parts.raft.term,
      revision: replica.revision,
      ...(leader === undefined ? {} : { leader }),
      clientAddresses: replica.parts.state.membership.members.map((member) => member.addresses.client),
    };
  }

  /** A request that another member forwarded. It is never forwarded again. */
  forwarded(body: Uint8Array, answer: (body: Uint8Array) => void): void {
    const forwarded: Forwarded = decodeForwarded(body);
    switch (forwarded.kind) {
      case "mutate": {
        const { mutation } = forwarded;
        const reply = (outcome: MutationOutcome): void => {
          const { appliedIndex } = this.#options.replica.parts.state;
          answer(encodeMutationAnswer({ outcome, appliedIndex }));
        };
        if (this.#closed || !this.#options.replica.isLeader)
          return reply({ ok: false, failure: failures.leaderChanged() });
        return this.#proposeHere({
          mutation,
          deadlineMs: this.#deadline(mutation.deadlineMs),
          deliver: (outcome) => reply(outcome as MutationOutcome),
          settled: false,
        });
      }
      case "renew":
        return this.#renewHere(forwarded.renewal, (outcome) => answer(encodeRenewalAnswer(outcome)));
      case "lease": {
        const { namespace, epoch, operation, deadlineMs } = forwarded;
        const reply = (outcome: ReadOutcome): void => answer(encodeReadAnswer(outcome));
        if (!this.#options.replica.isLeader) return reply({ ok: false, failure: failures.leaderChanged() });
        return this.read({ namespace, epoch, operation, consistency: "linearizable", deadlineMs }, reply);
      }
      case "membership":
        return answer(encodeMembership(this.#options.replica.parts.state.membership));
      case "change-membership":
        void this.#options
          .changeMembership(forwarded.change)
          .then((refused) => answer(encodeChangeAnswer(refused)));
        return;
      default:
        return assertNever(forwarded);
    }
  }

  leaseEnded(end: LeaseEnd): void {
    for (const listener of this.#leaseEndListeners) listener(end);
  }

  /** Waits for a leader, or for a better moment to reach it. */
  park(call: MutationCall): void {
    if (this.#closed) call.fail(failures.shuttingDown("not-applied"));
    else if (this.#parked.length >= PARKED_MAX) call.fail(failures.overloaded("calls waiting for a leader"));
    else this.#parked.push(call);
  }

  close(): void {
    this.#closed = true;
    const parked = this.#parked;
    this.#parked = [];
    for (const call of parked) call.fail(failures.shuttingDown("not-applied"));
    const waiters = this.#revisionWaiters;
    this.#revisionWaiters = [];
    for (const waiter of waiters) waiter.fail(failures.shuttingDown("not-applied"));
    this.#following.check(Number.POSITIVE_INFINITY);
  }

  /** Times one in {@link SAMPLE_EVERY} deliveries. */
  #sampled<T extends unknown[]>(
    deliver: (...args: T) => void,
    measure: (durationMs: number) => void,
  ): (...args: T) => void {
    this.#sample += 1;
    if (this.#sample % SAMPLE_EVERY !== 0) return deliver;
    const { clock } = this.#options.replica.parts.environment;
    const started = clock.monotonicMs();
    return (...args) => {
      measure(clock.monotonicMs() - started);
      deliver(...args);
    };
  }

  /** Whether this member has a part in the configuration: a joiner has no state to show before its first snapshot. */
  #isMember(): boolean {
    const { state, self } = this.#options.replica.parts;
    return isMember(state.membership.configuration, self);
  }

  #deadline(deadlineMs: number | undefined): number {
    return this.#options.replica.parts.environment.clock.monotonicMs() + boundedDeadline(deadlineMs);
  }

  #route(call: MutationCall): void {
    const { replica } = this.#options;
    if (this.#closed) this.#options.soon(() => call.fail(failures.shuttingDown("not-applied")));
    else if (replica.isLeader) this.#proposeHere(call);
    else if (replica.leaderId !== 0) this.#forward(call, replica.leaderId);
    else this.#options.soon(() => this.park(call));
  }

  #proposeHere(call: Waiter & { readonly mutation: Mutation }): void {
    const { replica, admission } = this.#options;
    const { mutation } = call;
    const namespace = replica.parts.state.machine.namespaceByName(mutation.namespace);
    const refused =
      namespace === undefined
        ? failures.namespaceNotFound(mutation.namespace)
        : admitMutation(mutation.operation, this.#load(), admission);
    if (refused !== undefined || namespace === undefined) {
      const failure = refused ?? failures.namespaceNotFound(mutation.namespace);
      this.#options.soon(() => call.deliver({ ok: false, failure }));
      return;
    }
    try {
      replica.propose(
        {
          kind: "client",
          namespaceId: namespace.id,
          epoch: mutation.epoch,
          identity: mutation.identity,
          operation: mutation.operation,
        },
        call,
      );
    } catch (error) {
      // The batch of this turn is left as it was.
      this.#notEncodable(call, error);
    }
  }

  /** A door's validation missed something that the log cannot hold. */
  #notEncodable(call: Waiter, error: unknown): void {
    if (!(error instanceof TypeError)) throw error;
    const failure: Failure = {
      code: "invalid-argument",
      outcome: "not-applied",
      message: `The operation cannot be encoded: ${error.message}`,
    };
    this.#options.soon(() => call.deliver({ ok: false, failure }));
  }

  #load(): Load {
    const { replica } = this.#options;
    const { state, space, environment } = replica.parts;
    const nowMs = environment.clock.monotonicMs();
    if (nowMs - this.#slowLoadMs >= SLOW_LOAD_AGE_MS_MAX) {
      this.#slowLoadMs = nowMs;
      this.#slowLoad = {
        logicalBytes: state.logicalBytes,
        stallPressure: state.store.statistics().stallPressure,
        spaceLow: space.anyLow(state.membership.configuration.voters),
      };
    }
    const { logicalBytes, stallPressure, spaceLow } = this.#slowLoad;
    return {
      commandsPending: replica.proposals.pending,
      readsPending: 0,
      applyLag: replica.applyLag,
      logicalBytes,
      stallPressure,
      spaceLow,
      diverged: replica.isDiverged,
    };
  }

  #forward(call: MutationCall, leader: MemberId): void {
    const { replica, transport } = this.#options;
    const remainingMs = call.deadlineMs - replica.parts.environment.clock.monotonicMs();
    const mutation = { ...call.mutation, deadlineMs: Math.max(1, remainingMs) };
    let body: Uint8Array;
    try {
      body = encodeForwarded({ kind: "mutate", mutation });
    } catch (error) {
      return this.#notEncodable(call, error);
    }
    transport.request(leader, body, mutation.deadlineMs, (answer) => {
      if (call.settled) return;
      if (answer === "unsent") return this.park(call);
      if (answer === undefined) {
        // It may have been proposed: only a request that is recognised when it comes again may be sent again.
        call.mayBeApplied = true;
        if (call.mutation.identity.kind === "none") call.fail(failures.lostAnswer());
        else this.park(call);
        return;
      }
      const { outcome, appliedIndex } = decodeMutationAnswer(answer);
      const again =
        !outcome.ok && outcome.failure.code === "leader-changed" && outcome.failure.outcome === "not-applied";
      if (again) this.park(call);
      else if (outcome.ok) this.#deliverWhenApplied(call, outcome, appliedIndex);
      else call.deliver(outcome);
    });
  }

  #deliverWhenApplied(call: MutationCall, outcome: MutationOutcome, index: LogIndex): void {
    const longest = this.#options.replica.parts.environment.clock.monotonicMs() + FOLLOWING_MS_MAX;
    const deadlineMs = Math.min(call.deadlineMs, longest);
    const deliver = (): void => call.deliver(outcome);
    if (this.#closed) deliver();
    else this.#following.add({ index, deadlineMs, deliver });
  }

  #forwardLeaseRead(read: Read, operation: LeaseTimeToLiveOperation, deliver: Deliver<ReadOutcome>): void {
    const { replica, transport } = this.#options;
    if (replica.leaderId === 0) {
      this.#options.soon(() => deliver({ ok: false, failure: failures.noLeader() }));
      return;
    }
    const { namespace, epoch } = read;
    const deadlineMs = boundedDeadline(read.deadlineMs);
    const body = encodeForwarded({ kind: "lease", namespace, epoch, operation, deadlineMs });
    transport.request(replica.leaderId, body, deadlineMs, (answer) => {
      if (answer === undefined || answer === "unsent") deliver({ ok: false, failure: failures.noLeader() });
      else deliver(decodeReadAnswer(answer));
    });
  }

  #renewHere(renewal: Renewal, deliver: Deliver<RenewalOutcome>): void {
    const { replica, sessions, leadership } = this.#options;
    const refuse = (failure: Failure): void => this.#options.soon(() => deliver({ ok: false, failure }));
    if (this.#closed) return refuse(failures.shuttingDown("not-applied"));
    if (!replica.isLeader || !leadership.leadsSessions) return refuse(failures.noLeader());
    const namespace = replica.parts.state.machine.namespaceByName(renewal.namespace);
    if (namespace === undefined) return refuse(failures.namespaceNotFound(renewal.namespace));
    if (epochDiffers(namespace, renewal.epoch)) return refuse(failures.wrongEpoch(namespace.epoch));
    const nowMs = replica.parts.environment.clock.monotonicMs();
    const revision = replica.revision;
    sessions.quorumContact(replica.quorumContactMs, nowMs);
    let returned = false;
    const request = { namespaceId: namespace.id, leaseIds: renewal.leaseIds };
    sessions.renew(request, nowMs, (answer) => {
      if (answer !== undefined) replica.parts.measure.renewed(answer.remainingMs.length);
      const outcome: RenewalOutcome =
        answer === undefined
          ? { ok: false, failure: failures.noLeader() }
          : { ok: true, revision, remainingMs: answer.remainingMs };
      if (returned) deliver(outcome);
      else this.#options.soon(() => deliver(outcome));
    });
    returned = true;
  }

  /** Reads of single keys that wait together are fetched together. */
  #expect({ namespace, operation }: Read): void {
    if (operation.kind !== "range" || operation.range.rangeEnd !== undefined) return;
    this.#options.replica.parts.state.machine.expectRead(namespace, operation.range.key);
  }

  #serve(read: Read): ReadOutcome {
    const { replica, sessions, leadership } = this.#options;
    const { machine, store } = replica.parts.state;
    const namespace = machine.namespaceByName(read.namespace);
    if (namespace === undefined) return { ok: false, failure: failures.namespaceNotFound(read.namespace) };
    if (epochDiffers(namespace, read.epoch)) {
      return { ok: false, failure: failures.wrongEpoch(namespace.epoch) };
    }
    const operation = read.operation;
    switch (operation.kind) {
      case "range": {
        const result = machine.range(namespace.id, operation, store, read.uncounted);
        return "code" in result ? { ok: false, failure: result } : { ok: true, result };
      }
      case "txn-read": {
        const result = machine.readTxn(namespace.id, operation.txn, store);
        return "code" in result ? { ok: false, failure: result } : { ok: true, result };
      }
      case "lease-list":
        return { ok: true, result: machine.listLeases(namespace.id, operation, store) };
      case "lease-time-to-live": {
        // Only who leads the sessions knows; it may have stopped since the read came in.
        if (!replica.isLeader || !leadership.leadsSessions)
          return { ok: false, failure: failures.leaderChanged() };
        const nowMs = replica.parts.environment.clock.monotonicMs();
        const lease = machine.lease(namespace.id, operation.leaseId, store);
        const remainingMs = sessions.remainingMs(namespace.id, operation.leaseId, nowMs);
        const result: ReadResult = {
          kind: "lease-time-to-live",
          revision: machine.revision,
          leaseId: operation.leaseId,
          remainingMs: lease === undefined ? -1 : Math.max(0, Math.floor(remainingMs ?? lease.ttlMs)),
          ttlMs: lease?.ttlMs ?? 0,
          owner: lease?.owner ?? "",
          keys: operation.keys === true ? machine.leaseKeys(namespace.id, operation.leaseId, store) : [],
        };
        return { ok: true, result };
      }
      default:
        return assertNever(operation);
    }
  }

  #applied(applied: Applied): void {
    if (this.#leaseEndListeners.size > 0) {
      const { machine } = this.#options.replica.parts.state;
      for (const change of applied.leaseChanges) {
        if (change.kind !== "ended") continue;
        const namespace = machine.namespace(change.namespaceId);
        if (namespace === undefined) continue;
        const { leaseId, cause, revision } = change;
        this.leaseEnded({ namespace: namespace.name, leaseId, cause, revision });
      }
    }
    if (this.#revisionWaiters.length > 0) this.#serveRevisionWaiters();
    this.#following.check();
  }

  #serveRevisionWaiters(): void {
    const { revision } = this.#options.replica;
    const due = this.#revisionWaiters.filter((waiter) => waiter.revision <= revision);
    if (due.length === 0) return;
    this.#revisionWaiters = this.#revisionWaiters.filter((waiter) => waiter.revision > revision);
    for (const waiter of due) waiter.serve();
  }

  #unpark(): void {
    const parked = this.#parked;
    this.#parked = [];
    for (const call of parked) this.#route(call);
  }

  /** Whether another try makes sense: encoding all that is parked for a leader that cannot be reached does not. */
  #leaderInReach(): boolean {
    const { replica, transport } = this.#options;
    return replica.isLeader || transport.connected().includes(replica.leaderId);
  }

  #checkDeadlines(nowMs: number): void {
    this.#following.check(nowMs);
    if (this.#parked.length > 0) {
      const late = this.#parked.filter((call) => call.deadlineMs <= nowMs);
      this.#parked = this.#parked.filter((call) => call.deadlineMs > nowMs);
      for (const call of late) call.fail(failures.noLeader());
      if (this.#leaderInReach()) this.#unpark();
    }
    if (this.#revisionWaiters.length > 0) {
      const late = this.#revisionWaiters.filter((waiter) => waiter.deadlineMs <= nowMs);
      this.#revisionWaiters = this.#revisionWaiters.filter((waiter) => waiter.deadlineMs > nowMs);
      for (const waiter of late) waiter.fail(failures.deadline("not-applied"));
    }
  }
}

/** Also what a timer can hold (S3). */
function boundedDeadline(deadlineMs: number | undefined): number {
  return Math.min(deadlineMs ?? DEADLINE_MS_DEFAULT, DEADLINE_MS_MAX);
}

function epochDiffers(namespace: NamespaceInfo, epoch: number): boolean {
  return epoch !== 0 && epoch !== namespace.epoch;
}
