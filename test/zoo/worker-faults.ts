// What happens to a worker's process.
import type { LinkRule } from "../support/proxied-link.ts";
import type { Dice } from "../torture/dice.ts";
import type { Worker } from "./keeper.ts";

/** What a fault has to work with; everything is undone when its promise resolves. */
export interface WorkerScene {
  readonly worker: Worker;
  readonly dice: Dice;
  readonly ttlMs: number;
  /** A while, cut short when the zoo is to be calm. */
  readonly wait: (ms: number) => Promise<void>;
  /** A while that the calm waits for, too. */
  readonly settle: (ms: number) => Promise<unknown>;
  /** What becomes of this worker's connections to the cell; undefined: nothing. */
  readonly shape: (rule: LinkRule | undefined) => void;
}

export interface WorkerFault {
  readonly kind: string;
  readonly weight: number;
  /** For `--help`. */
  readonly about: string;
  readonly needsClocks?: boolean;
  /** @returns what was done, for people. */
  readonly run: (scene: WorkerScene) => Promise<string>;
}

const HOUR_MS = 3_600_000;
const DEAF_MS = 1_500;
/** Enough to tell an answer's time from its question's, and too little for the session to end of it. */
const ECHO_MS = 850;

/** Shorter than a session or longer, as often. */
function aWhile({ dice, ttlMs }: WorkerScene): number {
  return dice.chance(0.4) ? dice.between(100, ttlMs * 0.8) : dice.between(ttlMs, ttlMs * 2.5);
}

/** Whoever wakes up may hear of what has happened at once, or only have its clocks to go by. */
async function whileAsleep(scene: WorkerScene, sleep: () => Promise<void>): Promise<void> {
  const isDeaf = scene.dice.chance(0.7);
  if (isDeaf) scene.shape({ kind: "stall" });
  scene.worker.stop();
  await sleep();
  scene.worker.goOn();
  if (!isDeaf) return;
  await scene.wait(DEAF_MS);
  scene.shape(undefined);
}

async function whileShaped(scene: WorkerScene, rule: LinkRule, ms: number): Promise<void> {
  scene.shape(rule);
  await scene.wait(ms);
  scene.shape(undefined);
}

export const WORKER_FAULTS: readonly WorkerFault[] = [
  {
    kind: "nap",
    weight: 6,
    about: "SIGSTOP, and SIGCONT after a while; mostly without a network at first",
    run: async (scene) => {
      const ms = aWhile(scene);
      await whileAsleep(scene, () => scene.wait(ms));
      return `stopped for ${String(ms)} ms`;
    },
  },
  {
    kind: "spin",
    weight: 4,
    about: "the main loop computes and does nothing else for a while",
    run: async (scene) => {
      const ms = aWhile(scene);
      scene.worker.order({ what: "spin", ms });
      await scene.wait(ms);
      return `spins for ${String(ms)} ms`;
    },
  },
  {
    kind: "cut",
    weight: 2,
    about: "its connections break, and are refused for a while",
    run: async (scene) => {
      const ms = aWhile(scene);
      await whileShaped(scene, { kind: "cut" }, ms);
      return `cut off for ${String(ms)} ms`;
    },
  },
  {
    kind: "blackhole",
    weight: 4,
    about: "its connections stand, and nothing goes through them for a while",
    run: async (scene) => {
      const ms = aWhile(scene);
      await whileShaped(scene, { kind: "stall" }, ms);
      return `nothing went through for ${String(ms)} ms`;
    },
  },
  {
    kind: "slow",
    weight: 1,
    about: "what it sends arrives late, and in order",
    run: async (scene) => {
      const delayMs = scene.dice.between(20, 400);
      const ms = aWhile(scene);
      await whileShaped(scene, { kind: "delay", delayMs }, ms);
      return `was ${String(delayMs)} ms late for ${String(ms)} ms`;
    },
  },
  {
    kind: "echo",
    weight: 4,
    about: "what it is answered arrives late, and then nothing goes through",
    run: async (scene) => {
      scene.shape({ kind: "late", delayMs: ECHO_MS });
      await scene.wait(scene.dice.between(1_500, 3_500));
      await whileShaped(scene, { kind: "stall" }, scene.ttlMs * 2);
      return "heard late for a while, and then nothing";
    },
  },
  {
    kind: "suspend",
    weight: 6,
    about: "as the machine sleeps: the same, and its monotonic clock has not gone on meanwhile",
    needsClocks: true,
    run: async (scene) => {
      const ms = aWhile(scene);
      await whileAsleep(scene, async () => {
        const started = performance.now();
        await scene.wait(ms);
        scene.worker.clocks?.lose(performance.now() - started);
      });
      // Within a session's time of it the wall clock must not go back: no two clocks would tell the sleep then.
      await scene.settle(scene.ttlMs);
      return `suspended for ${String(ms)} ms`;
    },
  },
  {
    kind: "clock",
    weight: 3,
    about: "its wall clock jumps, by up to an hour, forward or back",
    needsClocks: true,
    run: async (scene) => {
      const { dice } = scene;
      const ms = dice.between(500, dice.chance(0.5) ? 5_000 : HOUR_MS) * (dice.chance(0.5) ? 1 : -1);
      scene.worker.clocks?.jump(ms);
      // As above: it must not sleep so soon after it was set back.
      await scene.settle(scene.ttlMs);
      return `its wall clock jumped by ${String(ms)} ms`;
    },
  },
  {
    kind: "kill",
    weight: 1,
    about: "SIGKILL; another one follows",
    run: async (scene) => {
      await scene.worker.kill();
      return "killed";
    },
  },
];
