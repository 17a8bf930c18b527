/** Contenders for locks, who write under them to something outside of the cell. */
import type { Lock, Session } from "@lockstep/client";
import { judgeRejection } from "../checkers/rejections.ts";
import type { Hold } from "../checkers/locks.ts";
import type { ActorContext } from "../contract.ts";
import { settle, withConnections, type Connection } from "./connection.ts";
import { closeSession, drawSessionPlan, openSession } from "./held-session.ts";
import { pause, type Tools } from "./tools.ts";

/** A write to what the lock protects mostly takes so long... */
const QUICK_MS_MEAN = 15;
/** ...and sometimes, with this chance, up to some TTLs: it was under way when the lock passed on. */
const SLOW_CHANCE = 0.15;
const SLOW_TTLS_MAX = 3;
/** How long a writer waits for the register's answer before it takes the write for lost. */
const ANSWER_MS_MAX = 1_000;
const ROUNDS_PER_SESSION_MAX = 4;
const WRITES_PER_HOLD_MAX = 4;
const ABANDON_CHANCE = 0.2;

export async function runLocks(context: ActorContext, tools: Tools): Promise<void> {
  await withConnections(context, tools, async (connection) => {
    while (!connection.over) {
      const session = await openSession(connection, drawSessionPlan(connection, 0.25));
      if (session !== undefined) await contendIn(connection, session);
      await pause(context, tools.plan.operationsPerSecond);
    }
  });
}

async function contendIn(connection: Connection, session: Session): Promise<void> {
  const { context, tools } = connection;
  const rounds = context.dice.between(1, ROUNDS_PER_SESSION_MAX);
  for (let round = 0; round < rounds && !connection.over && !session.lost.aborted; round++) {
    await contend(connection, session);
    await pause(context, tools.plan.operationsPerSecond);
  }
  // A process that goes away without a word: only the lease frees what it holds.
  if (context.dice.chance(ABANDON_CHANCE)) connection.close();
  else await closeSession(connection, session);
}

async function contend(connection: Connection, session: Session): Promise<void> {
  const { context, tools, host } = connection;
  const { locks, sessions, reporter } = tools;
  const name = context.dice.pick(tools.lockNames);
  const before = locks.highestToken(name);
  const waitMs = context.dice.chance(0.3) ? 0 : context.dice.between(500, 3 * tools.plan.ttlMsMin);
  const acquired = await connection.call({
    what: `lock ${name}`,
    send: (client) => client.lock(name, { session, waitMs }),
  });
  if (!acquired.ok) return;
  const lock = acquired.value;
  const hold: Hold = {
    name,
    host,
    token: lock.token,
    leaseId: session.leaseId,
    allowanceMs: sessions.allowanceMs(session.ttlMs),
    assertHeld: (marginMs) => lock.assertHeld(marginMs),
  };
  locks.acquired(hold, before);
  // From then on it says itself that it does not hold the lock.
  lock.held.addEventListener("abort", () => locks.released(hold), { once: true });
  reporter.count("locks acquired");
  connection.noteRevision(lock.token);
  await useLock(connection, lock);
  const released = await settle(lock.release());
  if (!released.ok) judgeRejection(released.error, `release ${name} by ${host}`, reporter);
}

async function useLock(connection: Connection, lock: Lock): Promise<void> {
  const { context, tools } = connection;
  const writes = context.dice.between(1, WRITES_PER_HOLD_MAX);
  for (let index = 0; index < writes && !context.stopping; index++) {
    await context.sleep(context.dice.exponential(tools.plan.ttlMsMin / 8));
    // The rule of the house: ask the clock right before each effect.
    if (!stillHeld(connection, lock)) return;
    await write(connection, lock);
  }
}

function stillHeld(connection: Connection, lock: Lock): boolean {
  try {
    lock.assertHeld();
    return true;
  } catch (error) {
    judgeRejection(error, `assertHeld of ${lock.name} by ${connection.host}`, connection.tools.reporter);
    return false;
  }
}

/** Sends one write through a network of its own; resolves with the answer, or when nobody waits for it any more. */
function write(connection: Connection, lock: Lock): Promise<void> {
  const { context, tools, host, sim } = connection;
  const { dice } = context;
  const register = tools.registers.get(lock.name);
  const slow = dice.chance(SLOW_CHANCE);
  const travelMs = slow
    ? dice.random() * SLOW_TTLS_MAX * lock.session.ttlMs
    : dice.exponential(QUICK_MS_MEAN);
  const backMs = dice.exponential(QUICK_MS_MEAN);
  return new Promise((resolve) => {
    const giveUp = sim.process.after(ANSWER_MS_MAX, resolve);
    context.scheduler.in(Math.round(travelMs * 1_000), () => {
      register?.arrive({ token: lock.token, leaseId: lock.session.leaseId, host });
      sim.process.deliver(Math.round(backMs * 1_000), () => {
        giveUp();
        resolve();
      });
    });
  });
}
