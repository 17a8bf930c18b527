/** Everything about a history that is drawn before it begins: a function of the seed. */
import { ADMISSION_DEFAULTS } from "../../cell/src/admission/admission.ts";
import { MEMBER_DEFAULTS } from "../../cell/src/member/options.ts";
import type { MemberOptions } from "../../cell/src/member/options.ts";
import type { Dice } from "./contract.ts";
import { SeededDice } from "./kernel/dice.ts";
import type { DiskSpeed } from "./member/disk-faults.ts";
import { drawNetworkProfile } from "./network/profile.ts";
import type { NetworkProfile } from "./network/profile.ts";
import { drawWorkloadPlan } from "./workload/plan.ts";
import type { WorkloadPlan } from "./workload/plan.ts";

/** One history in so many lives through at least {@link LONG_SECONDS} of simulated time. */
export const LONG_EVERY = 20;
export const LONG_SECONDS = 600;

/** What the nemesis may do to the cell; the number in a plan is how often, relative to the others. */
export const CELL_FAULTS = [
  "kill",
  "power-cut",
  "power-cut-everywhere",
  "restart",
  "pause",
  "pause-leader",
  "partition",
  "one-way",
  "isolate-leader",
  "network",
  "slow-disk",
  "failed-sync",
  "low-space",
  "full-disk",
  "wipe",
  "flip-middle",
  "flip-tail",
  "wall-jump",
  "transfer",
  "add-member",
  "remove-member",
  "replace-member",
] as const;
/** And to its clients, on a clock of its own. */
export const CLIENT_FAULTS = ["pause-client", "kill-client", "cut-client", "squeeze-client"] as const;
export type ClientFault = (typeof CLIENT_FAULTS)[number];
export const FAULTS: readonly [...typeof CELL_FAULTS, ...typeof CLIENT_FAULTS] = [
  ...CELL_FAULTS,
  ...CLIENT_FAULTS,
];
export type Fault = (typeof FAULTS)[number];

export interface Plan {
  readonly seed: number;
  readonly long: boolean;
  /** 0: a calm world, 1: as bad as it gets. */
  readonly wildness: number;
  readonly voters: number;
  /** True time with faults and work. */
  readonly workSeconds: number;
  readonly network: NetworkProfile;
  readonly disk: DiskSpeed;
  /** How far a clock's rate may be off, as a fraction. */
  readonly driftMax: number;
  readonly wallOffsetMsMax: number;
  /** Mean true time between two faults. */
  readonly faultEverySeconds: number;
  readonly faults: Readonly<Record<Fault, number>>;
  readonly member: Omit<MemberOptions, "directory" | "name" | "origin" | "listen" | "advertise" | "version">;
  readonly workload: WorkloadPlan;
}

export function drawPlan(seed: number): Plan {
  const dice = new SeededDice(seed, "plan");
  const long = seed % LONG_EVERY === 0;
  const wildness = dice.pick([0, 0.1, 0.3, 0.6, 1]);
  return {
    seed,
    long,
    wildness,
    voters: dice.pick([1, 3, 3, 3, 3, 3, 3, 5]),
    workSeconds: long ? LONG_SECONDS : dice.between(8, 30),
    network: drawNetworkProfile(dice.fork("network"), wildness),
    disk: drawDiskSpeed(dice),
    driftMax: dice.pick([0, 0.000_1, 0.002]),
    wallOffsetMsMax: dice.pick([0, 50, 5_000, 300_000]),
    faultEverySeconds: drawFaultPause(dice, wildness) * (long ? 3 : 1),
    faults: drawFaults(dice.fork("faults")),
    member: drawMember(dice.fork("member"), long),
    workload: drawWorkloadPlan(dice.fork("workload"), long ? 0.2 : 1),
  };
}

function drawDiskSpeed(dice: Dice): DiskSpeed {
  const latencyUsMin = dice.between(20, 1_000);
  return { latencyUsMin, latencyUsMax: latencyUsMin + dice.between(0, dice.pick([1_000, 20_000])) };
}

function drawFaultPause(dice: Dice, wildness: number): number {
  return wildness < 0.3 ? 6 : dice.pick([0.7, 1.5, 3, 6]);
}

/** Each kind of fault is absent from some histories and frequent in others. */
function drawFaults(dice: Dice): Record<Fault, number> {
  const weights = FAULTS.map((fault) => [fault, dice.chance(0.3) ? 0 : dice.between(1, 4)] as const);
  return Object.fromEntries(weights) as Record<Fault, number>;
}

/** @param long idle time is skipped from tick to tick: a long history gets few of them */
function drawMember(dice: Dice, long: boolean): Plan["member"] {
  return {
    ...MEMBER_DEFAULTS,
    tickMs: dice.pick(long ? [100] : [50, 50, 100]),
    electionTimeoutTicks: dice.pick([10, 10, 20]),
    heartbeatTicks: dice.pick(long ? [2] : [1, 2]),
    admission: { ...ADMISSION_DEFAULTS, commandsPendingMax: dice.pick([20, 1_000, 50_000]) },
    reserveBytes: 4 * 1024 * 1024,
    retention: dice.chance(0.5) ? undefined : { revisions: dice.pick([10, 100]) },
    retentionIntervalMs: 2_000,
    logKeepBytes: dice.pick([256, 256, 4_096, 1_048_576]),
    segmentBytes: dice.pick([8_192, 32_768, 262_144]),
    watchRingBytes: dice.pick([512, 16_384, 1_048_576]),
    watchPendingBytesMax: dice.pick([2_048, 65_536, 1_048_576]),
    checkpointIntervalMs: dice.pick([500, 2_000, 300_000]),
  };
}

/** The fault configuration as one line. */
export function describePlan(plan: Plan): string {
  const faults = FAULTS.filter((fault) => plan.faults[fault] > 0).join(" ");
  const { network, member } = plan;
  return [
    `voters ${String(plan.voters)}, ${String(plan.workSeconds)} s, wildness ${String(plan.wildness)}`,
    `loss ${percent(network.loss)} doubled ${percent(network.duplication)} overtaken ${percent(network.reordering)}`,
    `drift ${percent(plan.driftMax)}, log kept ${String(member.logKeepBytes)} B, tick ${String(member.tickMs)} ms`,
    `a fault every ${plan.faultEverySeconds.toFixed(1)} s: ${faults}`,
  ].join("; ");
}

function percent(share: number): string {
  return `${(share * 100).toFixed(2)}%`;
}
