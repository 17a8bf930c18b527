import { connect } from "@lockstep/client";
import type { Client } from "@lockstep/client";
import { installSql } from "@lockstep/client/guards/postgres";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CommitOrder, PostgresServer } from "../guards/support/postgres-server.ts";
import { TestCell } from "../support/cell.ts";
import { until } from "../support/until.ts";
import { Dice } from "../torture/dice.ts";
import { Findings } from "../torture/findings.ts";
import { interrupted, isOver, pause } from "../torture/workload/actor.ts";
import { Cages } from "./cages.ts";
import { checkWaiters } from "./calm.ts";
import { ClockLibrary, trueNowMs } from "../support/clocks/shifted-clocks.ts";
import type { ShiftedClocks } from "../support/clocks/shifted-clocks.ts";
import { Judge, LAWS } from "./judge.ts";
import type { Effect } from "./judge.ts";
import { operate } from "./operator.ts";
import { Trouble } from "./trouble.ts";
import { JOURNAL } from "./worker/journal.ts";
import { EVERYTHING, KINDS, SESSIONS } from "./worker/report.ts";

export interface ZooOptions {
  readonly seed: number;
  readonly forMs: number;
  readonly workers: number;
  readonly ttlMs: number;
  /** The folder of PostgreSQL's programs. */
  readonly postgres: string;
  /** False: effects go to the database as they are. */
  readonly guarded: boolean;
  /** False: workers do not look whether they are still the owners. */
  readonly careful: boolean;
  readonly print: (line: string) => void;
  /** Fires when it is to end at once, without a verdict. */
  readonly interrupt: AbortSignal;
}

export interface ZooVerdict {
  readonly passed: boolean;
  /** Law and how often it was broken. */
  readonly violations: ReadonlyMap<string, number>;
  readonly counts: ReadonlyMap<string, number>;
  /** The summary, for people. */
  readonly lines: readonly string[];
  /** Where everything was kept; absent: it passed, and nothing is left. */
  readonly folder?: string;
}

/** Trouble and calm follow each other: who waits when the calm begins has had a turn when it ends. */
const TROUBLE_MS = 45_000;
const CALM_MS = 15_000;
/** Between one moment in which all want the same and the next: a minute has all kinds. */
const STAMPEDE_REST_MS_MIN = 2_000;
const STAMPEDE_REST_MS_MAX = 4_000;
/** Shorter than this, a run may be without what is rare. */
const RARE_MS_MIN = 60_000;
const HEALED_MS_MAX = 30_000;
const EMPTY_MS_MAX = 30_000;

/** Opens the zoo for a while, closes it, and judges what was seen. */
export async function runZoo(options: ZooOptions): Promise<ZooVerdict> {
  const scratch = mkdtempSync(join(tmpdir(), `lockstep-zoo-${String(options.seed)}-`));
  const findings = new Findings(scratch, options.print);
  const zoo = new Zoo(options, scratch, findings);
  try {
    await Promise.race([zoo.run(), interrupted(options.interrupt)]);
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    if (!options.interrupt.aborted) findings.violation(LAWS.life, text);
  }
  const { violations, counts } = findings;
  const passed = violations.size === 0 && !options.interrupt.aborted;
  const keep = !passed && !options.interrupt.aborted;
  await zoo.close({ keepEvidence: keep });
  await findings.close();
  if (!keep) rmSync(scratch, { recursive: true, force: true });
  return { passed, violations, counts, lines: summary(findings), ...(keep ? { folder: scratch } : {}) };
}

function summary({ counts, violations }: Findings): string[] {
  const broken = [...violations].map(([law, count]) => `✗ ${law}: broken ${String(count)} times`);
  const kept = Object.values(LAWS).filter((law) => !violations.has(law));
  return [
    ...[...counts].map(([what, count]) => `${what}: ${String(count)}`).sort(),
    ...kept.map((law) => `✓ ${law}`),
    ...broken,
  ];
}

class Zoo {
  readonly #options: ZooOptions;
  readonly #scratch: string;
  readonly #findings: Findings;
  readonly #judge: Judge;
  readonly #memberClocks = new Map<string, ShiftedClocks>();
  readonly #ending = new AbortController();
  #cell: TestCell | undefined;
  #postgres: PostgresServer | undefined;
  #client: Client | undefined;
  #cages: Cages | undefined;

  constructor(options: ZooOptions, scratch: string, findings: Findings) {
    this.#options = options;
    this.#scratch = scratch;
    this.#findings = findings;
    this.#judge = new Judge(findings);
  }

  async run(): Promise<void> {
    const { seed, workers: count, ttlMs, guarded, careful } = this.#options;
    const library = await ClockLibrary.build(this.#scratch);
    if (library === undefined) this.#findings.say("there is no C compiler here: clocks stay true");
    const cell = await this.#startCell(library);
    const { order, address } = await this.#startDatabase();
    const client = await connect({ endpoints: cell.endpoints });
    this.#client = client;
    const watching = this.#watchSessions(client);
    const cages = new Cages({
      ...{ count, seed, library, cell, scratch: this.#scratch, judge: this.#judge, findings: this.#findings },
      workers: { ttlMs, guarded, careful, postgres: address },
    });
    this.#cages = cages;
    this.#findings.say(`${String(count)} workers at a cell of three`);
    await this.#live(cell, cages, client);
    await cages.finish();
    await this.#checkNothingStays(client);
    this.#ending.abort();
    await watching;
    this.#judge.judge((await order.rows(JOURNAL)).map(effectOf));
    this.#checkThatItLived();
  }

  async close(options: { readonly keepEvidence: boolean }): Promise<void> {
    this.#ending.abort();
    await this.#cages?.kill();
    this.#client?.close();
    if (options.keepEvidence) this.#cell?.keepLogs(join(this.#scratch, "members"));
    await this.#cell?.stop();
    await this.#postgres?.stop();
  }

  async #startCell(library: ClockLibrary | undefined): Promise<TestCell> {
    const cell = await TestCell.start(3, {
      proxied: true,
      proxiedClients: true,
      envOf: (name) => {
        const clocks = library?.clocks(join(this.#scratch, `${name}.clocks`));
        if (clocks !== undefined) this.#memberClocks.set(name, clocks);
        return clocks?.env ?? {};
      },
    });
    this.#cell = cell;
    return cell;
  }

  async #startDatabase(): Promise<{
    readonly order: CommitOrder;
    readonly address: { readonly host: string; readonly user: string; readonly database: string };
  }> {
    const postgres = await PostgresServer.start(this.#options.postgres);
    this.#postgres = postgres;
    const admin = await postgres.connect({ statement_timeout: 0 });
    await admin.query(installSql());
    await admin.query(`CREATE TABLE ${JOURNAL} (resource text, mode text, token bigint, worker text)`);
    const { host = "", user = "", database = "" } = postgres.config;
    return { order: await CommitOrder.watch(admin, "zoo"), address: { host, user, database } };
  }

  /** Learns from the cell itself when it ended which session. */
  async #watchSessions(client: Client): Promise<void> {
    const watch = client.watch({ prefix: SESSIONS }, { omit: "put", signal: this.#ending.signal });
    try {
      for await (const { kv, cause } of watch) {
        this.#judge.sessionEnded({
          leaseId: kv.keyText.slice(SESSIONS.length),
          byExpiry: cause === "lease-expired",
          seenAtMs: trueNowMs(),
        });
      }
    } catch (error) {
      this.#findings.violation(LAWS.life, `the watch of sessions: ${String(error)}`);
    }
  }

  /** Trouble and calm, in turns. */
  async #live(cell: TestCell, cages: Cages, client: Client): Promise<void> {
    const { seed, forMs: allMs, ttlMs } = this.#options;
    const findings = this.#findings;
    const { signal: ending } = this.#ending;
    const dice = new Dice(`zoo ${String(seed)}`);
    const trouble = new Trouble({ cell, cages, ttlMs, findings, memberClocks: this.#memberClocks });
    const over = new AbortController();
    const others = Promise.all([
      operate({ client, findings, judge: this.#judge }, dice.fork("operator"), over.signal),
      stampede(cages, dice.fork("stampede"), over.signal),
    ]);
    const calmMs = Math.min(CALM_MS, allMs / 6);
    const end = performance.now() + allMs - calmMs;
    for (let turn = 1; performance.now() < end && !isOver(ending); turn += 1) {
      cages.order({ what: "calm", calm: false });
      const calm = new AbortController();
      const troubled = trouble.run(dice.fork(`turn ${String(turn)}`), calm.signal);
      await pause(ending, Math.min(TROUBLE_MS, end - performance.now()));
      calm.abort();
      await troubled;
      await cell.leader(HEALED_MS_MAX);
      cages.order({ what: "calm", calm: true });
      await checkWaiters({ cages, findings, forMs: calmMs, interrupt: ending });
    }
    over.abort();
    await others;
  }

  /** Sessions that were not closed run out, and then there is nothing. */
  async #checkNothingStays(client: Client): Promise<void> {
    await until(
      "all keys are gone",
      async () => {
        const { kvs } = await client.range(EVERYTHING);
        if (kvs.length === 0) return true;
        throw new Error(kvs.map(({ keyText }) => keyText).join(", "));
      },
      EMPTY_MS_MAX,
    ).catch((error: unknown) =>
      this.#findings.violation(LAWS.keys, String(error instanceof Error ? error.cause : error)),
    );
  }

  /** A run in which nothing happened proves nothing. */
  #checkThatItLived(): void {
    const { counts } = this.#findings;
    const { guarded, careful, forMs } = this.#options;
    const isLong = forMs >= RARE_MS_MIN;
    const needed = [
      ...(isLong ? KINDS.map((kind) => `acquired: ${kind}`) : []),
      ...["effects in the journal", "sessions expired", "verdict: waiters looked at in a calm"],
      ...(guarded && isLong ? ["refused"] : []),
      ...(careful && isLong ? ["stopped"] : []),
    ];
    const missing = needed.filter((what) => (counts.get(what) ?? 0) === 0);
    if (missing.length > 0) this.#findings.violation(LAWS.life, `never: ${missing.join(", ")}`);
  }
}

/** All want the same thing at once, now and then, of each kind in turn. */
async function stampede(cages: Cages, dice: Dice, stopping: AbortSignal): Promise<void> {
  for (let turn = dice.between(1, KINDS.length); ; turn += 1) {
    await pause(stopping, dice.between(STAMPEDE_REST_MS_MIN, STAMPEDE_REST_MS_MAX));
    const kind = KINDS[turn % KINDS.length];
    if (isOver(stopping) || kind === undefined) return;
    cages.order({ what: "want", kind });
  }
}

function effectOf(row: ReadonlyMap<string, string>): Effect {
  return {
    resource: row.get("resource") ?? "",
    mode: row.get("mode") === "shared" ? "shared" : "exclusive",
    token: Number(row.get("token")),
    worker: row.get("worker") ?? "",
  };
}
