import { RESERVE_BYTES } from "../cell/member.ts";
import type { TorturedMember } from "../cell/member.ts";
import { EXIT } from "../member/control.ts";
import { names, seconds } from "./fault.ts";
import type { Fault, Scene } from "./fault.ts";

const SYNC_FAILURE_MS_MAX = 20_000;
/** A member that was told of a failed fsync is gone within this. */
const STOP_MS_MAX = 5_000;
const BARRIER_MS_MAX = 15_000;

const slowDisk: Fault = {
  kind: "slow-disk",
  lane: "trouble",
  weight: 5,
  about: "one member's writes become durable late, up to 30 seconds",
  run: async (scene) => {
    const { dice } = scene;
    const forMs = dice.between(2_000, 15_000);
    const maxMs = dice.pick([20, 100, 500, 2_000, 10_000, 30_000]);
    const victim = await scene.victim();
    if (victim === undefined) return;
    scene.impair(victim);
    scene.say(`${victim.name}: each fsync takes up to ${seconds(maxMs)}, for ${seconds(forMs)}`);
    victim.tell({ kind: "slow-disk", minMs: maxMs / 4, maxMs });
    scene.onEnd(() => victim.tell({ kind: "slow-disk", minMs: 0, maxMs: 0 }));
    await scene.wait(forMs);
  },
};

const failSync: Fault = {
  kind: "fail-sync",
  lane: "trouble",
  weight: 3,
  about:
    "an fsync of one member's log or store fails: it must stop at once; then half of the time a power cut",
  run: async (scene) => {
    const of = scene.dice.pick(["log", "store"] as const);
    const powerCut = scene.dice.chance(0.5);
    const victim = await scene.victim();
    if (victim === undefined) return;
    scene.impair(victim);
    scene.onEnd(victim.mayDie());
    scene.say(`of ${victim.name}'s ${of}${powerCut ? ", and then its power is cut" : ""}`);
    const sync = { failed: false };
    const told = new Promise<void>((resolve) => {
      scene.onEnd(
        victim.listen((report) => {
          if (report.kind !== "sync-failed") return;
          sync.failed = true;
          resolve();
        }),
      );
    });
    victim.tell({ kind: "fail-sync", of });
    await within(Promise.race([told, victim.exited()]), SYNC_FAILURE_MS_MAX);
    const exit = await within(victim.exited(), sync.failed ? STOP_MS_MAX : 0);
    if (sync.failed && exit?.code !== EXIT.fatal) {
      scene.findings.violation(
        "a failed fsync stops the member",
        `${victim.name}'s ${of}: ${exit === undefined ? "it goes on" : `it ended with ${String(exit.code ?? exit.signal)}`}`,
      );
    }
    // Nothing was written in time: the fault goes with the process.
    await victim.kill();
    if (powerCut && of === "log") losePower(scene, [victim], new Set());
    await scene.revive([victim]);
  },
};

const fullDisk: Fault = {
  kind: "full-disk",
  lane: "trouble",
  weight: 3,
  about:
    "one member's volume is filled below its reserve (the cell refuses growth) or to the last byte (it may stop)",
  run: async (scene) => {
    const { dice } = scene;
    const forMs = dice.between(2_000, 8_000);
    const toTheLastByte = dice.chance(0.4);
    const victim = await scene.victim();
    if (victim === undefined) return;
    const { volume } = victim;
    scene.impair(victim);
    scene.impairCell();
    scene.onEnd(victim.mayDie());
    const really = volume.mounted && toTheLastByte;
    scene.say(
      `${victim.name}'s volume ${really ? "to the last byte" : "below its reserve"}, for ${seconds(forMs)}`,
    );
    if (volume.mounted) volume.fill(really ? 0 : RESERVE_BYTES / 2);
    else victim.tell({ kind: "full-disk", full: true });
    await scene.wait(forMs);
    if (volume.mounted) volume.drain();
    else victim.tell({ kind: "full-disk", full: false });
    const exit = victim.running ? undefined : await victim.exited();
    if (exit !== undefined) {
      scene.findings.count("members stopped by a full disk");
      if (!really || exit.code !== EXIT.fatal) {
        scene.findings.violation(
          "a full disk stops a member cleanly",
          `${victim.name} ended with ${String(exit.code ?? exit.signal)}: ${victim.logTail()}`,
        );
      }
    }
    await scene.revive([victim]);
  },
};

const powerCut: Fault = {
  kind: "power-cut",
  lane: "trouble",
  weight: 8,
  about: "kill -9 of one member, and what it had not fsynced is lost, kept or torn by sector",
  run: async (scene) => {
    const victim = await scene.victim();
    if (victim === undefined) return;
    await cut(scene, [victim]);
  },
};

const powerCutAll: Fault = {
  kind: "power-cut-all",
  lane: "trouble",
  weight: 3,
  about: "the same of all members at one moment: only what was fsynced is left of the cell",
  run: async (scene) => {
    await cut(scene, await scene.everybody());
  },
};

async function cut(scene: Scene, victims: readonly TorturedMember[]): Promise<void> {
  const { dice } = scene;
  const toBarrier = dice.chance(0.7);
  // On a fast disk hardly anything is ever under way; on a slow one there is always something to lose.
  const slowMs = dice.chance(0.8) ? dice.between(20, 1_500) : 0;
  const afterMs = dice.between(slowMs, slowMs + 1_500);
  const downMs = dice.between(0, 3_000);
  for (const victim of victims) {
    scene.impair(victim);
    scene.onEnd(victim.mayDie());
  }
  const copied = new Set<TorturedMember>();
  if (toBarrier) {
    const copies = victims.map(async (victim) => {
      if (await victim.copyAtBarrier(BARRIER_MS_MAX)) copied.add(victim);
    });
    await Promise.all(copies);
  }
  for (const victim of victims) victim.tell({ kind: "slow-disk", minMs: slowMs / 2, maxMs: slowMs });
  await scene.wait(afterMs);
  const slow = slowMs > 0 ? `, while an fsync took up to ${seconds(slowMs)}` : "";
  const stores = copied.size > 0 ? `, stores of ${names([...copied])} as of their last barriers` : "";
  scene.say(`${names(victims)}${slow}${stores}`);
  await Promise.all(victims.map((victim) => victim.kill()));
  losePower(scene, victims, copied);
  await scene.wait(downMs);
  await scene.revive(victims);
}

function losePower(
  scene: Scene,
  victims: readonly TorturedMember[],
  copied: ReadonlySet<TorturedMember>,
): void {
  for (const victim of victims) {
    const lost = victim.losePower(scene.dice, { storeFromCopy: copied.has(victim) });
    scene.findings.count("unsynced sectors lost", lost.sectorsLost);
    scene.findings.count("unsynced sectors kept", lost.sectorsKept);
    scene.findings.count("unsynced directory changes lost", lost.changesLost);
    scene.findings.record({ kind: "power cut", member: victim.name, copied: copied.has(victim), ...lost });
  }
}

async function within<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

export const DISK_FAULTS: readonly Fault[] = [slowDisk, failSync, fullDisk, powerCut, powerCutAll];
