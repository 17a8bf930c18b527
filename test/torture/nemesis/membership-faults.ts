import type { TorturedMember } from "../cell/member.ts";
import { until } from "../../support/until.ts";
import { names } from "./fault.ts";
import type { Fault, Scene } from "./fault.ts";

const JOIN_MS_MAX = 120_000;
const LAG_MS_MAX = 30_000;
const BULK_PUTS = 64;
const BULK_BYTES = 8 * 1024;

const transfer: Fault = {
  kind: "transfer",
  lane: "membership",
  weight: 4,
  about: "leadership is moved to another voter",
  run: async (scene) => {
    const leader = await scene.cell.leaderNow();
    if (leader === undefined) return;
    scene.say(`away from ${leader.name}`);
    await leader.adminApi.transfer(0).catch((error: unknown) => {
      scene.findings.record({ kind: "transfer failed", reason: String(error) });
    });
  },
};

const resize: Fault = {
  kind: "resize",
  lane: "membership",
  weight: 3,
  about: "the cell grows from three to five voters, or shrinks back",
  run: async (scene) => {
    const voters = await scene.cell.voters();
    if (voters.length < 5) {
      const joiners = [await scene.cell.join(), await scene.cell.join()];
      scene.say(`${names(joiners)} join and are promoted`);
      await takeIn(scene, joiners, []);
      return;
    }
    const leaving = [
      await scene.victim({ leaderChance: 0.3 }),
      await scene.victim({ leaderChance: 0 }),
    ].filter((member) => member !== undefined && voters.includes(member.name)) as TorturedMember[];
    if (leaving.length < 2) return;
    scene.say(`${names(leaving)} are removed`);
    await letGo(scene, [], leaving);
  },
};

const replace: Fault = {
  kind: "replace",
  lane: "membership",
  weight: 3,
  about: "a voter, the leader half of the time, is replaced by a new member in one change",
  run: async (scene) => {
    const voters = await scene.cell.voters();
    const old = await scene.victim();
    if (old === undefined || !voters.includes(old.name)) return;
    const joiner = await scene.cell.join();
    scene.say(`${old.name} by ${joiner.name}`);
    await takeIn(scene, [joiner], [old]);
  },
};

const wipe: Fault = {
  kind: "wipe",
  lane: "membership",
  weight: 3,
  about: "a voter loses its disk for good, and a new member takes its place",
  run: async (scene) => {
    const voters = await scene.cell.voters();
    const lost = await scene.victim({ leaderChance: 0.3 });
    if (lost === undefined || !voters.includes(lost.name)) return;
    scene.impair(lost);
    const joining = scene.dice.chance(0.5);
    scene.say(`${lost.name}'s disk is gone`);
    await lost.wipe();
    await scene.wait(joining ? 0 : 2_000);
    const joiner = await scene.cell.join();
    scene.findings.say(`wipe: ${joiner.name} joins in place of ${lost.name}`);
    await takeIn(scene, [joiner], [lost]);
  },
};

const snapshot: Fault = {
  kind: "snapshot",
  lane: "membership",
  weight: 5,
  about: "a member is down until the leader's log no longer reaches back to it: it needs the whole state",
  run: async (scene) => {
    const victim = await scene.victim({ leaderChance: 0 });
    if (victim === undefined) return;
    scene.impair(victim);
    const index = (await victim.adminApi.status().catch(() => undefined))?.appliedIndex;
    if (index === undefined) return;
    scene.say(`${victim.name} is down from index ${String(index)} on until the log is gone`);
    await victim.kill();
    await until(
      "the leader's log begins later",
      async () => {
        if (scene.stopping.aborted) return true;
        await writeBulk(scene);
        const status = await (await scene.cell.leaderNow())?.adminApi.status();
        return status !== undefined && status.logFirstIndex > index + 1 ? true : undefined;
      },
      LAG_MS_MAX,
    ).catch((error: unknown) =>
      scene.findings.record({ kind: "snapshot not forced", reason: String(error) }),
    );
    await scene.revive([victim]);
  },
};

/** Bytes for the log, over HTTP at any member. */
async function writeBulk(scene: Scene): Promise<void> {
  const member = scene.cell.members.find(({ serving }) => serving);
  if (member === undefined) return;
  const body = Buffer.alloc(BULK_BYTES, "x");
  const puts = Array.from({ length: BULK_PUTS }, (_, n) =>
    fetch(`http://${member.httpAddress}/v1/kv/bulk/${String(n)}`, {
      method: "PUT",
      body,
      signal: AbortSignal.timeout(5_000),
    }).then(
      (response) => response.arrayBuffer(),
      () => undefined,
    ),
  );
  await Promise.all(puts);
}

/** Waits until learners are there, then makes one change of it. */
async function takeIn(
  scene: Scene,
  joiners: readonly TorturedMember[],
  leaving: readonly TorturedMember[],
): Promise<void> {
  for (const joiner of joiners) await joiner.untilServing(JOIN_MS_MAX);
  await letGo(scene, joiners, leaving);
}

async function letGo(
  scene: Scene,
  joiners: readonly TorturedMember[],
  leaving: readonly TorturedMember[],
): Promise<void> {
  for (const member of leaving) {
    scene.impair(member);
    scene.onEnd(member.mayDie());
  }
  await scene.cell.change({
    promote: joiners.map(({ name }) => name),
    remove: leaving.map(({ name }) => name),
  });
  for (const member of leaving) await scene.cell.bury(member.name);
}

export const MEMBERSHIP_FAULTS: readonly Fault[] = [transfer, resize, replace, wipe, snapshot];
