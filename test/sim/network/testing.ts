/** A small world for the tests of this folder: true time moved by hand, processes that can be paused and killed. */
import { SeededDice } from "../kernel/dice.ts";
import type { CoverageKey, Dice, Reporter, Scheduler, SimProcess } from "../contract.ts";
import { SimNetwork } from "./network.ts";
import { CALM_NETWORK } from "./profile.ts";
import type { NetworkProfile } from "./profile.ts";

interface Task {
  readonly dueUs: number;
  readonly number: number;
  readonly run: () => void;
}

export class ManualScheduler implements Scheduler {
  nowUs = 0;
  #number = 0;
  #tasks: Task[] = [];

  in(delayUs: number, run: () => void): () => void {
    const task = { dueUs: this.nowUs + Math.max(0, Math.ceil(delayUs)), number: this.#number++, run };
    this.#tasks.push(task);
    return () => {
      this.#tasks = this.#tasks.filter((other) => other !== task);
    };
  }

  /** Runs everything due within `forUs`; all microtasks run behind each task. */
  async pass(forUs: number): Promise<void> {
    const untilUs = this.nowUs + forUs;
    for (;;) {
      await settled();
      let next: Task | undefined;
      for (const task of this.#tasks) {
        if (task.dueUs > untilUs) continue;
        if (next === undefined || task.dueUs < next.dueUs) next = task;
      }
      if (next === undefined) break;
      const chosen = next;
      this.#tasks = this.#tasks.filter((task) => task !== chosen);
      this.nowUs = Math.max(this.nowUs, chosen.dueUs);
      chosen.run();
    }
    this.nowUs = untilUs;
  }
}

function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

export class ManualProcess implements SimProcess {
  readonly host: string;
  readonly dice: Dice = new SeededDice(7);
  alive = true;
  paused = false;
  readonly #scheduler: ManualScheduler;
  #held: (() => void)[] = [];
  readonly #onKill: (() => void)[] = [];

  constructor(scheduler: ManualScheduler, host: string) {
    this.#scheduler = scheduler;
    this.host = host;
  }

  monotonicMs(): number {
    return this.#scheduler.nowUs / 1_000;
  }

  wallMs(): number {
    return this.monotonicMs();
  }

  deliver(delayUs: number, task: () => void): () => void {
    let cancelled = false;
    const run = (): void => {
      if (this.alive && !cancelled) task();
    };
    const cancel = this.#scheduler.in(delayUs, () => {
      if (this.paused) this.#held.push(run);
      else run();
    });
    return () => {
      cancelled = true;
      cancel();
    };
  }

  after(delayMs: number, task: () => void): () => void {
    return this.deliver(delayMs * 1_000, task);
  }

  onKill(listener: () => void): void {
    this.#onKill.push(listener);
  }

  kill(): void {
    this.alive = false;
    for (const listener of this.#onKill) listener();
  }

  resume(): void {
    this.paused = false;
    const held = this.#held;
    this.#held = [];
    for (const run of held) this.#scheduler.in(0, run);
  }
}

export class ManualReporter implements Reporter {
  readonly counts: Map<CoverageKey, number> = new Map();
  readonly lines: string[] = [];

  violation(law: string, text: string): never {
    throw new Error(`${law}: ${text}`);
  }

  count(what: CoverageKey, by = 1): void {
    this.counts.set(what, this.counted(what) + by);
  }

  counted(what: CoverageKey): number {
    return this.counts.get(what) ?? 0;
  }

  trace(source: string, text: () => string): void {
    this.lines.push(`${source} ${text()}`);
  }
}

export interface ManualWorld {
  readonly scheduler: ManualScheduler;
  readonly reporter: ManualReporter;
  readonly network: SimNetwork;
  readonly process: (host: string) => ManualProcess;
  /** Lets true time pass. */
  readonly ms: (duration: number) => Promise<void>;
}

export function manualWorld(profile: Partial<NetworkProfile> = {}, seed = 1): ManualWorld {
  const scheduler = new ManualScheduler();
  const reporter = new ManualReporter();
  const network = new SimNetwork({
    ...{ scheduler, reporter },
    dice: new SeededDice(seed),
    profile: { ...CALM_NETWORK, ...profile },
  });
  return {
    ...{ scheduler, reporter, network },
    process: (host: string): ManualProcess => new ManualProcess(scheduler, host),
    ms: (duration: number): Promise<void> => scheduler.pass(duration * 1_000),
  };
}
