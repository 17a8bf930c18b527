import { connect } from "@lockstep/client";
import type { Client } from "@lockstep/client";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { checkHistory } from "../linearizability/check-history.ts";
import type { History } from "../linearizability/history.ts";
import type { TorturedCell } from "./cell/cell.ts";
import type { Findings } from "./findings.ts";
import { CanonicalHistory, toPlainValue, toText } from "./workload/canonical-history.ts";
import type { GuardedRegister } from "./workload/guard.ts";
import type { Ledger } from "./workload/ledger.ts";
import { checkWitness } from "./workload/witness.ts";
import { readHistory } from "./workload/watchers.ts";
import type { Watcher } from "./workload/watchers.ts";

/** What no user should have to wait for while a majority is well. Generous: two cores for everything. */
const GAP_MS_MAX = 45_000;
/** From here on it is a finding when the locks were never put to the test. */
const LONG_ENOUGH_FOR_STALE_WRITES_MS = 120_000;
const RANGE_LIMIT = 1_000;
const READ_MS_MAX = 90_000;
/** Lines of the members' logs that are counted: the torture must have led there. */
const LOG_LINES: readonly (readonly [what: string, pattern: RegExp])[] = [
  ["elections won", /"role":"leader"/g],
  ["states installed from a leader", /state installed from the leader/g],
  ["torn writes cut at a start", /a torn write at the end of the log was cut/g],
  ["members that left", /this member was removed from the cell/g],
];

/** What is looked at once the cell is at rest. */
export interface Evidence {
  readonly cell: TorturedCell;
  readonly watchers: readonly Watcher[];
  readonly guard: GuardedRegister;
  /** The last revision. */
  readonly upTo: number;
}

/** Holds what clients were told against what happened. */
export class Judge {
  /** What happened, once the members have told it. */
  history: CanonicalHistory | undefined;
  readonly #findings: Findings;
  readonly #scratch: string;
  readonly #ledger: Ledger;
  readonly #registers: History;
  readonly #forMs: number;

  constructor(parts: {
    readonly findings: Findings;
    readonly scratch: string;
    readonly ledger: Ledger;
    readonly registers: History;
    readonly forMs: number;
  }) {
    this.#findings = parts.findings;
    this.#scratch = parts.scratch;
    this.#ledger = parts.ledger;
    this.#registers = parts.registers;
    this.#forMs = parts.forMs;
  }

  /** The cell is at rest at revision `upTo`. */
  async judge({ cell, watchers, guard, upTo }: Evidence): Promise<void> {
    const findings = this.#findings;
    this.#countLogs();
    await this.#verdict("digests of all members agree", async () => {
      await cell.agreedDigest(READ_MS_MAX).catch((error: unknown) => {
        findings.violation("divergence", error instanceof Error ? error.message : String(error));
      });
    });
    const history = await this.#readHistories(cell, upTo);
    await this.#verdict("acknowledged writes are there, refused ones are not, each happened once", () =>
      this.#ledger.check(history, findings),
    );
    await this.#verdict("registers are linearizable", () => this.checkRegisters(history));
    await this.#verdict("watches are ordered, unique, atomic and complete", () => {
      for (const watcher of watchers) watcher.check(history, findings);
    });
    await this.#verdict("locks: one owner at a time, no stale write passed the guard", () => {
      guard.check(history);
      if (this.#forMs < LONG_ENOUGH_FOR_STALE_WRITES_MS) return;
      if (guard.staleWithoutGuard === 0) {
        findings.violation(
          "checks that bite",
          "no stale write reached the twin: the guard was not put to the test",
        );
      }
    });
    this.#passUnlessBroken("sessions never ended before their promise", [
      "sessions never end early",
      "sessions end once",
    ]);
    this.#passUnlessBroken("members stopped when they had to, and only then", [
      "no member dies by itself",
      "a failed fsync stops the member",
      "a full disk stops a member cleanly",
      "members stop as asked",
      "members come back",
    ]);
    await this.#verdict("writes go on while a majority is well", () => {
      const { longestGapMs } = cell.health;
      if (longestGapMs <= GAP_MS_MAX) return;
      findings.violation(
        "writes go on",
        `no write was acknowledged for ${(longestGapMs / 1000).toFixed(1)} s`,
      );
    });
  }

  /** @param history absent: the cell did not get as far as telling it */
  checkRegisters(history?: CanonicalHistory): void {
    const problems = history === undefined ? undefined : checkWitness(this.#registers.operations(), history);
    for (const problem of problems ?? []) this.#findings.violation("registers follow the revisions", problem);
    const verdict = checkHistory(this.#registers);
    switch (verdict.kind) {
      case "linearizable":
        this.#findings.count("linearizability search steps", verdict.steps);
        return;
      case "violation":
        this.#findings.violation(verdict.law, verdict.text);
        return;
      case "budget-exhausted":
        // The search for any order gave up; the one that the revisions tell is a proof all the same.
        if (problems?.length === 0) this.#findings.count("linearizability shown by the revisions alone");
        else this.#findings.violation("linearizability", verdict.text);
    }
  }

  /** What happened, as every member tells it; they must tell the same, and the state must be what it leads to. */
  async #readHistories(cell: TorturedCell, upTo: number): Promise<CanonicalHistory> {
    let first: { readonly member: string; readonly history: CanonicalHistory } | undefined;
    await this.#verdict("every member tells the same history, and holds what it leads to", async () => {
      for (const { name, clientAddress } of cell.members) {
        const client = await connect({ endpoints: [clientAddress], connectTimeoutMs: 30_000 });
        try {
          const history = new CanonicalHistory(await readHistory(client, upTo, READ_MS_MAX), upTo);
          first ??= { member: name, history };
          this.#compare(first, { member: name, history });
          await this.#compareState(name, client, history);
        } finally {
          client.close();
        }
      }
    });
    if (first === undefined) throw new Error("no member told its history");
    this.history = first.history;
    this.#findings.count("revisions", first.history.revisions.length);
    return first.history;
  }

  #compare(
    one: { readonly member: string; readonly history: CanonicalHistory },
    other: { readonly member: string; readonly history: CanonicalHistory },
  ): void {
    const [a, b] = [one.history.revisions, other.history.revisions];
    for (let n = 0; n < Math.max(a.length, b.length); n += 1) {
      const texts = [a[n], b[n]].map((revision) => (revision === undefined ? "nothing" : toText(revision)));
      if (texts[0] === texts[1]) continue;
      this.#findings.violation(
        "one history",
        `${one.member} tells ${String(texts[0])}; ${other.member} tells ${String(texts[1])}`,
      );
      return;
    }
  }

  async #compareState(member: string, client: Client, history: CanonicalHistory): Promise<void> {
    const wanted = history.finalState();
    let from = "/";
    for (let more = true; more;) {
      const page = await client.range(
        { from },
        { limit: RANGE_LIMIT, revision: history.upTo, deadlineMs: 30_000 },
      );
      for (const kv of page.kvs) {
        const value = toPlainValue(kv.value);
        if (wanted.get(kv.keyText) !== value) {
          this.#findings.violation(
            "state follows from history",
            `${member} holds ${kv.keyText} = ${value}; its history leads to ${String(wanted.get(kv.keyText))}`,
          );
        }
        wanted.delete(kv.keyText);
        if (/^\/(session|locks)\//.test(kv.keyText)) {
          this.#findings.violation("no orphans", `${member} holds ${kv.keyText} although no session is left`);
        }
      }
      ({ more } = page);
      from = `${page.kvs.at(-1)?.keyText ?? ""}\0`;
    }
    for (const [key, value] of wanted) {
      this.#findings.violation("state follows from history", `${member} lacks ${key} = ${value}`);
    }
  }

  /** What the members went through, by their own logs. */
  #countLogs(): void {
    for (const name of readdirSync(this.#scratch)) {
      if (!/^m\d+\.log$/.test(name)) continue;
      const text = readFileSync(join(this.#scratch, name), "utf8");
      for (const [what, pattern] of LOG_LINES) {
        const times = [...text.matchAll(pattern)].length;
        if (times > 0) this.#findings.count(what, times);
      }
    }
  }

  /** Runs one checker; without a violation it counts as passed. */
  async #verdict(name: string, checker: () => Promise<void> | void): Promise<void> {
    const total = (): number =>
      [...this.#findings.violations.values()].reduce((sum, count) => sum + count, 0);
    const before = total();
    try {
      await checker();
    } catch (error) {
      this.#findings.violation(name, error instanceof Error ? error.message : String(error));
    }
    if (total() === before) this.pass(name);
  }

  pass(name: string): void {
    this.#findings.count(`verdict: ${name}`);
  }

  /** Of laws that were watched all the time. */
  #passUnlessBroken(name: string, laws: readonly string[]): void {
    if (laws.every((law) => !this.#findings.violations.has(law))) this.pass(name);
  }
}
