// What happens to the cell meanwhile. One at a time: a majority is always there.
import type { MemberProcess, TestCell } from "../support/cell.ts";
import type { Dice } from "../torture/dice.ts";
import type { ShiftedClocks } from "../support/clocks/shifted-clocks.ts";

export interface CellScene {
  readonly cell: TestCell;
  readonly dice: Dice;
  readonly wait: (ms: number) => Promise<void>;
  readonly clocksOf: (member: MemberProcess) => ShiftedClocks | undefined;
}

export interface CellFault {
  readonly kind: string;
  readonly weight: number;
  readonly about: string;
  readonly needsClocks?: boolean;
  readonly run: (scene: CellScene) => Promise<string>;
}

const HOUR_MS = 3_600_000;

export const CELL_FAULTS: readonly CellFault[] = [
  {
    kind: "leader killed",
    weight: 4,
    about: "kill -9, started again after a while",
    run: async ({ cell, dice, wait }) => {
      const leader = await cell.leader();
      await leader.kill();
      await wait(dice.between(500, 3_000));
      leader.start();
      return `${leader.name} was killed`;
    },
  },
  {
    kind: "leader stopped",
    weight: 3,
    about: "SIGSTOP, and SIGCONT after a while",
    run: async ({ cell, dice, wait }) => {
      const leader = await cell.leader();
      const ms = dice.between(300, 6_000);
      leader.signal("SIGSTOP");
      await wait(ms);
      leader.signal("SIGCONT");
      return `${leader.name} stood still for ${String(ms)} ms`;
    },
  },
  {
    kind: "leader suspended",
    weight: 2,
    about: "as its machine sleeps: its monotonic clock stands still, too",
    needsClocks: true,
    run: async ({ cell, dice, wait, clocksOf }) => {
      const leader = await cell.leader();
      const ms = dice.between(300, 6_000);
      const started = performance.now();
      leader.signal("SIGSTOP");
      await wait(ms);
      clocksOf(leader)?.lose(performance.now() - started);
      leader.signal("SIGCONT");
      return `${leader.name} was suspended for ${String(ms)} ms`;
    },
  },
  {
    kind: "leader cut off",
    weight: 3,
    about: "from the other members; clients still reach it",
    run: async ({ cell, dice, wait }) => {
      const leader = await cell.leader();
      const ms = dice.between(1_000, 6_000);
      await cell.isolate(leader.name);
      await wait(ms);
      cell.heal();
      return `${leader.name} was cut off for ${String(ms)} ms`;
    },
  },
  {
    kind: "member's clock",
    weight: 2,
    about: "a member's wall clock jumps, by up to an hour, forward or back",
    needsClocks: true,
    run: ({ cell, dice, clocksOf }) => {
      const member = dice.pick(cell.members);
      const ms = dice.between(1_000, HOUR_MS) * (dice.chance(0.5) ? 1 : -1);
      clocksOf(member)?.jump(ms);
      return Promise.resolve(`${member.name}'s wall clock jumped by ${String(ms)} ms`);
    },
  },
];
