import { createServer } from "node:http";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Findings } from "../findings.ts";
import type { CanonicalHistory } from "./canonical-history.ts";

/** What a worker sends with each effect. Times are milliseconds of the machine's monotonic clock. */
export interface Effect {
  readonly lock: string;
  readonly worker: string;
  readonly token: number;
  /** Until when the worker is sure to hold the lock, as read right before sending. */
  readonly sureUntilMs: number;
}

/** What a worker tells of a lock's changes of hands. */
export interface Handover {
  readonly lock: string;
  readonly worker: string;
  readonly token: number;
  readonly what: "acquired" | "releasing";
  readonly atMs: number;
}

interface Holder {
  readonly worker: string;
  acquiredAtMs: number | undefined;
  releasingAtMs: number | undefined;
  sureUntilMs: number;
}

/**
 * A register that takes a write only with a token not lower than the highest it has seen, and its twin that looks at no
 * token: what the twin lets through is what a lock without fencing would have let happen.
 */
export class GuardedRegister {
  /** Accepted by the twin although a higher token had written before: the damage that the guard prevents. */
  staleWithoutGuard = 0;
  staleRefused = 0;
  accepted = 0;
  readonly #findings: Findings;
  readonly #server: Server;
  readonly #highest = new Map<string, number>();
  readonly #twinHighest = new Map<string, number>();
  readonly #acceptedTokens: { readonly lock: string; readonly token: number }[] = [];
  readonly #holders = new Map<string, Map<number, Holder>>();

  private constructor(findings: Findings) {
    this.#findings = findings;
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        const effect = JSON.parse(Buffer.concat(chunks).toString("utf8")) as Effect;
        response.writeHead(this.#write(effect) ? 200 : 409).end();
      });
    });
  }

  static async start(findings: Findings): Promise<GuardedRegister> {
    const register = new GuardedRegister(findings);
    await new Promise<void>((resolve) => register.#server.listen(0, "127.0.0.1", resolve));
    return register;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  handover({ lock, worker, token, what, atMs }: Handover): void {
    const holder = this.#holder(lock, token, worker);
    if (what === "acquired") holder.acquiredAtMs = atMs;
    else holder.releasingAtMs ??= atMs;
  }

  check(history: CanonicalHistory): void {
    for (const [lock, holders] of this.#holders) {
      this.#checkOrder(lock, holders);
      this.#checkTokens(lock, holders, history);
    }
    const highest = new Map<string, number>();
    for (const { lock, token } of this.#acceptedTokens) {
      if (token < (highest.get(lock) ?? 0)) {
        this.#findings.violation(
          "no stale write passes the guard",
          `${lock}: token ${String(token)} after ${String(highest.get(lock))}`,
        );
      }
      highest.set(lock, Math.max(token, highest.get(lock) ?? 0));
      if (this.#holders.get(lock)?.get(token)?.acquiredAtMs === undefined) {
        this.#findings.violation(
          "tokens are claims",
          `${lock}: token ${String(token)} was used and never acquired`,
        );
      }
    }
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #write({ lock, worker, token, sureUntilMs }: Effect): boolean {
    const holder = this.#holder(lock, token, worker);
    holder.sureUntilMs = Math.max(holder.sureUntilMs, sureUntilMs);
    const twinHighest = this.#twinHighest.get(lock) ?? 0;
    if (token < twinHighest) this.staleWithoutGuard += 1;
    this.#twinHighest.set(lock, Math.max(token, twinHighest));
    const highest = this.#highest.get(lock) ?? 0;
    this.#findings.record({ kind: "guarded write", lock, worker, token, highest, sureUntilMs });
    if (token < highest) {
      this.staleRefused += 1;
      return false;
    }
    this.#highest.set(lock, token);
    this.#acceptedTokens.push({ lock, token });
    this.accepted += 1;
    return true;
  }

  /** Nobody gets a lock while its owner before is still sure of it by its own clock (and did not let go). */
  #checkOrder(lock: string, holders: ReadonlyMap<number, Holder>): void {
    const byToken = [...holders].sort(([a], [b]) => a - b);
    let sureUntilMs = -Infinity;
    let owner = "";
    for (const [token, holder] of byToken) {
      const { acquiredAtMs, releasingAtMs = Infinity } = holder;
      if (acquiredAtMs !== undefined && acquiredAtMs < sureUntilMs) {
        this.#findings.violation(
          "one owner at a time",
          `${lock}: ${holder.worker} got token ${String(token)} ${(sureUntilMs - acquiredAtMs).toFixed(0)} ms before ${owner} had to give up`,
        );
      }
      const sure = Math.min(holder.sureUntilMs, releasingAtMs);
      if (sure > sureUntilMs) owner = `${holder.worker} with token ${String(token)}`;
      sureUntilMs = Math.max(sureUntilMs, sure);
    }
  }

  /** Each token is the revision that created the lock's key, for that owner. */
  #checkTokens(lock: string, holders: ReadonlyMap<number, Holder>, history: CanonicalHistory): void {
    for (const [token, { worker }] of holders) {
      const value = history.valueAt(`/locks/${lock}`, token);
      const before = history.valueAt(`/locks/${lock}`, token - 1);
      if (before === undefined && value?.includes(`"${worker}"`) === true) continue;
      this.#findings.violation(
        "tokens are claims",
        `${lock}: ${worker} was given token ${String(token)}; the history has ${String(value)} after ${String(before)} there`,
      );
    }
  }

  #holder(lock: string, token: number, worker: string): Holder {
    const holders = this.#holders.get(lock) ?? new Map<number, Holder>();
    this.#holders.set(lock, holders);
    const holder = holders.get(token) ?? {
      worker,
      acquiredAtMs: undefined,
      releasingAtMs: undefined,
      sureUntilMs: -Infinity,
    };
    holders.set(token, holder);
    if (holder.worker !== worker) {
      this.#findings.violation(
        "one owner at a time",
        `${lock}: ${worker} and ${holder.worker} both have token ${String(token)}`,
      );
    }
    return holder;
  }
}
