/**
 * A history of one cell: an operator (or two) in a world that fails, then a world that does not. One seed, one history.
 */
import { COORDINATION_CELL } from "../api/kinds.ts";
import { API_VERSION } from "../api/types.ts";
import type { CoordinationCell, CoordinationCellSpec } from "../api/types.ts";
import type { Write } from "./apiserver.ts";
import { Cluster } from "./cluster.ts";
import { Dice } from "./dice.ts";
import { Laws } from "./laws.ts";
import { Nemesis } from "./nemesis.ts";
import { startOperator } from "./one-pass.ts";
import type { OperatorProcess } from "./one-pass.ts";
import { Crash } from "./ports.ts";
import type { CallFault, Gate } from "./ports.ts";
import { endStateOf } from "./end-state.ts";

export const CELL_REF: { readonly namespace: string; readonly name: string } = {
  namespace: "default",
  name: "cell",
};

export interface SimulationOptions {
  readonly seed: number;
  /** Told of every line of the history. */
  readonly trace?: (line: string) => void;
  /** Simulated seconds of faults; 0: none. Default 200. */
  readonly chaosSeconds?: number;
  readonly voters?: 1 | 3 | 5;
  /** Starts an operator; another than the production one is there to see that the laws catch it. */
  readonly start?: (cluster: Cluster, gate: Gate) => OperatorProcess;
}

export interface SimulationResult {
  readonly seed: number;
  /** Empty: all laws held. */
  readonly broken: readonly string[];
  readonly counts: ReadonlyMap<string, number>;
  /** Simulated time from the last fault until the end state; undefined: it was not reached. */
  readonly convergedMs: number | undefined;
  readonly passes: number;
}

interface Seat {
  operator: OperatorProcess;
  running: boolean;
  /** Calls that go on later. */
  parked: (() => void)[];
  nextMs: number;
  readonly gate: Gate;
}

const ZONES = ["a", "a", "a", "b", "b", "c", "c"];
const CONVERGE_MS = 4 * 60 * 60_000;
const CONVERGE_PASSES = 3_000;
const IDLE_STEP_MS = 30_000;

export class Simulation {
  readonly dice: Dice;
  readonly cluster: Cluster;
  readonly laws: Laws;
  readonly counts: Map<string, number> = new Map();
  readonly trace: (line: string) => void;
  readonly #options: SimulationOptions;
  readonly #seats: Seat[] = [];
  readonly nemesis: Nemesis;
  /** Chance of a fault per call. */
  faultRate = 0;
  isStale = false;
  passes = 0;

  constructor(options: SimulationOptions) {
    this.#options = options;
    this.dice = new Dice(options.seed);
    this.trace = (line) => options.trace?.(`${this.#clock()} ${line}`);
    this.laws = new Laws(() => this.cluster);
    this.cluster = new Cluster({
      dice: this.dice,
      zones: ZONES,
      localVolumes: this.dice.chance(0.6),
      violate: (law) => this.laws.break(`${this.#clock()} ${law}`),
      decided: this.laws.decided,
    });
    this.cluster.api.onWrite((write) => {
      const name = write.after?.metadata.name ?? write.before?.metadata.name ?? "";
      const isStory = this.laws.isOperator || (write.verb === "gone" && write.kind !== "PersistentVolume");
      if (isStory && !(write.verb === "status" && write.kind === "CellMember")) {
        this.trace(
          `${this.laws.isOperator ? "operator" : "world"}: ${write.verb} ${write.kind} ${name}${this.#detail(write.after)}`,
        );
      }
      if (this.laws.isOperator) this.count(`write ${write.verb} ${write.kind}`);
      this.#countOperation(write);
      this.laws.observe(write);
    });
    this.nemesis = new Nemesis(this);
  }

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  async run(): Promise<SimulationResult> {
    const { chaosSeconds = 200, voters } = this.#options;
    this.cluster.api.create(
      COORDINATION_CELL,
      newCell(voters ?? this.dice.pick([1, 3, 3, 3, 5] as const), this.dice),
    );
    this.#addSeat();
    const chaosMs = this.cluster.nowMs + chaosSeconds * 1_000;
    while (this.cluster.nowMs < chaosMs && this.laws.broken.length === 0) {
      this.nemesis.act();
      await this.#step(1_000);
    }
    this.nemesis.calm();
    const convergedMs = await this.#converge();
    return {
      seed: this.#options.seed,
      broken: this.laws.broken,
      counts: this.counts,
      convergedMs,
      passes: this.passes,
    };
  }

  /** A second operator that believes to hold the lease too. */
  setOperators(count: number): void {
    while (this.#seats.length < count) this.#addSeat();
    while (this.#seats.length > count) {
      const seat = this.#seats.pop();
      seat?.parked.forEach((resume) => resume());
    }
  }

  /** No pass is under way. */
  get isQuiet(): boolean {
    return this.#seats.every(({ running }) => !running);
  }

  get operators(): number {
    return this.#seats.length;
  }

  #countOperation({ before, after }: Write): void {
    const idOf = (object: unknown): string | undefined =>
      (object as CoordinationCell | undefined)?.status?.operation?.id;
    const operation = (after as CoordinationCell | undefined)?.status?.operation;
    if (after?.kind !== "CoordinationCell" || operation === undefined || operation.id === idOf(before))
      return;
    this.count(`operation ${operation.kind}`);
  }

  async #converge(): Promise<number | undefined> {
    const from = this.cluster.nowMs;
    const passesBefore = this.passes;
    let steady = 0;
    let idleSteps = 0;
    let lastActs = 0;
    while (this.laws.broken.length === 0) {
      const before = this.cluster.nowMs;
      const wrong = endStateOf(this.cluster, CELL_REF);
      steady = wrong.length === 0 ? steady + 1 : 0;
      if (steady >= 5) return before - from;
      if (before - from > CONVERGE_MS || this.passes - passesBefore > CONVERGE_PASSES) {
        this.laws.break(`${this.#clock()} it does not converge: ${wrong.join("; ")}`);
        return undefined;
      }
      // Nothing is done for a while: something is waited for, and the clock may go faster.
      await this.#step(idleSteps > 30 ? IDLE_STEP_MS : 1_000);
      const acts = this.counts.get("operator acts") ?? 0;
      idleSteps = acts === lastActs ? idleSteps + 1 : 0;
      lastActs = acts;
    }
    return undefined;
  }

  #addSeat(): void {
    const seat: Seat = {
      operator: { pass: () => Promise.resolve({ lookAgainMs: undefined }) },
      running: false,
      parked: [],
      nextMs: 0,
      gate: {
        fault: (call, isWrite) => this.#faultOf(call, isWrite),
        park: () => new Promise((resolve) => seat.parked.push(resolve)),
        lagMs: () => (this.isStale && this.dice.chance(0.5) ? this.dice.between(500, 5_000) : 0),
      },
    };
    seat.operator = this.#start(seat);
    this.#seats.push(seat);
  }

  #start(seat: Seat): OperatorProcess {
    return (this.#options.start ?? startOperator)(this.cluster, seat.gate);
  }

  #faultOf(call: string, isWrite: boolean): CallFault {
    this.laws.isOperator = true;
    if (this.dice.chance(this.operators > 1 ? 0.1 : this.faultRate)) {
      this.count("fault slow");
      return "slow";
    }
    if (!this.dice.chance(this.faultRate)) return "none";
    const kinds: readonly CallFault[] = isWrite
      ? ["conflict", "throttled", "unavailable", "unknown", "crash-before", "crash-after"]
      : ["throttled", "unavailable", "crash-before"];
    const fault = this.dice.pick(kinds);
    this.count(`fault ${fault}`);
    this.trace(`fault: ${fault} at ${call}`);
    return fault;
  }

  /** One step of the world, then of everybody who can go on. */
  async #step(elapsedMs: number): Promise<void> {
    this.laws.isOperator = false;
    this.cluster.tick(elapsedMs);
    this.laws.look();
    for (const seat of [...this.#seats]) {
      if (seat.parked.length > 0 && this.dice.chance(0.4)) {
        for (const resume of seat.parked.splice(0)) resume();
      } else if (!seat.running && seat.nextMs <= this.cluster.nowMs) this.#pass(seat);
      this.laws.isOperator = true;
      await new Promise((resolve) => setImmediate(resolve));
      this.laws.isOperator = false;
    }
  }

  #pass(seat: Seat): void {
    seat.running = true;
    this.passes += 1;
    this.laws.isOperator = true;
    seat.operator
      .pass(CELL_REF)
      .then((result) => {
        seat.nextMs = this.cluster.nowMs + Math.min(result.lookAgainMs ?? 5_000, 5_000);
        if (result.lookAgainMs === 200) this.count("operator acts");
      })
      .catch((error: unknown) => {
        seat.nextMs = this.cluster.nowMs + 1_000;
        if (error instanceof Crash) {
          seat.operator = this.#start(seat);
          seat.nextMs += 2_000;
        } else if (error instanceof TypeError || error instanceof RangeError) {
          this.laws.break(`the operator throws ${error.stack ?? error.message}`);
        }
      })
      .finally(() => {
        seat.running = false;
      });
  }

  #clock(): string {
    return new Date(this.cluster.nowMs).toISOString().slice(11, 19);
  }

  #detail(after: unknown): string {
    const cell = after as CoordinationCell | undefined;
    if (cell?.kind !== "CoordinationCell") return "";
    const { operation, phase } = cell.status ?? {};
    const ready = cell.status?.conditions?.find(({ type }) => type === "Ready");
    return ` ${phase ?? ""} ${operation === undefined ? "" : `${operation.kind}/${operation.step}: ${operation.message}`} | ${ready?.message ?? ""}`;
  }
}

function newCell(voters: 1 | 3 | 5, dice: Dice): CoordinationCell {
  const spec: CoordinationCellSpec = {
    voters,
    image: "v1",
    storage: { size: "1Gi", reclaimPolicy: dice.chance(0.5) ? "Retain" : "Delete" },
    topology: { zoneKey: "topology.kubernetes.io/zone", hostSpread: "Required" },
    tls: { mode: "Managed", leafDuration: "2160h", clientOverlap: "5m" },
    updatePolicy: { mode: "Rolling", minReadySeconds: 2 },
    replacementPolicy: { mode: "AfterLoss", after: "60s", slowDisk: dice.chance(0.5) ? "Replace" : "Report" },
  };
  return { apiVersion: API_VERSION, kind: "CoordinationCell", metadata: { ...CELL_REF }, spec };
}
