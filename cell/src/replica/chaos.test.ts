import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { MemberId, Message } from "../raft/types.ts";
import { Cluster } from "./testing/cluster.ts";
import type { TestMember } from "./testing/cluster.ts";

const SEEDS = 8;
const STEPS = 160;
const LARGE = "x".repeat(1024 * 1024);

/** A small seeded generator (mulberry32), uniform in [0, 1). */
function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}

interface Put {
  readonly key: string;
  readonly answers: string[];
}

/**
 * Three members, a wire that loses and swaps, disks that stall, elections at any time, logs that are dropped so that
 * states travel; a client that remembers what it was told.
 */
class Story {
  readonly cluster = new Cluster();
  readonly puts: Put[] = [];
  readonly stale: string[] = [];
  reads = 0;
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = seeded(seed);
  }

  async run(): Promise<void> {
    for (let step = 0; step < STEPS; step += 1) {
      this.#act();
      this.cluster.settle();
      if (this.#chance(0.3)) await new Promise((resolve) => setImmediate(resolve));
    }
    await this.#heal();
  }

  #act(): void {
    const { cluster } = this;
    const member = this.#anyone();
    const dice = this.#random();
    if (dice < 0.4) this.#put();
    else if (dice < 0.48) this.#read(member);
    else if (dice < 0.62) cluster.pass(1 + Math.floor(this.#random() * 6));
    else if (dice < 0.7) this.#cut(member.id);
    else if (dice < 0.74) cluster.lost = () => false;
    else if (dice < 0.8) member.wal.prompt = !member.wal.prompt;
    else if (dice < 0.88) member.wal.sync();
    else if (dice < 0.94) {
      for (const other of cluster.members) if (this.#chance(0.8)) other.raft.forgetLeader();
      member.raft.campaign();
      member.replica.pump();
    } else {
      for (const { raft } of cluster.members) if (raft.role === "leader") raft.compact(raft.status().applied);
    }
  }

  /** Mostly at somebody who believes to lead: a turn's worth, or turns that wait for the disk. */
  #put(): void {
    const leaders = this.cluster.members.filter(({ raft }) => raft.role === "leader");
    const leader = leaders[Math.floor(this.#random() * leaders.length)];
    const member = leader === undefined || this.#chance(0.1) ? this.#anyone() : leader;
    const many = this.#chance(0.3) ? 8 : 1;
    for (let at = 0; at < many; at += 1) {
      const key = `k${String(this.puts.length)}`;
      // A large one closes its turn's entry by itself and passes the window by.
      const value = this.#chance(0.2) ? LARGE : "v";
      this.puts.push({ key, answers: member.put(key, value) });
      if (this.#chance(0.5)) for (const task of this.cluster.turns.splice(0)) task();
    }
  }

  #read(member: TestMember): void {
    const floor = Math.max(...this.cluster.members.map(({ acknowledged }) => acknowledged));
    this.reads += 1;
    member.replica.read({
      serve: () => {
        this.reads -= 1;
        const { revision } = member.state.machine;
        if (revision < floor)
          this.stale.push(`${String(revision)} after ${String(floor)} at ${String(member.id)}`);
      },
      fail: () => (this.reads -= 1),
      deadlineMs: Infinity,
    });
  }

  /** Somebody is alone, or hears nothing, or is not heard; the others lose a little. */
  #cut(alone: MemberId): void {
    const [deaf, dumb] = this.#chance(0.6) ? [true, true] : [this.#chance(0.5), this.#chance(0.5)];
    this.cluster.lost = ({ from, to }: Message) =>
      (deaf && to === alone) || (dumb && from === alone) || this.#chance(0.02);
  }

  async #heal(): Promise<void> {
    const { cluster } = this;
    cluster.lost = () => false;
    for (const { wal } of cluster.members) {
      wal.prompt = true;
      wal.sync();
    }
    for (let round = 0; round < 400 && !this.#calm(); round += 1) {
      cluster.pass(5);
      // Whatever leads then commits something of its own, so that every index in question is passed.
      if (round % 5 === 4) cluster.members.find(({ raft }) => raft.role === "leader")?.put("end");
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  #calm(): boolean {
    const { members } = this.cluster;
    const [first] = members;
    const settled = this.puts.every(({ answers }) => answers.length > 0) && this.reads === 0;
    return settled && members.every(({ state }) => state.appliedIndex === first?.state.appliedIndex);
  }

  #anyone(): TestMember {
    return this.cluster.member(1 + Math.floor(this.#random() * 3));
  }

  #chance(share: number): boolean {
    return this.#random() < share;
  }
}

describe("three members in trouble", () => {
  it("answer each command once and truly, read nothing stale, and end with the same state", async () => {
    let [acknowledged, installed] = [0, 0];
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const story = new Story(seed);
      await story.run();
      const { members } = story.cluster;
      const what = `seed ${String(seed)}`;
      assert.deepEqual(
        members.flatMap(({ fatal }) => fatal),
        [],
        what,
      );
      assert.deepEqual(story.stale, [], what);
      assert.equal(story.reads, 0, `${what}: reads without an answer`);
      const [{ state } = assert.fail()] = members;
      for (const other of members) assert.deepEqual(other.state.machine.digest, state.machine.digest, what);
      for (const { key, answers } of story.puts) {
        assert.equal(answers.length, 1, `${what}: ${key} was answered ${answers.join()}`);
        const found = state.machine.range(
          1,
          { kind: "range", range: { key: Buffer.from(key) } },
          state.store,
        );
        const there = "count" in found && found.count === 1;
        const [answer = ""] = answers;
        if (answer.startsWith("ok")) assert.ok(there, `${what}: ${key} was acknowledged and is gone`);
        if (answer.endsWith("not-applied")) assert.ok(!there, `${what}: ${key} is there, told: ${answer}`);
        if (answer.startsWith("ok")) acknowledged += 1;
      }
      installed += members.filter(({ wal }) =>
        wal.writes.some((write) => write.snapshot !== undefined),
      ).length;
    }
    assert.ok(acknowledged > SEEDS, "the stories get somewhere");
    assert.ok(installed > 0, "some states travelled");
  });
});
