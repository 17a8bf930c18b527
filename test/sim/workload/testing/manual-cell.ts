/** A cell without consensus for the tests of the actors: a coordinator in memory behind the production door. */
import { connect, type Client } from "@lockstep/client";
import { createNativeDoor, DEFAULT_NAMESPACE, type Coordinator, type Failure } from "@lockstep/gateway";
import { MemoryCoordinator } from "../../../../gateway/src/testing/memory-coordinator.ts";
import type { ActorContext, SimClient } from "../../contract.ts";
import { createClientTransport } from "../../network/client-transport.ts";
import { SeededDice } from "../../kernel/dice.ts";
import { manualWorld, type ManualProcess, type ManualWorld } from "../../network/testing.ts";
import type { Workload, WorkloadActor } from "../workload.ts";
import { LatchedReporter } from "./latched-reporter.ts";
import { ManualTruth } from "./manual-truth.ts";

const ADDRESS = "m1:1";
const EXPIRY_MS = 100;

export interface ManualCell {
  readonly world: ManualWorld;
  readonly truth: ManualTruth;
  readonly reporter: LatchedReporter;
  readonly coordinator: MemoryCoordinator;
  readonly processes: ManualProcess[];
  stopping: boolean;
  /** @param onProcess told of the new process before it has connected */
  connect(onProcess?: (process: ManualProcess) => void): Promise<SimClient>;
  /** Lets all actors of a workload live for so long, then stops them; throws the first violation. */
  live(workload: Workload, seconds: number, everySecond?: (cell: ManualCell) => void): Promise<void>;
  /** The host dies; the actor that it was for is begun anew. */
  kill(process: ManualProcess): void;
}

/** An actor's present incarnation. */
interface Incarnation {
  readonly actor: WorkloadActor;
  process: ManualProcess | undefined;
  over: boolean;
}

/** @param wrap puts something between the door and the coordinator */
export function manualCell(
  seed: number,
  wrap = (coordinator: MemoryCoordinator): Coordinator => coordinator,
): ManualCell {
  const world = manualWorld({ delayUsMax: 20_000 }, seed);
  const reporter = new LatchedReporter();
  const truth = new ManualTruth();
  const nowMs = (): number => 1_000_000 + world.scheduler.nowUs / 1_000;
  const coordinator = new MemoryCoordinator({
    clock: { now: nowMs },
    leader: { memberId: 1, clientAddress: ADDRESS, httpAddress: "" },
  });
  followWith(coordinator, { truth, world, reporter });
  const expire = (): void => {
    coordinator.expireDue();
    world.scheduler.in(EXPIRY_MS * 1_000, expire);
  };
  expire();
  const member = world.process("m1");
  const door = createNativeDoor({ coordinator: wrap(coordinator) });
  const processes: ManualProcess[] = [];
  let living: Living | undefined;
  const cell: ManualCell = {
    ...{ world, truth, reporter, coordinator, processes },
    stopping: false,
    connect: async (onProcess) => {
      const process = world.process(`c${String(processes.length + 1)}`);
      processes.push(process);
      onProcess?.(process);
      const transport = createClientTransport(process, world.network, () => ({
        host: "m1",
        process: member,
        door,
      }));
      const client = await connect({ endpoints: [ADDRESS], transport, runtime: runtimeOf(process) });
      return { process, client };
    },
    live: async (workload, seconds, everySecond) => {
      living = new Living(cell, workload, seed);
      await living.run(seconds, everySecond);
    },
    kill: (process) => living?.kill(process),
  };
  return cell;
}

const STOPPING_SECONDS_MAX = 90;

class Living {
  readonly #cell: ManualCell;
  readonly #workload: Workload;
  readonly #incarnations: Incarnation[] = [];
  readonly #failures: unknown[] = [];
  #seed: number;

  constructor(cell: ManualCell, workload: Workload, seed: number) {
    this.#cell = cell;
    this.#workload = workload;
    this.#seed = seed * 1_000;
    for (const actor of workload.actors()) this.#begin(actor);
  }

  async run(seconds: number, everySecond: (cell: ManualCell) => void = () => undefined): Promise<void> {
    const cell = this.#cell;
    for (let second = 0; second < seconds && this.#well; second++) {
      everySecond(cell);
      await cell.world.ms(1_000);
    }
    cell.world.network.heal();
    for (const process of cell.processes) if (process.paused) process.resume();
    this.#workload.healed();
    cell.stopping = true;
    const unfinished = (): string[] =>
      this.#incarnations.filter(({ over }) => !over).map(({ actor }) => actor.name);
    for (let second = 0; second < STOPPING_SECONDS_MAX && unfinished().length > 0 && this.#well; second++) {
      await cell.world.ms(1_000);
    }
    if (cell.reporter.first !== undefined) throw new Error(cell.reporter.first);
    if (this.#failures.length > 0) throw new Error("an actor failed", { cause: this.#failures[0] });
    if (unfinished().length > 0) throw new Error(`these did not end: ${unfinished().join(", ")}`);
  }

  kill(process: ManualProcess): void {
    process.kill();
    this.#workload.processKilled(process.host);
    for (const incarnation of this.#incarnations) {
      if (incarnation.process !== process || incarnation.over) continue;
      incarnation.over = true;
      this.#begin(incarnation.actor);
    }
  }

  get #well(): boolean {
    return this.#cell.reporter.first === undefined && this.#failures.length === 0;
  }

  #begin(actor: WorkloadActor): void {
    const incarnation: Incarnation = { actor, process: undefined, over: false };
    this.#incarnations.push(incarnation);
    actor.run(this.#context(incarnation)).then(
      () => (incarnation.over = true),
      (error: unknown) => this.#failures.push(error),
    );
  }

  #context(incarnation: Incarnation): ActorContext {
    const cell = this.#cell;
    const { world, truth, reporter } = cell;
    this.#seed += 1;
    return {
      name: incarnation.actor.name,
      ...{ truth, reporter },
      dice: new SeededDice(this.#seed),
      scheduler: world.scheduler,
      connect: async () => {
        return await cell.connect((process) => (incarnation.process = process));
      },
      sleep: (ms) =>
        new Promise((resolve) => {
          if (incarnation.process === undefined) world.scheduler.in(ms * 1_000, resolve);
          else incarnation.process.after(ms, resolve);
        }),
      get stopping() {
        return cell.stopping;
      },
    };
  }
}

function followWith(
  coordinator: MemoryCoordinator,
  { truth, world, reporter }: Pick<ManualCell, "truth" | "world" | "reporter">,
): void {
  // A violation is remembered by the reporter; thrown further, it would end the coordinator's turn and the test.
  const latched = (tell: () => void): void => {
    try {
      tell();
    } catch (error) {
      if (reporter.first === undefined) throw error;
    }
  };
  const range = { key: Buffer.from([0]), rangeEnd: Buffer.alloc(0) };
  const handle = coordinator.watch(
    { namespace: DEFAULT_NAMESPACE, epoch: 0, range, returnPrevious: true },
    {
      events: (events, revision) => {
        latched(() => truth.follow(revision, events, world.scheduler.nowUs));
        return true;
      },
      progress: () => undefined,
      end: () => {
        throw new Error("the true history ended");
      },
    },
  );
  if (isFailure(handle)) throw new Error(handle.message);
  coordinator.onLeaseEnd((end) => latched(() => truth.followLease(end, world.scheduler.nowUs)));
}

function isFailure(handle: object): handle is Failure {
  return "code" in handle;
}

function runtimeOf(process: ManualProcess): Client["runtime"] {
  let drawn = 0;
  return {
    now: () => process.monotonicMs(),
    wallNow: () => process.wallMs(),
    random: () => process.dice.random(),
    uuid: () => `${process.host}-${String((drawn += 1))}`,
    schedule: (callback, delayMs) => process.after(delayMs, callback),
    afterTurn: (callback) => {
      process.deliver(0, callback);
    },
  };
}
