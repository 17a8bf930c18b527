import type { Findings } from "../torture/findings.ts";
import type { Worker } from "./keeper.ts";
import { PERMITS } from "./worker/report.ts";
import type { Domain, Kind, Report } from "./worker/report.ts";

/** One owner's time, in true milliseconds. */
interface Ownership {
  readonly kind: Kind;
  readonly worker: string;
  readonly token: number;
  readonly leaseId: string;
  readonly domains: readonly Domain[];
  /** It was the owner then at the latest. */
  readonly acquiredAtMs: number;
  /** It was sure of being the owner until then, by its own clocks. */
  sureUntilMs: number;
  /** It began to let go. */
  releasingAtMs: number | undefined;
  /** An operator began to delete a key of it: who owns it after that has no say in it. */
  takenAtMs: number | undefined;
}

type Acquired = Report & { readonly what: "acquired" };

/** A row of the journal. */
export interface Effect extends Domain {
  readonly token: number;
  readonly worker: string;
}

/** The end of a lease, as somebody beside the workers saw it: it came no later than this. */
export interface SessionEnd {
  readonly leaseId: string;
  readonly byExpiry: boolean;
  readonly seenAtMs: number;
}

export const LAWS = {
  stale: "no stale write is accepted",
  tokens: "tokens belong to owners",
  deadline: "the client's deadline is earlier than the cell's",
  alone: "one owner at a time is sure of it",
  permits: "no more permits than there are",
  waiters: "every waiter wakes",
  keys: "no key stays behind",
  clients: "clients do nothing that they should not",
  life: "the zoo is alive",
} as const;

/** How an acquisition may fail: nobody cancels any, and no operator deletes the key of whoever still waits. */
const HONEST_CODES: ReadonlySet<string> = new Set(["session-lost", "lock-timeout"]);

/** Collects what the zoo's processes tell, and says in the end whether the laws were kept. */
export class Judge {
  readonly #findings: Findings;
  readonly #ownerships = new Map<number, Ownership[]>();
  readonly #endedAtMs = new Map<string, number>();
  readonly #sessionEnds: SessionEnd[] = [];

  constructor(findings: Findings) {
    this.#findings = findings;
  }

  hear(worker: Worker, report: Report): void {
    this.#findings.record({ worker: worker.name, ...report });
    this.#findings.count(nameOf(report));
    switch (report.what) {
      case "acquired":
        this.#own(worker.name, report);
        return;
      case "gave up":
        if (HONEST_CODES.has(report.code)) return;
        this.#findings.violation(LAWS.clients, `${worker.name} gave up a ${report.kind}: ${report.code}`);
        return;
      case "sure": {
        const ownership = this.#ownership(worker.name, report.token);
        if (ownership === undefined) return;
        ownership.sureUntilMs = Math.max(ownership.sureUntilMs, report.atMs + report.leftMs);
        return;
      }
      case "releasing": {
        const ownership = this.#ownership(worker.name, report.token);
        if (ownership !== undefined) ownership.releasingAtMs = report.atMs;
        return;
      }
      case "broken":
        this.#findings.violation(LAWS.clients, `${worker.name}: ${report.error}`);
        return;
      default:
        return;
    }
  }

  ended({ name, endedAtMs }: Worker): void {
    if (endedAtMs !== undefined) this.#endedAtMs.set(name, endedAtMs);
  }

  sessionEnded(end: SessionEnd): void {
    this.#sessionEnds.push(end);
    if (end.byExpiry) this.#findings.count("sessions expired");
  }

  /** Tokens of whoever owns something now, as far as it is known. */
  owned(): number[] {
    return this.#all()
      .filter(({ worker, releasingAtMs }) => releasingAtMs === undefined && !this.#endedAtMs.has(worker))
      .map(({ token }) => token);
  }

  /** An operator is about to delete a key of this owner. */
  takenAway(token: number, atMs: number): void {
    for (const ownership of this.#ownerships.get(token) ?? []) ownership.takenAtMs ??= atMs;
  }

  /** @param journal in the order of the commits */
  judge(journal: readonly Effect[]): void {
    this.#checkJournal(journal);
    this.#checkDeadlines();
    this.#checkOneOwner();
    this.#checkPermits();
  }

  #own(worker: string, { kind, token, leaseId, domains, atMs }: Acquired): void {
    const others = this.#ownerships.get(token) ?? [];
    if (others.length > 0) {
      this.#findings.violation(
        LAWS.tokens,
        `${worker} and ${others.map((other) => other.worker).join(", ")} have the token ${String(token)}`,
      );
    }
    others.push({
      ...{ kind, worker, token, leaseId, domains, acquiredAtMs: atMs },
      ...{ sureUntilMs: -Infinity, releasingAtMs: undefined, takenAtMs: undefined },
    });
    this.#ownerships.set(token, others);
  }

  #ownership(worker: string, token: number): Ownership | undefined {
    return this.#ownerships.get(token)?.find((ownership) => ownership.worker === worker);
  }

  /** Until when it was sure, as far as it matters: the dead and those who let go are sure of nothing. */
  #sureUntilMs({ worker, sureUntilMs, releasingAtMs = Infinity }: Ownership): number {
    return Math.min(sureUntilMs, releasingAtMs, this.#endedAtMs.get(worker) ?? Infinity);
  }

  /** The same, as far as others had to wait for it: not beyond an operator. */
  #excludesUntilMs(ownership: Ownership): number {
    return Math.min(this.#sureUntilMs(ownership), ownership.takenAtMs ?? Infinity);
  }

  #checkJournal(journal: readonly Effect[]): void {
    const marks = new Map<string, { exclusive: number; shared: number }>();
    for (const { resource, mode, token, worker } of journal) {
      const mark = marks.get(resource) ?? { exclusive: 0, shared: 0 };
      marks.set(resource, mark);
      const least = mode === "shared" ? mark.exclusive : Math.max(mark.exclusive, mark.shared);
      if (token < least) {
        this.#findings.violation(
          LAWS.stale,
          `${resource}: ${worker} wrote with ${String(token)} after ${String(least)}`,
        );
      }
      mark[mode] = Math.max(mark[mode], token);
      const owned = this.#ownership(worker, token)?.domains.some((domain) => domain.resource === resource);
      if (owned !== true) {
        this.#findings.violation(LAWS.tokens, `${worker} wrote to ${resource} with ${String(token)}`);
      }
    }
    this.#findings.count("effects in the journal", journal.length);
  }

  #checkDeadlines(): void {
    const ends = new Map(this.#sessionEnds.map((end) => [end.leaseId, end]));
    let closestMs = Infinity;
    for (const ownership of this.#all()) {
      const end = ends.get(ownership.leaseId);
      if (end?.byExpiry !== true) continue;
      const sureUntilMs = this.#sureUntilMs(ownership);
      this.#findings.count("verdict: owners whose session expired, against the cell's time");
      closestMs = Math.min(closestMs, end.seenAtMs - sureUntilMs);
      if (sureUntilMs <= end.seenAtMs) continue;
      this.#findings.violation(
        LAWS.deadline,
        `${ownership.worker} with ${String(ownership.token)} was sure for ${(sureUntilMs - end.seenAtMs).toFixed(0)} ms after its session had ended`,
      );
    }
    if (closestMs !== Infinity)
      this.#findings.say(`the closest deadline was ${closestMs.toFixed(0)} ms early`);
  }

  /** Whoever excludes an earlier owner comes after that one's last sure moment. */
  #checkOneOwner(): void {
    const sure = new Map<string, { exclusive: Latest; shared: Latest }>();
    for (const ownership of this.#all()) {
      for (const { resource, mode } of ownership.domains) {
        const latest = sure.get(resource) ?? { exclusive: NOBODY, shared: NOBODY };
        sure.set(resource, latest);
        const excluded = mode === "shared" ? latest.exclusive : later(latest.exclusive, latest.shared);
        this.#findings.count("verdict: owners against the ones before them");
        if (ownership.acquiredAtMs < excluded.untilMs) {
          this.#findings.violation(
            LAWS.alone,
            `${resource}: ${ownership.worker} had ${String(ownership.token)} ${(excluded.untilMs - ownership.acquiredAtMs).toFixed(0)} ms before ${excluded.worker} with ${String(excluded.token)} gave up`,
          );
        }
        const untilMs = this.#excludesUntilMs(ownership);
        latest[mode] = later(latest[mode], { untilMs, worker: ownership.worker, token: ownership.token });
      }
    }
  }

  /** Whoever gets a permit finds fewer than all given to others that are still sure of theirs. */
  #checkPermits(): void {
    const permits = this.#all().filter(({ kind }) => kind === "permit");
    for (const [place, { worker, token, acquiredAtMs }] of permits.entries()) {
      const others = permits
        .slice(0, place)
        .filter((earlier) => this.#excludesUntilMs(earlier) > acquiredAtMs)
        .map((earlier) => `${earlier.worker} (${String(earlier.token)})`);
      this.#findings.count("verdict: permits against the ones before them");
      if (others.length < PERMITS) continue;
      this.#findings.violation(LAWS.permits, `${worker} (${String(token)}) beside ${others.join(", ")}`);
    }
  }

  /** In the order in which the cell made them owners. */
  #all(): Ownership[] {
    return [...this.#ownerships.values()].flat().sort((a, b) => a.token - b.token);
  }
}

function nameOf(report: Report): string {
  switch (report.what) {
    case "acquired":
      return `acquired: ${report.kind}`;
    case "gave up":
    case "no session":
      return `${report.what}: ${report.code}`;
    default:
      return report.what;
  }
}

interface Latest {
  readonly untilMs: number;
  readonly worker: string;
  readonly token: number;
}

const NOBODY: Latest = { untilMs: -Infinity, worker: "nobody", token: 0 };

function later(a: Latest, b: Latest): Latest {
  return a.untilMs >= b.untilMs ? a : b;
}
