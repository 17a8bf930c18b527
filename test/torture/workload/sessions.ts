import type { Client } from "@lockstep/client";
import { actAgainAndAgain, pause, toFailure } from "./actor.ts";
import type { Result, Stage } from "./actor.ts";

const KEEPERS = 4;
const TTL_MS_MIN = 2_000;
const TTL_MS_MAX = 6_000;
const DEADLINE_MS = 4_000;

/**
 * Sessions by hand: a lease with a key, renewed for a while and then left alone, or revoked. However leaders come and go,
 * the key must not vanish by expiry before the last acknowledged renewal's send time plus what it promised.
 */
export async function tortureSessions(stage: Stage): Promise<void> {
  const keepers = Array.from({ length: KEEPERS }, (_, n) => {
    const keeper = new Keeper({ ...stage, dice: stage.dice.fork(`s${String(n)}`) }, n);
    return actAgainAndAgain(stage, 300, (client) => keeper.live(client));
  });
  await Promise.all(keepers);
}

class Keeper {
  readonly #stage: Stage;
  readonly #number: number;
  #lives = 0;

  constructor(stage: Stage, number: number) {
    this.#stage = stage;
    this.#number = number;
  }

  /** One session, from grant to end. */
  async live(client: Client): Promise<Result> {
    const { dice, findings, onWrite, stopping } = this.#stage;
    const ttlMs = dice.between(TTL_MS_MIN, TTL_MS_MAX);
    this.#lives += 1;
    const key = `/session/${String(this.#number)}-${String(this.#lives)}`;
    try {
      let sentAt = performance.now();
      const granted = await client.leaseGrant({ ttlMs, owner: key, deadlineMs: DEADLINE_MS });
      const { leaseId } = granted;
      const session = new Promises(sentAt, granted.ttlMs);
      findings.count("sessions begun");
      const put = await client.put(key, "alive", { leaseId, deadlineMs: DEADLINE_MS });
      onWrite();
      const leave = new AbortController();
      const end = this.#untilGone(client, { key, from: put.revision + 1, signal: leave.signal });
      const lives = dice.between(1, 6);
      for (let renewal = 0; renewal < lives && !stopping.aborted && !end.over; renewal += 1) {
        await pause(stopping, granted.ttlMs / 3);
        sentAt = performance.now();
        await this.#renew(client, { leaseId, session, sentAt, key });
      }
      if (dice.chance(0.3)) await this.#revoke(client, leaseId);
      else await this.#abandon(session, end, { key, ttlMs: granted.ttlMs });
      leave.abort();
      return undefined;
    } catch (error) {
      return toFailure(this.#stage, error);
    }
  }

  async #renew(
    client: Client,
    { leaseId, session, sentAt, key }: { leaseId: string; session: Promises; sentAt: number; key: string },
  ): Promise<void> {
    const { findings } = this.#stage;
    try {
      const { remainingMs } = await client.leaseRenew([leaseId], { deadlineMs: DEADLINE_MS });
      const left = remainingMs[0] ?? 0;
      findings.count("sessions renewed");
      if (left <= 0) {
        this.#ended(session, { key, at: performance.now(), how: "a renewal was answered with nothing left" });
        return;
      }
      session.promised(sentAt, left);
      if (session.endedAt !== undefined) {
        findings.violation(
          "sessions end once",
          `${key} was renewed for ${String(left)} ms after it had ended`,
        );
      }
    } catch (error) {
      toFailure(this.#stage, error);
    }
  }

  async #revoke(client: Client, leaseId: string): Promise<void> {
    try {
      await client.leaseRevoke(leaseId, { deadlineMs: DEADLINE_MS });
      this.#stage.findings.count("sessions revoked");
    } catch (error) {
      toFailure(this.#stage, error);
    }
  }

  /** Nobody renews it any more: it ends by itself, at the latest when the torture is over. */
  async #abandon(
    session: Promises,
    end: { readonly gone: Promise<string | undefined>; readonly over: boolean },
    { key, ttlMs }: { readonly key: string; readonly ttlMs: number },
  ): Promise<void> {
    const { findings, stopping } = this.#stage;
    const cause = await Promise.race([end.gone, pause(stopping, ttlMs * 10).then(() => undefined)]);
    if (cause === undefined) return;
    findings.count(`sessions ended: ${cause}`);
    if (cause === "lease-expired")
      this.#ended(session, { key, at: performance.now(), how: "its key vanished by expiry" });
  }

  #ended(session: Promises, { key, at, how }: { key: string; at: number; how: string }): void {
    session.endedAt ??= at;
    const earlyMs = session.untilMs - at;
    if (earlyMs <= 0) return;
    this.#stage.findings.violation(
      "sessions never end early",
      `${key}: ${how} ${earlyMs.toFixed(0)} ms before the last acknowledged renewal's promise`,
    );
  }

  /** Watches the key; what it ends with is told as soon as it is known. */
  #untilGone(
    client: Client,
    { key, from, signal }: { readonly key: string; readonly from: number; readonly signal: AbortSignal },
  ): { readonly gone: Promise<string | undefined>; readonly over: boolean } {
    const state = { gone: Promise.resolve<string | undefined>(undefined), over: false };
    const look = async (): Promise<string | undefined> => {
      try {
        for await (const event of client.watch(key, { startRevision: from, signal })) {
          if (event.kind !== "delete") continue;
          state.over = true;
          return event.cause;
        }
      } catch (error) {
        toFailure(this.#stage, error);
      }
      return undefined;
    };
    state.gone = look();
    return state;
  }
}

/** Until when a session cannot end by expiry, by this process's clock. */
class Promises {
  untilMs: number;
  endedAt: number | undefined;

  constructor(sentAtMs: number, ttlMs: number) {
    this.untilMs = sentAtMs + ttlMs;
  }

  promised(sentAtMs: number, remainingMs: number): void {
    this.untilMs = Math.max(this.untilMs, sentAtMs + remainingMs);
  }
}
