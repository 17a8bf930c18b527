import { crc32 } from "node:zlib";
import type { Command, CommandOutcome } from "../../machine/types.ts";
import { createMachine } from "../../machine/index.ts";
import type { Membership } from "../../machine/membership.ts";
import { createRaft } from "../../raft/index.ts";
import type { LogIndex, MemberId, Message, RaftNode, Term } from "../../raft/types.ts";
import { createSessionKeeper } from "../../session/index.ts";
import { openMemoryGenerations } from "../../store/index.ts";
import type { Generations } from "../../store/index.ts";
import type { SnapshotSource, Transport } from "../../transport/types.ts";
import type { Wal, WalWrite } from "../../wal/types.ts";
import { MemoryDisk } from "../../wal/testing/index.ts";
import { createWatchHub } from "../../watch/index.ts";
import type { Environment } from "../environment.ts";
import { Leadership } from "../leadership.ts";
import { Replica } from "../replica.ts";
import { Snapshots } from "../snapshots.ts";
import { SpaceWatch } from "../space.ts";
import { CellState, membershipRow } from "../state.ts";

const TICK_MS = 10;
export const ELECTION_TICKS: number = 10;

/** Writes become durable when the test says so. */
export class TestWal implements Wal {
  bytes = 0;
  /** Durable at once, at the end of the turn. */
  prompt = true;
  readonly writes: WalWrite[] = [];
  readonly released: LogIndex[] = [];
  readonly #open: (() => void)[] = [];
  readonly #turn: (task: () => void) => void;

  constructor(turn: (task: () => void) => void) {
    this.#turn = turn;
  }

  append(write: WalWrite, done: () => void): void {
    this.writes.push(write);
    this.#open.push(done);
    if (this.prompt) this.#turn(() => this.sync());
  }

  /** Everything written so far is on disk. */
  sync(): void {
    for (const done of this.#open.splice(0)) done();
  }

  release(index: LogIndex): void {
    this.released.push(index);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** One member over memory stores: everything of the replica is real but the disk, the wire and the clock. */
export class TestMember {
  readonly id: MemberId;
  readonly wal: TestWal;
  readonly raft: RaftNode;
  readonly state: CellState;
  readonly generations: Generations;
  readonly snapshots: Snapshots;
  readonly replica: Replica;
  readonly leadership: Leadership;
  readonly fatal: Error[] = [];
  /** Highest revision that this member has acknowledged a put with. */
  acknowledged = 0;

  constructor(cluster: Cluster, id: MemberId, membership: Membership) {
    this.id = id;
    this.wal = new TestWal((task) => cluster.turns.push(task));
    this.generations = openMemoryGenerations();
    const rows = [
      ...createMachine({ crc32 }).bootstrap({ appliedIndex: 1 as LogIndex }),
      membershipRow(membership),
    ];
    this.generations.current.write((batch) => {
      for (const { keyspace, key, value } of rows) if (value !== undefined) batch.put(keyspace, key, value);
    });
    this.state = new CellState(this.generations.current);
    this.raft = createRaft(
      { lazyCommit: true, id, random: () => (id - 1) / 10, electionTimeoutTicks: ELECTION_TICKS },
      {
        hardState: { term: 1 as Term, vote: 0 as MemberId, commit: 1 as LogIndex },
        logStart: { index: 1 as LogIndex, term: 1 as Term },
        entries: [],
        applied: 1 as LogIndex,
        configuration: membership.configuration,
      },
    );
    const environment = cluster.environment((error) => this.fatal.push(error));
    const { state } = this;
    this.replica = new Replica({
      ...{ environment, self: id, raft: this.raft, wal: this.wal, state },
      hub: createWatchHub({
        source: {
          revision: () => state.machine.revision,
          compactRevision: (namespace) => state.machine.namespace(namespace)?.compactRevision ?? (0 as never),
          history: (request) => state.machine.history(request, state.store),
          stateAt: (namespace, key, revision) => state.machine.stateAt(namespace, key, revision, state.store),
        },
        schedule: environment.schedule,
        ringBytesMax: 1024 * 1024,
        pendingBytesMax: 1024 * 1024,
        totalPendingBytesMax: 1024 * 1024,
        watchesMax: 100,
      }),
      space: new SpaceWatch(new MemoryDisk({ random: () => 0 }).mount(), "", 0),
      timing: { tickMs: TICK_MS, electionTimeoutTicks: ELECTION_TICKS },
      formatVersionMax: 1,
      logKeepBytes: 1024 * 1024,
      measure: { proposal: idle, read: idle, apply: idle, renewed: idle },
    });
    this.snapshots = new Snapshots({
      ...{ self: id, environment, raft: this.raft, state, generations: this.generations },
      announce: (from, term, snapshot) =>
        this.replica.receive([{ kind: "snapshot", from, to: id, term, snapshot }]),
      pump: () => this.replica.pump(),
    });
    this.leadership = new Leadership({
      sessions: createSessionKeeper({
        electionTimeoutMs: TICK_MS * ELECTION_TICKS,
        checkpointIntervalMs: 1_000_000,
        expireBatchMax: 32,
        lateTickMs: (TICK_MS * ELECTION_TICKS) / 2,
      }),
      state,
      monotonicMs: () => cluster.nowMs,
      propose: (command, settled) => this.replica.proposeOwn(command, settled),
      proveLeadership: (settled) =>
        this.replica.read({ serve: () => settled(true), fail: () => settled(false), deadlineMs: Infinity }),
      retention: undefined,
      retentionIntervalMs: 1_000,
    });
    this.leadership.reload();
  }

  start(transport: Transport): void {
    this.snapshots.connect(transport);
    this.replica.start({ transport, snapshots: this.snapshots, leadership: this.leadership });
  }

  /** @returns where the answer will be: `ok`, or code and outcome. */
  put(key: string, value = ""): string[] {
    const answers: string[] = [];
    const command: Command = {
      kind: "client",
      namespaceId: 1,
      epoch: 0,
      identity: { kind: "none" },
      operation: { kind: "put", key: Buffer.from(key), value: Buffer.from(value) },
    };
    this.replica.propose(command, {
      deliver: (outcome: CommandOutcome) => {
        if (outcome.ok) this.acknowledged = Math.max(this.acknowledged, outcome.result?.revision ?? 0);
        answers.push(outcome.ok ? "ok" : `${outcome.failure.code} ${outcome.failure.outcome}`);
      },
      deadlineMs: Infinity,
      settled: false,
    });
    return answers;
  }
}

/** Three voters. Time and messages move only when the test says so. */
export class Cluster {
  nowMs = 0;
  readonly turns: (() => void)[] = [];
  readonly members: readonly TestMember[];
  /** Sent and not delivered. */
  wire: Message[] = [];
  /** Messages that the wire loses. */
  lost: (message: Message) => boolean = () => false;
  readonly #timers = new Set<{ readonly dueMs: number; readonly task: () => void }>();

  constructor() {
    const ids = [1, 2, 3] as MemberId[];
    const membership: Membership = {
      cellId: "cell",
      configurationIndex: 1 as LogIndex,
      configuration: { voters: ids, outgoing: [], learners: [], learnersNext: [], autoLeave: false },
      members: ids.map((id) => ({
        id,
        name: `m${String(id)}`,
        incarnation: `i${String(id)}`,
        addresses: { client: "c", http: "h", peer: "p", admin: "a", ops: "o" },
      })),
      removedIds: [],
      nextMemberId: 4 as MemberId,
    };
    this.members = ids.map((id) => new TestMember(this, id, membership));
    for (const member of this.members) member.start(this.#transport());
  }

  member(id: number): TestMember {
    const found = this.members[id - 1];
    if (found === undefined) throw new Error(`no member ${String(id)}`);
    return found;
  }

  environment(fatal: (error: Error) => void): Environment {
    return {
      clock: { monotonicMs: () => this.nowMs, wallMs: () => this.nowMs },
      random: () => 0,
      schedule: (task) => void this.turns.push(task),
      soon: (task) => void this.turns.push(task),
      after: (delayMs, task) => {
        const timer = { dueMs: this.nowMs + delayMs, task };
        this.#timers.add(timer);
        return () => this.#timers.delete(timer);
      },
      every: () => () => undefined,
      log: { debug: idle, info: idle, warn: idle, error: idle },
      fatal,
    };
  }

  /** For parts outside of the cluster's turns, whose promises a test waits for. */
  prompt(fatal: (error: Error) => void): Environment {
    return { ...this.environment(fatal), schedule: (task) => void setImmediate(task) };
  }

  /** Runs turns and delivers messages until nothing moves. */
  settle(): void {
    while (this.turns.length > 0 || this.wire.length > 0) {
      for (const task of this.turns.splice(0)) task();
      for (const message of this.wire.splice(0)) {
        if (!this.lost(message)) this.member(message.to).replica.receive([message]);
      }
    }
  }

  /** Lets time pass, and whatever that moves settle. */
  pass(ticks: number): void {
    for (let tick = 0; tick < ticks; tick += 1) {
      this.nowMs += TICK_MS;
      for (const timer of [...this.#timers]) {
        if (timer.dueMs <= this.nowMs && this.#timers.delete(timer)) timer.task();
      }
      for (const member of this.members) member.replica.tick();
      this.settle();
    }
  }

  elect(id: number): TestMember {
    const member = this.member(id);
    for (const other of this.members) other.raft.forgetLeader();
    member.raft.campaign();
    member.replica.pump();
    this.settle();
    return member;
  }

  #transport(): Transport {
    return {
      send: (messages) => void this.wire.push(...messages),
      notify: () => undefined,
      request: (_to, _body, _timeoutMs, answer) => queueMicrotask(() => answer("unsent")),
      sendSnapshot: (to, source) => this.#stream(to, source),
      setPeers: () => undefined,
      connected: () => [],
      close: () => Promise.resolve(),
    };
  }

  async #stream(to: MemberId, source: SnapshotSource): Promise<boolean> {
    const from = Number(source.id.split("-")[0]) as MemberId;
    const receiver = this.member(to).snapshots.receive(from, source);
    try {
      if (receiver === undefined) return false;
      for (let number = receiver.nextChunk; ; number += 1) {
        const chunk = await source.chunk(number);
        if (chunk === undefined) break;
        await receiver.chunk(chunk);
      }
      await receiver.finish();
      return true;
    } finally {
      source.close();
    }
  }
}

function idle(): void {
  // Nobody listens.
}
