import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Cluster, TestMember } from "../../../cell/src/replica/testing/cluster.ts";
import { Dice } from "../../../cell/src/raft/testing/random.ts";
import type { Command } from "../../../cell/src/machine/types.ts";
import type { WriteOperation } from "@lockstep/gateway/coordinator";
import { watchCluster } from "./testing/watched-cluster.ts";
import type { Watched } from "./testing/watched-cluster.ts";

/** `LOCKSTEP_GOD_SEED=17` runs that history alone. */
const only = process.env["LOCKSTEP_GOD_SEED"];
const first = only === undefined ? 1 : Number(only);
const count = only === undefined ? Number(process.env["LOCKSTEP_GOD_SEEDS"] ?? 12) : 1;
const STEPS = 250;
const TURNS_TO_REST_MAX = 400;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const bytes = (text: string): Uint8Array => Buffer.from(text);

/** Three real replicas that lose messages and leaders, whose disks stall and whose logs are dropped. */
class Soak {
  readonly watched: Watched = watchCluster();
  readonly #dice: Dice;
  #sequence = 0;

  constructor(seed: number) {
    this.#dice = new Dice(seed);
  }

  async run(): Promise<void> {
    const { cluster } = this.watched;
    for (let step = 0; step < STEPS; step += 1) {
      this.#step(cluster);
      cluster.settle();
      if (this.#dice.chance(0.2)) await turn();
      for (const member of this.watched.members) this.watched.god.checkBounds(member);
    }
  }

  /** I13. */
  async rest(): Promise<string | undefined> {
    const { cluster, god, members, hosts } = this.watched;
    cluster.lost = () => false;
    for (const { wal } of cluster.members) {
      wal.prompt = true;
      wal.sync();
    }
    for (let left = TURNS_TO_REST_MAX; left > 0; left -= 1) {
      cluster.pass(5);
      await turn();
      if (god.settled(members, hosts) === undefined) return undefined;
    }
    return god.settled(members, hosts);
  }

  #step(cluster: Cluster): void {
    const dice = this.#dice;
    const member = cluster.member(dice.between(1, 3));
    const roll = dice.random();
    if (roll < 0.45) this.#write(this.#leader() ?? member);
    else if (roll < 0.55) this.#read(member);
    else if (roll < 0.7) cluster.pass(dice.between(1, 6));
    else if (roll < 0.76) cluster.lost = ({ from, to }) => from === member.id || to === member.id;
    else if (roll < 0.8) cluster.lost = ({ to }) => to === member.id || dice.chance(0.1);
    else if (roll < 0.84) cluster.lost = () => false;
    else if (roll < 0.9) member.wal.prompt = !member.wal.prompt;
    else if (roll < 0.94) member.wal.sync();
    else if (roll < 0.97) this.#elect(cluster, member);
    else
      for (const { raft } of cluster.members) if (raft.role === "leader") raft.compact(raft.status().applied);
  }

  #elect(cluster: Cluster, member: TestMember): void {
    for (const { raft } of cluster.members) raft.forgetLeader();
    member.raft.campaign();
    member.replica.pump();
  }

  #leader(): TestMember | undefined {
    return this.watched.cluster.members.find(({ raft }) => raft.role === "leader");
  }

  #read({ replica }: TestMember): void {
    const idle = (): void => undefined;
    replica.read({ serve: idle, fail: idle, deadlineMs: Infinity });
  }

  #write({ replica }: TestMember): void {
    this.#sequence += 1;
    const client = this.#dice.chance(0.3);
    const clientId = 1 as never;
    const command: Command = {
      kind: "client",
      namespaceId: 1,
      epoch: 0,
      identity: client
        ? { kind: "client", clientId, sequence: this.#sequence % 20, acknowledgedBelow: 0 }
        : { kind: "none" },
      operation: this.#operation(),
    };
    replica.propose(command, undefined);
  }

  #operation(): WriteOperation {
    const dice = this.#dice;
    const key = bytes(`k${String(dice.between(1, 6))}`);
    const leaseId = String(dice.between(1, 4)) as never;
    const put = { kind: "put", key, value: bytes(String(this.#sequence)) } as const;
    switch (dice.between(1, 9)) {
      case 1:
        return { kind: "delete", range: { key } };
      case 2:
        return { kind: "lease-grant", leaseId, ttlMs: 60_000 };
      case 3:
        return { kind: "lease-revoke", leaseId };
      case 4:
        return { kind: "register-client" };
      case 5:
        return { ...put, leaseId };
      case 6:
        return { ...put, sequential: true };
      case 7: {
        const compares = [{ key, target: "version", operator: "=", operand: dice.between(0, 2) } as const];
        return { kind: "txn", compares, success: [put], failure: [{ kind: "delete", range: { key } }] };
      }
      default:
        return put;
    }
  }
}

describe("the laws over three replicas in trouble", () => {
  it("hold while logs stall, messages are lost, leaders change and states travel", async () => {
    let [changes, snapshots] = [0, 0];
    for (let seed = first; seed < first + count; seed += 1) {
      const replay = `LOCKSTEP_GOD_SEED=${String(seed)} node --test test/sim/god/replica-soak.test.ts`;
      const soak = new Soak(seed);
      await soak.run();
      const unrest = await soak.rest();
      const { cluster, god, reporter } = soak.watched;
      assert.deepEqual(reporter.texts, [], replay);
      for (const { fatal } of cluster.members) assert.deepEqual(fatal, [], replay);
      assert.equal(unrest, undefined, replay);
      changes += god.truth.revision;
      snapshots += reporter.counts.get("snapshots installed") ?? 0;
    }
    if (only !== undefined) return;
    assert.ok(changes > count * 20, `only ${String(changes)} revisions`);
    assert.ok(snapshots > 0, "no state travelled");
  });
});
