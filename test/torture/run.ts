import { connect, LockstepError } from "@lockstep/client";
import type { Client } from "@lockstep/client";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { History } from "../linearizability/history.ts";
import { until } from "../support/until.ts";
import { TorturedCell } from "./cell/cell.ts";
import type { TorturedMember } from "./cell/member.ts";
import { destroyVolumes } from "./cell/volume.ts";
import type { Mounting } from "./cell/volume.ts";
import { Dice } from "./dice.ts";
import { Findings } from "./findings.ts";
import { Judge } from "./judge.ts";
import { createScratch, disown, removeLeftovers } from "./leftovers.ts";
import { Nemesis } from "./nemesis/nemesis.ts";
import { interrupted, pause, Values } from "./workload/actor.ts";
import type { Stage } from "./workload/actor.ts";
import { GuardedRegister } from "./workload/guard.ts";
import { Ledger } from "./workload/ledger.ts";
import { LockWorkers } from "./workload/locks.ts";
import { tortureRegisters } from "./workload/registers.ts";
import { tortureSessions } from "./workload/sessions.ts";
import { tortureUniqueKeys } from "./workload/unique-keys.ts";
import { createWatchers } from "./workload/watchers.ts";
import type { Watcher } from "./workload/watchers.ts";

export interface TortureOptions {
  readonly seed: number;
  readonly forMs: number;
  /** Kinds of faults that may happen. */
  readonly kinds: ReadonlySet<string>;
  readonly mounting: Mounting;
  /** Disks lie about what is durable: a torture with power cuts must fail then, which shows that they bite. */
  readonly lyingDisks?: boolean;
  /** Ends as soon as one law is broken; nothing else is judged then. */
  readonly endAtFirstViolation?: boolean;
  readonly print: (line: string) => void;
  /** Fires when the torture is to end at once, without a verdict. */
  readonly interrupt: AbortSignal;
}

export interface Verdict {
  readonly passed: boolean;
  /** The summary, for people. */
  readonly lines: readonly string[];
  readonly counts: ReadonlyMap<string, number>;
  /** Where everything was kept; absent: it passed, and nothing is left. */
  readonly folder?: string;
}

const LAST_FAULTS_MS_MAX = 240_000;
const HEAL_MS_MAX = 90_000;
const REST_MS_MAX = 90_000;

/** Starts a cell, tortures it, lets it heal, and judges what was seen. */
export async function torture(options: TortureOptions): Promise<Verdict> {
  removeLeftovers();
  const scratch = createScratch(options.seed);
  const findings = new Findings(scratch, options.print);
  const run = new Torture(options, scratch, findings);
  const onExit = (): void => destroyVolumes();
  process.once("exit", onExit);
  try {
    const early = options.endAtFirstViolation === true ? [firstViolation(findings)] : [];
    await Promise.race([run.run(), interrupted(options.interrupt), ...early]);
  } catch (error) {
    if (!options.interrupt.aborted && !(error instanceof Broken)) {
      findings.violation(
        "the torture runs",
        error instanceof Error ? (error.stack ?? error.message) : String(error),
      );
    }
  }
  const passed = findings.violations.size === 0 && !options.interrupt.aborted;
  await run.close({ keepEvidence: !passed && !options.interrupt.aborted });
  await findings.close();
  process.off("exit", onExit);
  const keep = !passed && !options.interrupt.aborted;
  if (keep) disown(scratch);
  else rmSync(scratch, { recursive: true, force: true });
  return {
    passed,
    lines: run.summary(),
    counts: findings.counts,
    ...(keep ? { folder: scratch } : {}),
  };
}

/** A law was broken, and that is all that was to be known. */
class Broken extends Error {
  override readonly name = "Broken";
}

function firstViolation(findings: Findings): Promise<never> {
  return new Promise((_, reject) => findings.listen((law) => reject(new Broken(law))));
}

class Torture {
  readonly #options: TortureOptions;
  readonly #scratch: string;
  readonly #findings: Findings;
  readonly #dice: Dice;
  readonly #ledger = new Ledger();
  readonly #registers = new History();
  readonly #values = new Values();
  readonly #faultsEnd = new AbortController();
  readonly #writersEnd = new AbortController();
  readonly #watchersEnd = new AbortController();
  #cell: TorturedCell | undefined;
  #guard: GuardedRegister | undefined;
  #workers: LockWorkers | undefined;
  readonly #judge: Judge;
  #closing = false;

  constructor(options: TortureOptions, scratch: string, findings: Findings) {
    this.#options = options;
    this.#scratch = scratch;
    this.#findings = findings;
    this.#dice = new Dice(`torture ${String(options.seed)}`);
    this.#judge = new Judge({
      findings,
      scratch,
      ledger: this.#ledger,
      registers: this.#registers,
      forMs: options.forMs,
    });
  }

  /** Until the verdict. What can be judged without a cell is judged also when the cell does not get that far. */
  async run(): Promise<void> {
    try {
      await this.#run();
    } catch (error) {
      if (!this.#closing) this.#judge.checkRegisters();
      throw error;
    }
  }

  async #run(): Promise<void> {
    const cell = new TorturedCell({
      scratch: this.#scratch,
      mounting: this.#options.mounting,
      lyingDisks: this.#options.lyingDisks ?? false,
      onDeath: (member, { code, signal }) => this.#onDeath(member, String(code ?? signal)),
    });
    this.#cell = cell;
    await cell.begin();
    this.#findings.say(
      `a cell of three serves; ${(this.#options.forMs / 1000).toFixed(0)} s of torture begin`,
    );
    const guard = await GuardedRegister.start(this.#findings);
    this.#guard = guard;
    const stage = this.#stage(cell, this.#writersEnd.signal);
    const watchers = createWatchers(this.#stage(cell, this.#watchersEnd.signal));
    this.#workers = new LockWorkers(stage, guard, this.#scratch);
    cell.health.begin();
    const writing = Promise.all([
      tortureRegisters(stage, this.#values, this.#registers),
      tortureUniqueKeys(stage, this.#values),
      tortureSessions(stage),
      this.#workers.run(),
    ]);
    const watching = Promise.all(watchers.map((watcher) => watcher.run()));
    // Whoever fails first ends the torture; the others' failures are not lost for that.
    const broken = Promise.all([writing, watching]).then(() => undefined);
    await Promise.race([broken, this.#hurt(cell)]);
    await this.#heal(cell);
    this.#writersEnd.abort();
    await writing;
    const upTo = await this.#rest(cell, watchers);
    this.#watchersEnd.abort();
    await watching;
    await this.#judge.judge({ cell, watchers, guard, upTo });
  }

  /** Ends everything that it began, wherever it stands. */
  async close(options: { readonly keepEvidence: boolean }): Promise<void> {
    this.#closing = true;
    for (const end of [this.#faultsEnd, this.#writersEnd, this.#watchersEnd]) end.abort();
    this.#workers?.killAll();
    this.#guard?.close();
    await this.#cell?.stop(options);
    if (options.keepEvidence) {
      writeFileSync(join(this.#scratch, "registers.jsonl"), this.#registers.toJsonLines());
      writeFileSync(join(this.#scratch, "revisions.jsonl"), this.#judge.history?.toJsonLines() ?? "");
    }
    destroyVolumes();
  }

  summary(): string[] {
    const { counts, violations } = this.#findings;
    const group = (prefix: string): string =>
      [...counts]
        .filter(([what]) => what.startsWith(prefix))
        .map(([what, count]) => `${what.slice(prefix.length)} ${String(count)}`)
        .join(", ") || "none";
    const others = [...counts].filter(
      ([what]) => !what.startsWith("fault: ") && !what.startsWith("verdict: "),
    );
    const { longestGapMs = 0, longestGapEndedAt = 0 } = this.#cell?.health ?? {};
    const gap = `${(longestGapMs / 1000).toFixed(1)} s, until ${(this.#findings.elapsedAt(longestGapEndedAt) / 1000).toFixed(1)} s`;
    return [
      `faults: ${group("fault: ")}`,
      `writes acknowledged ${String(this.#ledger.acknowledgedCount)}, not applied ${String(this.#ledger.refusedCount)}, unknown ${String(this.#ledger.unknownCount)}; values read and compared ${String(this.#ledger.seenCount)}`,
      ...others.map(([what, count]) => `${what}: ${String(count)}`),
      `longest time without a write while a majority was well: ${gap}`,
      `guarded register: ${String(this.#guard?.accepted ?? 0)} writes accepted, ${String(this.#guard?.staleRefused ?? 0)} stale ones refused; its twin without a guard let ${String(this.#guard?.staleWithoutGuard ?? 0)} stale ones through`,
      ...[...counts].filter(([what]) => what.startsWith("verdict: ")).map(([what]) => `✓ ${what.slice(9)}`),
      ...[...violations].map(([law, count]) => `✗ ${law}: ${String(count)} violations`),
    ];
  }

  #stage(cell: TorturedCell, stopping: AbortSignal): Stage {
    return {
      findings: this.#findings,
      ledger: this.#ledger,
      dice: this.#dice.fork("workload"),
      endpoints: () => cell.endpoints,
      stopping,
      onWrite: () => cell.health.acknowledged(),
    };
  }

  #onDeath(member: TorturedMember, how: string): void {
    if (this.#closing) return;
    this.#findings.violation(
      "no member dies by itself",
      `${member.name} ended with ${how}:\n${member.logTail()}`,
    );
  }

  async #hurt(cell: TorturedCell): Promise<void> {
    const { kinds, forMs } = this.#options;
    const nemesis = new Nemesis({ cell, dice: this.#dice.fork("nemesis"), findings: this.#findings, kinds });
    const ended = nemesis.run(this.#faultsEnd.signal);
    await Promise.race([ended, pause(this.#faultsEnd.signal, forMs)]);
    if (!this.#closing) this.#findings.say("no new faults; those under way are undone");
    this.#faultsEnd.abort();
    await bounded(ended, LAST_FAULTS_MS_MAX, "the last faults come to their end");
  }

  /** Everybody is up, and the cell takes writes. */
  async #heal(cell: TorturedCell): Promise<void> {
    for (const member of cell.members) {
      member.signal("SIGCONT");
      member.volume.drain();
      member.start();
    }
    for (const member of cell.members) await member.untilServing(HEAL_MS_MAX);
    await cell.leader(HEAL_MS_MAX);
    const client = await connect({ endpoints: cell.endpoints, connectTimeoutMs: HEAL_MS_MAX });
    await until("the cell takes writes", () => takesWrites(client), HEAL_MS_MAX);
    client.close();
    this.#findings.say("healed: all members serve, and the cell takes writes");
  }

  /** Nobody writes, no session is left, everybody has seen everything. @returns the last revision */
  async #rest(cell: TorturedCell, watchers: readonly Watcher[]): Promise<number> {
    const client = await connect({ endpoints: cell.endpoints, connectTimeoutMs: HEAL_MS_MAX });
    try {
      const writersEndedAt = performance.now();
      await until(
        "no lease is left",
        async () => ((await client.leaseList()).leases.length === 0 ? true : undefined),
        REST_MS_MAX,
      );
      this.#judge.pass("no orphaned sessions");
      const seconds = ((performance.now() - writersEndedAt) / 1000).toFixed(1);
      this.#findings.say(`at rest: the last session ended ${seconds} s after the last writer`);
      const value = this.#values.next("end");
      const { revision } = await client.put("/register/end", value, { deadlineMs: 30_000 });
      this.#ledger.acknowledged("/register/end", value, revision);
      await until(
        `all watchers have seen revision ${String(revision)}`,
        () => {
          const behind = watchers.filter(({ upTo }) => upTo < revision);
          if (behind.length === 0) return true;
          throw new Error(
            behind.map(({ manner, upTo }) => `${manner.name} is at ${String(upTo)}`).join(", "),
          );
        },
        REST_MS_MAX,
      );
      return revision;
    } finally {
      client.close();
    }
  }
}

/** A volume that was full a moment ago is noticed to have room again within seconds. */
async function takesWrites(client: Client): Promise<true | undefined> {
  try {
    await client.put("/healed", "yes");
    return true;
  } catch (error) {
    if (error instanceof LockstepError && error.code === "no-space") return undefined;
    throw error;
  }
}

async function bounded(promise: Promise<void>, ms: number, what: string): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${String(ms / 1000)} s: ${what}`)), ms);
  });
  try {
    await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
