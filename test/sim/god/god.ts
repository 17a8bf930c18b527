/**
 * Sees everything in the simulated world and reports what must not be. It looks at members from the inside: their logs,
 * states and consensus cores are instrumented one by one, production code knows nothing of it.
 *
 * The order of calls for a member: {@link God.opened} once its folder is open and before its replica exists,
 * {@link God.started} once it runs, {@link God.sending} with whatever it sends, {@link God.ended} when it dies. A new
 * life on the same host is checked against what the lives before had promised, unless {@link God.diskWiped} or
 * {@link God.diskDamaged} said that the disk is not what it was.
 */
import type { Message, RaftInitialState, RaftNode, Ready } from "../../../cell/src/raft/types.ts";
import type { Replica } from "../../../cell/src/replica/replica.ts";
import type { CellState } from "../../../cell/src/replica/state.ts";
import type { Store } from "../../../cell/src/store/types.ts";
import type { Wal } from "../../../cell/src/wal/types.ts";
import type { WatchHub } from "../../../cell/src/watch/types.ts";
import type { Reporter, Scheduler } from "../contract.ts";
import { describeUnrest } from "./at-rest.ts";
import { BoundLaws } from "./bounds.ts";
import type { MemberBounds } from "./bounds.ts";
import { Ledger } from "./ledger.ts";
import { LeadershipLaws } from "./leadership-laws.ts";
import type { Life } from "./life.ts";
import { DiskLog } from "./log-model.ts";
import { MembershipLaws } from "./membership-laws.ts";
import { Promises } from "./promises.ts";
import { ReadLaw } from "./read-law.ts";
import { StateLaws } from "./state-laws.ts";
import { CellTruth } from "./truth.ts";

export interface GodOptions {
  readonly reporter: Reporter;
  readonly scheduler: Pick<Scheduler, "nowUs">;
  /** For how many changes of keys the machine's dumb twin runs beside. Default 60; 0: not at all. */
  readonly twinChangesMax?: number;
  /** Default: what production runs with. Give what the members of this world are configured with. */
  readonly bounds?: Partial<MemberBounds>;
}

/** A member's opened folder, as `openMemberFolder` hands it out. */
export interface WatchedFolder {
  readonly identity: { readonly memberId: number; readonly incarnation: string };
  readonly state: CellState;
  readonly wal: Wal;
  readonly initial: RaftInitialState;
}

/** A running member; a `SimMember` is one. */
export interface WatchedMember {
  readonly host: string;
  readonly core: { readonly replica: Replica; readonly hub: WatchHub };
}

export class God {
  readonly truth: CellTruth;
  readonly #bounds: BoundLaws;
  readonly #ledger: Ledger;
  readonly #promises: Promises;
  readonly #leadership: LeadershipLaws;
  readonly #membership: MembershipLaws;
  readonly #states: StateLaws;
  readonly #reads: ReadLaw;
  /** By host: the log of its disk, and its newest life. */
  readonly #disks = new Map<string, DiskLog>();
  readonly #lives = new Map<string, Life>();
  /** By member id: where its disk is now. */
  readonly #homes = new Map<number, DiskLog>();
  readonly #damaged = new Set<string>();
  /** Of each store that is instrumented: its own. */
  readonly #barriers = new WeakMap<Store, Store["barrier"]>();

  constructor(options: GodOptions) {
    const { reporter, scheduler } = options;
    this.#bounds = new BoundLaws(reporter, options.bounds);
    this.truth = new CellTruth(reporter, scheduler, options.twinChangesMax);
    this.#ledger = new Ledger(reporter);
    this.#promises = new Promises(reporter, this.#ledger);
    this.#leadership = new LeadershipLaws(reporter, this.#ledger, (id) => this.#homes.get(id));
    this.#membership = new MembershipLaws(reporter, this.truth);
    this.#states = new StateLaws(reporter, this.truth, this.#ledger, this.#membership);
    this.#reads = new ReadLaw(reporter, this.#ledger);
  }

  /** The newest entry that any member has ever known to be committed. */
  get highestCommit(): number {
    return this.#ledger.highestCommit;
  }

  /** A member's folder is open; nothing was handed to a replica yet. Instruments the log and the state. */
  opened(host: string, folder: WatchedFolder): void {
    const { identity, state, wal, initial } = folder;
    this.ended(host);
    const disk = this.#diskOf(host, folder);
    this.#membership.started(disk);
    disk.recovered(initial);
    this.#ledger.written(host, initial.entries, initial.logStart.index === 0 ? 0 : initial.logStart.term);
    disk.barrierIndex = state.appliedIndex;
    const life: Life = {
      host,
      memberId: identity.memberId,
      number: (this.#lives.get(host)?.number ?? 0) + 1,
      disk,
      state,
      alive: true,
      recovered: initial.entries,
      raft: undefined,
      seenCommit: 0,
      ledTerm: 0,
      configuration: undefined,
    };
    this.#lives.set(host, life);
    if (!this.truth.begun && state.membership.configuration.voters.length > 0) {
      this.truth.begin({ store: state.store, membership: state.membership });
      for (const { id, incarnation } of state.membership.members) {
        this.#membership.started({ host, memberId: id, incarnation });
      }
    }
    this.#states.opened(life);
    this.#instrumentState(life);
    this.#instrumentWal(life, wal);
  }

  /** The member runs. Instruments its consensus core and its reads. */
  started(member: WatchedMember): void {
    const life = this.#lives.get(member.host);
    if (life === undefined || !life.alive) throw new Error(`the folder of ${member.host} was not opened`);
    const { replica } = member.core;
    const { raft } = replica.parts;
    life.raft = raft;
    life.recovered = [];
    this.#leadership.look(life);
    this.#instrumentRaft(life, raft);
    this.#reads.instrument(life, replica);
  }

  /** I-bounds: call now and then, for every member that runs. */
  checkBounds(member: WatchedMember): void {
    this.#bounds.check(member);
  }

  /** I13: why the cell is not at rest yet; undefined: it is, and all members hold the same. */
  settled(members: readonly WatchedMember[], expectedHosts: readonly string[]): string | undefined {
    return describeUnrest(members, expectedHosts, this.truth);
  }

  /** Call from the member's transport, before anything leaves. */
  sending(host: string, messages: readonly Message[]): void {
    const life = this.#lives.get(host);
    if (life?.alive === true) this.#promises.sending(life.disk, messages);
  }

  /** The member was killed, crashed or stopped: whatever its process still does counts no more. */
  ended(host: string): void {
    const life = this.#lives.get(host);
    if (life !== undefined) life.alive = false;
  }

  /** Nothing is left of what was on the disk: what the member had promised is gone with it. */
  diskWiped(host: string): void {
    this.ended(host);
    // What it had acknowledged before was on a disk then, and counts: its id never comes back, so `#homes` keeps it.
    this.#disks.delete(host);
  }

  /** Bits on the disk were flipped beyond what a write-ahead log can make good: the next start may find less. */
  diskDamaged(host: string): void {
    this.#damaged.add(host);
  }

  /** The disk's log as it was believed to be, held against what was found. */
  #diskOf(host: string, { identity, initial }: WatchedFolder): DiskLog {
    const known = this.#disks.get(host);
    const wasDamaged = this.#damaged.delete(host);
    if (known?.memberId === identity.memberId && known.incarnation === identity.incarnation) {
      if (!wasDamaged) this.#promises.recovered(known, initial);
      return known;
    }
    this.diskWiped(host);
    const { memberId, incarnation } = identity;
    const disk = new DiskLog({ host, memberId, incarnation });
    this.#disks.set(host, disk);
    this.#homes.set(memberId, disk);
    return disk;
  }

  #instrumentWal(life: Life, wal: Wal): void {
    const append = wal.append.bind(wal);
    const release = wal.release.bind(wal);
    wal.append = (write, done) => {
      if (!life.alive) return append(write, done);
      this.#promises.writing(life.disk, write);
      const durable = life.disk.begin(write);
      append(write, () => {
        if (life.alive) durable();
        done();
      });
    };
    wal.release = (index, term) => {
      if (life.alive) this.#promises.releasing(life.disk, index);
      release(index, term);
    };
  }

  #instrumentState(life: Life): void {
    const { state } = life;
    const apply = state.apply.bind(state);
    const applyConfiguration = state.applyConfiguration.bind(state);
    const replace = state.replace.bind(state);
    state.apply = (entries, wantEvents) => {
      if (!life.alive) return apply(entries, wantEvents);
      this.#states.applying(life, entries);
      const applied = apply(entries, wantEvents);
      this.#states.applied(life);
      return applied;
    };
    state.applyConfiguration = (index, change, step) => {
      if (life.alive) this.#states.configurationApplying(life, index);
      const outcome = applyConfiguration(index, change, step);
      if (life.alive) this.#states.configurationApplied(life, index);
      return outcome;
    };
    state.replace = (store) => {
      const before = state.appliedIndex;
      replace(store);
      if (!life.alive) return;
      this.#states.replaced(life, before);
      this.#instrumentStore(life, store);
    };
    this.#instrumentStore(life, state.store);
  }

  /** What a barrier fixes survives every crash. */
  #instrumentStore(life: Life, store: Store): void {
    const { state, disk } = life;
    disk.barrierIndex = Math.max(disk.barrierIndex, state.appliedIndex);
    // A store in memory outlives the lives that use it.
    const barrier = this.#barriers.get(store) ?? store.barrier.bind(store);
    this.#barriers.set(store, barrier);
    store.barrier = async () => {
      const index = state.appliedIndex;
      await barrier();
      if (life.alive && state.store === store) disk.barrierIndex = Math.max(disk.barrierIndex, index);
    };
  }

  #instrumentRaft(life: Life, raft: RaftNode): void {
    const ready = raft.ready.bind(raft);
    raft.ready = () => {
      const handed = ready();
      if (life.alive) this.#handed(life, raft, handed);
      return handed;
    };
  }

  #handed(life: Life, raft: RaftNode, handed: Ready): void {
    this.#leadership.look(life);
    if (raft.role === "leader" && handed.append !== undefined) {
      for (const entry of handed.append.entries) {
        if (entry.kind === "configuration" && entry.term === raft.term)
          this.#membership.proposed(life, entry);
      }
    }
    for (const entry of handed.committed) this.#states.handed(life, entry);
  }
}
