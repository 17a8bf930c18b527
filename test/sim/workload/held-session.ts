/** A session and what the checkers have to know of it. */
import type { Session } from "@lockstep/client";
import type { Connection } from "./connection.ts";

const PREFIX_OF_ENDED = "the cell ended the session";

export interface SessionPlan {
  readonly ttlMs: number;
  /** Absent: the client's own margin. */
  readonly marginMs?: number;
}

/** Draws a TTL; some sessions give up at the last millisecond instead of earlier, so that nothing hides in the margin. */
export function drawSessionPlan(connection: Connection, tightChance: number): SessionPlan {
  const { context, tools } = connection;
  const ttlMs = context.dice.between(tools.plan.ttlMsMin, tools.plan.ttlMsMax);
  return context.dice.chance(tightChance) ? { ttlMs, marginMs: 0 } : { ttlMs };
}

/** Opens a session and has it watched over until it ends; undefined: the cell did not grant it in time. */
export async function openSession(connection: Connection, plan: SessionPlan): Promise<Session | undefined> {
  const { tools, host, context } = connection;
  const { sessions, reporter, plan: workload } = tools;
  const opened = await connection.call({
    what: `open a session of ${String(plan.ttlMs)} ms`,
    send: (client) => client.session({ ...plan, owner: context.name, deadlineMs: workload.deadlineMs }),
  });
  if (!opened.ok) return undefined;
  const session = opened.value;
  const { leaseId, ttlMs } = session;
  sessions.opened({ leaseId, host, ttlMs, remainingMs: () => session.remainingMs() });
  const onLost = (): void => {
    const reason = session.lost.reason as unknown;
    const text = reason instanceof Error ? reason.message : "";
    // Judged before it is forgotten: a client that is told of an end must not be lied to.
    sessions.lost(leaseId, connection.nowUs, text.startsWith(PREFIX_OF_ENDED));
    if (text !== "the session was closed" && text !== "the client was closed")
      reporter.count("sessions lost");
  };
  if (session.lost.aborted) onLost();
  else session.lost.addEventListener("abort", onLost, { once: true });
  return session;
}

/** Closes it, which revokes its lease. */
export async function closeSession(connection: Connection, session: Session): Promise<void> {
  connection.tools.sessions.revoking(session.leaseId);
  await session.close();
}
