import type { LinkRule } from "../../support/proxied-link.ts";
import type { NetworkRule } from "../cell/cell.ts";
import { seconds } from "./fault.ts";
import type { Fault, Scene } from "./fault.ts";

const PARTITION_MS_MIN = 500;
const PARTITION_MS_MAX = 12_000;

const partition: Fault = {
  kind: "partition",
  lane: "trouble",
  weight: 8,
  about: "one member, or two, cut off from the others in both directions, with resets or in silence",
  run: async (scene) => {
    const { dice } = scene;
    const forMs = dice.between(PARTITION_MS_MIN, PARTITION_MS_MAX);
    const how = dice.pick<LinkRule>([{ kind: "cut" }, { kind: "stall" }]);
    const two = dice.chance(0.2);
    const cut = [await scene.victim(), two ? await scene.victim() : undefined].filter(
      (member) => member !== undefined,
    );
    const side = new Set(cut.map(({ name }) => name));
    if (side.size === 0) return;
    for (const member of cut) scene.impair(member);
    scene.say(`${[...side].join(", ")} | the others (${word(how)}), for ${seconds(forMs)}`);
    await hold(scene, (from, to) => (side.has(from) !== side.has(to) ? how : undefined), forMs);
  },
};

const oneWay: Fault = {
  kind: "one-way",
  lane: "trouble",
  weight: 6,
  about: "messages from one member to the others, or to it, or over one link, do not arrive",
  run: async (scene) => {
    const { dice } = scene;
    const forMs = dice.between(PARTITION_MS_MIN, PARTITION_MS_MAX);
    const how = dice.pick<LinkRule>([{ kind: "cut" }, { kind: "stall" }]);
    const direction = dice.pick(["from", "to", "link"] as const);
    const victim = await scene.victim();
    if (victim === undefined) return;
    scene.impair(victim);
    const { name } = victim;
    const other = scene.cell.members.find((member) => member !== victim)?.name ?? "";
    const texts = { from: `${name} -> all`, to: `all -> ${name}`, link: `${name} -> ${other}` };
    scene.say(`${texts[direction]} lost (${word(how)}), for ${seconds(forMs)}`);
    const isLost = (from: string, to: string): boolean => {
      if (direction === "from") return from === name;
      if (direction === "to") return to === name;
      return from === name && to === other;
    };
    await hold(scene, (from, to) => (isLost(from, to) ? how : undefined), forMs);
  },
};

const delay: Fault = {
  kind: "delay",
  lane: "trouble",
  weight: 5,
  about: "messages between members arrive late, up to three seconds, on all links or on one member's",
  run: async (scene) => {
    const { dice } = scene;
    const forMs = dice.between(1_000, 10_000);
    const delayMs = dice.pick([5, 20, 50, 150, 400, 1_000, 3_000]);
    const everybody = dice.chance(0.4);
    const victim = await scene.victim();
    if (victim === undefined) return;
    if (everybody && delayMs > 50) scene.impairCell();
    else scene.impair(victim);
    const { name } = victim;
    scene.say(
      `${everybody ? "all links" : `the links of ${name}`} by ${String(delayMs)} ms, for ${seconds(forMs)}`,
    );
    const rule: LinkRule = { kind: "delay", delayMs };
    await hold(scene, (from, to) => (everybody || from === name || to === name ? rule : undefined), forMs);
  },
};

async function hold(scene: Scene, rule: NetworkRule, forMs: number): Promise<void> {
  scene.onEnd(scene.cell.shape(rule));
  await scene.wait(forMs);
}

function word(rule: LinkRule): string {
  return rule.kind === "cut" ? "reset" : "silent";
}

export const NETWORK_FAULTS: readonly Fault[] = [partition, oneWay, delay];
