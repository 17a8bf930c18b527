import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Simulation } from "../../../cell/src/raft/testing/simulation.ts";
import type { TestMember } from "../../../cell/src/raft/testing/member.ts";
import type { Append, LogIndex, MemberId } from "../../../cell/src/raft/types.ts";
import type { CellState } from "../../../cell/src/replica/state.ts";
import type { WalWrite } from "../../../cell/src/wal/types.ts";
import { Ledger } from "./ledger.ts";
import { LeadershipLaws } from "./leadership-laws.ts";
import type { Life } from "./life.ts";
import { DiskLog } from "./log-model.ts";
import { Promises } from "./promises.ts";
import { RememberingReporter } from "./testing/watched-cluster.ts";

/** `LOCKSTEP_GOD_SEED=17` runs that history alone. */
const only = process.env["LOCKSTEP_GOD_SEED"];
const first = only === undefined ? 1 : Number(only);
const count = only === undefined ? Number(process.env["LOCKSTEP_GOD_SEEDS"] ?? 40) : 1;
const STEPS = 6_000;

/** The consensus core's own random histories, with their power cuts, seen through the laws of this folder. */
class WatchedSimulation {
  readonly reporter = new RememberingReporter();
  readonly #simulation: Simulation;
  readonly #lives = new Map<MemberId, Life>();
  readonly #ledger = new Ledger(this.reporter);
  readonly #promises = new Promises(this.reporter, this.#ledger);
  readonly #leadership = new LeadershipLaws(
    this.reporter,
    this.#ledger,
    (id) => this.#lives.get(id as MemberId)?.disk,
  );

  constructor(seed: number) {
    const simulation = new Simulation(seed);
    this.#simulation = simulation;
    const { members, invariants } = simulation;
    for (const member of members.values()) this.#watch(member);
    const set = members.set.bind(members);
    members.set = (id, member) => {
      this.#watch(member);
      return set(id, member);
    };
    const check = invariants.check.bind(invariants);
    invariants.check = (member) => {
      check(member);
      this.#look(member);
    };
  }

  run(): void {
    this.#simulation.run(STEPS);
    this.#simulation.settle();
  }

  #watch(member: TestMember): void {
    const open: (() => void)[] = [];
    this.#begin(member);
    const ready = member.ready.bind(member);
    const finishWrite = member.finishWrite.bind(member);
    const restart = member.restart.bind(member);
    const compact = member.compact.bind(member);
    member.ready = () => {
      const handed = ready();
      this.#look(member);
      const { disk } = this.#life(member);
      this.#promises.sending(disk, handed.messages);
      if (handed.append !== undefined) open.push(this.#write(disk, handed.append));
      for (const { index, term } of handed.committed) this.#ledger.committed(disk.host, index, term);
      return handed;
    };
    member.finishWrite = () => {
      open.shift()?.();
      const held = finishWrite();
      this.#promises.sending(this.#life(member).disk, held);
      return held;
    };
    member.restart = (kept, fallBack) => {
      open.length = 0;
      this.#life(member).alive = false;
      restart(kept, fallBack);
      this.#begin(member);
    };
    member.compact = (index) => {
      compact(index);
      // A state machine of this simulation falls back to the log's start at most.
      this.#life(member).disk.barrierIndex = member.disk.logStart.index;
    };
  }

  #write(disk: DiskLog, append: Append): () => void {
    const write: WalWrite = {
      entries: append.entries,
      ...(append.hardState === undefined ? {} : { hardState: append.hardState }),
      ...(append.snapshot === undefined ? {} : { snapshot: append.snapshot }),
    };
    this.#promises.writing(disk, write);
    return disk.begin(write);
  }

  #look(member: TestMember): void {
    const life = this.#lives.get(member.id);
    if (life !== undefined) this.#leadership.look(life);
  }

  #begin(member: TestMember): void {
    const before = this.#lives.get(member.id);
    const host = `m${String(member.id)}`;
    const disk = before?.disk ?? new DiskLog({ host, memberId: member.id, incarnation: host });
    const { hardState, logStart, entries } = member.disk;
    const initial = {
      logStart,
      entries: [...entries],
      applied: member.appliedIndex,
      configuration: member.configuration,
      ...(hardState === undefined ? {} : { hardState }),
    };
    if (before !== undefined) this.#promises.recovered(disk, initial);
    disk.recovered(initial);
    const state = {
      get appliedIndex(): LogIndex {
        return member.appliedIndex;
      },
      membership: {
        get configuration(): TestMember["configuration"] {
          return member.configuration;
        },
      },
    } as unknown as CellState;
    this.#lives.set(member.id, {
      ...{ host, memberId: member.id, number: (before?.number ?? 0) + 1, disk, state },
      ...{
        alive: true,
        recovered: [],
        raft: member.node,
        seenCommit: 0,
        ledTerm: 0,
        configuration: undefined,
      },
    });
  }

  #life(member: TestMember): Life {
    const life = this.#lives.get(member.id);
    assert(life !== undefined, `member ${String(member.id)} lives`);
    return life;
  }
}

describe("the laws over the consensus core's own histories", () => {
  it("hold under power cuts, slow disks, partitions and changes of the configuration", () => {
    for (let seed = first; seed < first + count; seed += 1) {
      const watched = new WatchedSimulation(seed);
      try {
        watched.run();
      } catch (cause) {
        const replay = `LOCKSTEP_GOD_SEED=${String(seed)} node --test test/sim/god/raft-soak.test.ts`;
        throw new Error(`seed ${String(seed)} breaks; replay with: ${replay}`, { cause });
      }
    }
  });
});
