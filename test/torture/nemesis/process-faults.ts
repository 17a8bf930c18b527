import { EXIT } from "../member/control.ts";
import { names, seconds } from "./fault.ts";
import type { Fault, Scene } from "./fault.ts";

const DOWN_MS_MAX = 4_000;
/** Longer than every lease and election timeout. */
const PAUSE_MS_MAX = 12_000;

const kill: Fault = {
  kind: "kill",
  lane: "trouble",
  weight: 10,
  about: "kill -9 of one member, the leader half of the time",
  run: async (scene) => {
    const downMs = scene.dice.between(0, DOWN_MS_MAX);
    const victim = await scene.victim();
    if (victim === undefined) return;
    scene.impair(victim);
    scene.say(`${victim.name}, for ${seconds(downMs)}`);
    await victim.kill();
    await scene.wait(downMs);
    await scene.revive([victim]);
  },
};

const killAll: Fault = {
  kind: "kill-all",
  lane: "trouble",
  weight: 3,
  about: "kill -9 of all members at once",
  run: async (scene) => {
    const downMs = scene.dice.between(0, DOWN_MS_MAX);
    const victims = await scene.everybody();
    for (const victim of victims) scene.impair(victim);
    scene.say(`${names(victims)}, for ${seconds(downMs)}`);
    await Promise.all(victims.map((victim) => victim.kill()));
    await scene.wait(downMs);
    await scene.revive(victims);
  },
};

const pause: Fault = {
  kind: "pause",
  lane: "trouble",
  weight: 8,
  about: "SIGSTOP of one member, beyond leases and election timeouts, then SIGCONT",
  run: async (scene) => {
    const pauseMs = scene.dice.between(300, PAUSE_MS_MAX);
    const victim = await scene.victim({ leaderChance: 0.6 });
    if (victim === undefined) return;
    scene.impair(victim);
    scene.say(`${victim.name}, for ${seconds(pauseMs)}`);
    victim.signal("SIGSTOP");
    scene.onEnd(() => victim.signal("SIGCONT"));
    await scene.wait(pauseMs);
  },
};

const rolling: Fault = {
  kind: "rolling",
  lane: "trouble",
  weight: 3,
  about: "each member in turn is asked to stop (SIGTERM) and started again",
  run: async (scene) => {
    const order = [...scene.free];
    scene.say(`restart of ${names(order)}`);
    for (const member of order) {
      if (!scene.free.includes(member) || scene.stopping.aborted) continue;
      await restart(scene, member);
    }
  },
};

async function restart(scene: Scene, member: Scene["free"][number]): Promise<void> {
  scene.claim(member);
  const well = scene.cell.health.impair(member.name);
  scene.onEnd(well);
  const exit = await member.kill("SIGTERM");
  if (exit.code !== EXIT.ok) {
    scene.findings.violation(
      "members stop as asked",
      `${member.name} ended with ${String(exit.code ?? exit.signal)} after SIGTERM: ${member.logTail()}`,
    );
  }
  await scene.revive([member]);
  well();
}

const clock: Fault = {
  kind: "clock",
  lane: "trouble",
  weight: 4,
  about: "one member's monotonic clock stands still for a while, or its wall clock jumps up to an hour",
  run: async (scene) => {
    const standsStill = scene.dice.chance(0.6);
    const forMs = scene.dice.between(500, 8_000);
    const byMs = scene.dice.between(-3_600_000, 3_600_000);
    const victim = await scene.victim({ leaderChance: 0.7 });
    if (victim === undefined) return;
    if (standsStill) {
      scene.say(`${victim.name}'s monotonic clock stands still for ${seconds(forMs)}`);
      victim.tell({ kind: "pause-clock", forMs });
      await scene.wait(forMs);
    } else {
      scene.say(`${victim.name}'s wall clock jumps by ${seconds(byMs)}`);
      victim.tell({ kind: "jump-clock", byMs });
    }
  },
};

export const PROCESS_FAULTS: readonly Fault[] = [kill, killAll, pause, rolling, clock];
