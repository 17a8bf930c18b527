import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { openSync, closeSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Dice } from "../dice.ts";
import { isOver, pause } from "./actor.ts";
import type { Stage } from "./actor.ts";
import type { GuardedRegister, Handover } from "./guard.ts";

const MAIN = new URL("lock-worker-main.ts", import.meta.url).pathname;
const LOCK = "guarded";
const WORKERS = 3;
const TTL_MS = 2_000;
/** A pause beyond the lease leaves the sleeper with a lock that has passed on. */
const SLEEP_MS_MIN = 1_000;
const SLEEP_MS_MAX = 6_000;

/** Workers in processes of their own under one lock; each is stopped now and then, also beyond its lease. */
export class LockWorkers {
  readonly #stage: Stage;
  readonly #register: GuardedRegister;
  readonly #log: string;
  readonly #env: NodeJS.ProcessEnv;
  readonly #children = new Set<ChildProcess>();
  #count = 0;

  constructor(stage: Stage, register: GuardedRegister, scratch: string) {
    this.#stage = stage;
    this.#register = register;
    this.#log = join(scratch, "lock-workers.log");
    this.#env = { ...process.env, NODE_COMPILE_CACHE: join(scratch, "compiled") };
  }

  async run(): Promise<void> {
    const slots = Array.from({ length: WORKERS }, (_, n) =>
      this.#keepOne(this.#stage.dice.fork(`lock worker ${String(n)}`)),
    );
    await Promise.all(slots);
  }

  /** Whatever happened: no process stays. */
  killAll(): void {
    for (const child of this.#children) {
      child.kill("SIGCONT");
      child.kill("SIGKILL");
    }
  }

  /** A worker lives for some stops, then another one with fresh addresses follows. */
  async #keepOne(dice: Dice): Promise<void> {
    const { stopping, findings } = this.#stage;
    while (!stopping.aborted) {
      const child = this.#spawn();
      const stops = dice.between(3, 8);
      for (let stop = 0; stop < stops && !isOver(stopping) && child.exitCode === null; stop += 1) {
        await pause(stopping, 500 + dice.exponential(4_000));
        if (!child.kill("SIGSTOP")) break;
        findings.count("lock workers stopped");
        await pause(stopping, dice.between(SLEEP_MS_MIN, SLEEP_MS_MAX));
        child.kill("SIGCONT");
        // Time for the late write.
        await pause(stopping, 300);
      }
      // Half of them end as a crash would, and leave their lock to the lease.
      await end(child, dice.chance(0.5) ? "SIGKILL" : "stdin");
    }
  }

  #spawn(): ChildProcess {
    this.#count += 1;
    const worker = `w${String(this.#count)}`;
    const log = openSync(this.#log, "a");
    const args = [
      MAIN,
      worker,
      LOCK,
      String(this.#register.port),
      String(TTL_MS),
      ...this.#stage.endpoints(),
    ];
    const child: ChildProcess = spawn(process.execPath, args, {
      stdio: ["pipe", "pipe", log],
      env: this.#env,
    });
    closeSync(log);
    this.#children.add(child);
    child.once("exit", () => this.#children.delete(child));
    child.stdin?.on("error", () => undefined);
    const { stdout } = child;
    if (stdout === null) throw new TypeError("the worker's output is piped");
    createInterface({ input: stdout }).on("line", (line) => {
      const handover = JSON.parse(line) as Handover;
      this.#register.handover(handover);
      this.#stage.findings.record({ kind: "lock", handover });
      this.#stage.findings.count(`locks ${handover.what}`);
    });
    return child;
  }
}

async function end(child: ChildProcess, how: "SIGKILL" | "stdin"): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  // "close", not "exit": its last lines count.
  const closed = new Promise((resolve) => child.once("close", resolve));
  if (how === "SIGKILL") child.kill("SIGKILL");
  else child.stdin?.end();
  const deadline = setTimeout(() => child.kill("SIGKILL"), 3_000);
  await closed;
  clearTimeout(deadline);
}
