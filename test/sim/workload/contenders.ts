/** Contenders for what the recipes give away, who write under it to something outside of the cell. */
import type { Claim, Session } from "@lockstep/client";
import type { Hold } from "../checkers/claims.ts";
import { judgeRejection } from "../checkers/rejections.ts";
import { roleOf, type Resource } from "../checkers/resources.ts";
import type { Reporter } from "../contract.ts";
import { drawWish, type Wish } from "./acquire.ts";
import { settle, withConnections, type Connection } from "./connection.ts";
import { LeaderObserver } from "./observers.ts";
import { closeSession, drawSessionPlan, openSession } from "./held-session.ts";
import { lingerForRemains } from "./remains.ts";
import { pause, registerId, type Actor, type Tools } from "./tools.ts";

/** A write to what is protected mostly takes so long... */
const QUICK_MS_MEAN = 15;
/** ...and sometimes, with this chance, up to some TTLs: it was under way when the claim passed on. */
const SLOW_CHANCE = 0.15;
const SLOW_TTLS_MAX = 3;
/** How long a writer waits for the register's answer before it takes the write for lost. */
const ANSWER_MS_MAX = 1_000;
const ROUNDS_PER_SESSION_MAX = 4;
const WRITES_PER_HOLD_MAX = 4;
const ABANDON_CHANCE = 0.2;
const OBSERVE_CHANCE = 0.3;
/** How somebody waits: at once or not at all, as long as it takes, or for a while. */
const ONCE_CHANCE = 0.25;
const PATIENT_CHANCE = 0.35;
/** Some take it back by a signal while they wait. */
const CANCEL_CHANCE = 0.1;

/** @param resourcesOf what these contend for; none: there is nothing to do */
export function contendFor(resourcesOf: (tools: Tools) => readonly Resource[]): Actor {
  return async (context, tools) => {
    const resources = resourcesOf(tools);
    if (resources.length === 0) return;
    const election = resources.find(({ recipe }) => recipe === "election");
    await withConnections(context, tools, async (connection) => {
      const observed = election !== undefined && context.dice.chance(OBSERVE_CHANCE) ? election : undefined;
      const observer = observed && new LeaderObserver(connection, observed);
      while (!connection.over) {
        const session = await openSession(connection, drawSessionPlan(connection, 0.25));
        if (session !== undefined) await contendIn(connection, session, resources);
        await pause(context, tools.plan.operationsPerSecond);
      }
      await observer?.finish();
    });
  };
}

async function contendIn(
  connection: Connection,
  session: Session,
  resources: readonly Resource[],
): Promise<void> {
  const { context, tools } = connection;
  const rounds = context.dice.between(1, ROUNDS_PER_SESSION_MAX);
  for (let round = 0; round < rounds && !connection.over && !session.lost.aborted; round++) {
    await contend(connection, session, drawWish(resources, context.dice));
    await pause(context, tools.plan.operationsPerSecond);
  }
  // A process that goes away without a word: only the lease frees what it holds.
  if (context.dice.chance(ABANDON_CHANCE)) {
    connection.close();
    return;
  }
  await lingerForRemains(connection, session);
  await closeSession(connection, session);
}

async function contend(connection: Connection, session: Session, wish: Wish): Promise<void> {
  const { context, tools, host } = connection;
  const request = context.dice.chance(tools.plan.askChance)
    ? await ask(connection, session, wish)
    : undefined;
  const asked = tools.truth.revision;
  const ended = tools.waiters.begin({ resources: wish.resources, host, leaseId: session.leaseId });
  const patience = drawPatience(connection);
  const acquired = await connection.call({
    what: `acquire ${wish.what}`,
    send: (client) => wish.acquire(client, { session, ...patience.options }),
  });
  patience.end();
  ended();
  if (acquired.ok) await use(connection, wish, acquired.value, asked);
  else if (acquired.error.code === "not-held") judgeTakenPlace(connection, session, wish);
  if (request !== undefined) await giveBack(connection, request);
}

function drawPatience(connection: Connection): {
  readonly options: { readonly waitMs?: number; readonly signal?: AbortSignal };
  readonly end: () => void;
} {
  const { context, tools, sim } = connection;
  const { dice } = context;
  const end = (): void => undefined;
  const draw = dice.random();
  if (draw < ONCE_CHANCE) return { options: { waitMs: 0 }, end };
  if (draw < ONCE_CHANCE + PATIENT_CHANCE) return { options: {}, end };
  const waitMs = dice.between(500, 3 * tools.plan.ttlMsMin);
  if (draw > 1 - CANCEL_CHANCE) {
    const stop = new AbortController();
    return { options: { signal: stop.signal }, end: sim.process.after(waitMs, () => stop.abort()) };
  }
  return { options: { waitMs }, end };
}

/** Nobody in this world deletes a key that is not its own: a place goes with its session, or not at all. */
function judgeTakenPlace({ tools, host }: Connection, session: Session, wish: Wish): void {
  if (tools.sessions.hasEnded(session.leaseId)) return;
  tools.reporter.violation(
    "I11-taken",
    `${host} lost its place for ${wish.what}, and lease ${session.leaseId} has not ended`,
  );
}

async function use(connection: Connection, wish: Wish, claim: Claim, asked: number): Promise<void> {
  const { tools } = connection;
  const holds = holdsOf(connection, wish, claim);
  for (const hold of holds) tools.claims.acquired(hold, asked);
  // From then on it says itself that it does not hold it.
  const forget = (): void => holds.forEach((hold) => tools.claims.released(hold));
  if (claim.held.aborted) forget();
  else claim.held.addEventListener("abort", forget, { once: true });
  tools.reporter.count(wish.counted);
  connection.noteRevision(claim.token);
  await work(connection, wish, claim, holds);
  await giveBack(connection, claim);
}

/** One for each resource, whatever the claim's keys are. */
function holdsOf(connection: Connection, wish: Wish, claim: Claim): readonly Hold[] {
  const { tools, host } = connection;
  return claim.conditions.map((condition) => {
    const key = String(condition.key);
    const resource = wish.resources.find((one) => roleOf(one, key) !== undefined);
    if (resource === undefined) throw new Error(`${key} was not asked for with ${wish.what}`);
    return {
      ...{ resource, host, key, token: claim.token, leaseId: claim.session.leaseId },
      allowanceMs: tools.sessions.allowanceMs(claim.session.ttlMs),
      assertHeld: (marginMs) => claim.assertHeld(marginMs),
    };
  });
}

/** A release that fails is done again by the disposal, until the session ends. */
async function giveBack(connection: Connection, claim: Claim): Promise<void> {
  const released = await settle(claim.release());
  if (released.ok) return;
  judgeRejection(released.error, `release of ${claim.key} by ${connection.host}`, connection.tools.reporter);
  await claim[Symbol.asyncDispose]();
}

async function work(connection: Connection, wish: Wish, claim: Claim, holds: readonly Hold[]): Promise<void> {
  const { context, tools } = connection;
  const wanted = listen(connection, claim);
  const writes = context.dice.between(1, WRITES_PER_HOLD_MAX);
  for (let index = 0; index < writes && !context.stopping && !wanted.byOthers; index++) {
    await context.sleep(context.dice.exponential(tools.plan.ttlMsMin / 8));
    // The rule of the house: ask the clock right before each effect.
    if (!stillHeld(connection, claim)) return;
    await Promise.all(holds.map((hold) => write(connection, claim, hold)));
    const { during } = wish;
    if (during !== undefined) await connection.call({ what: "announce", send: () => during(claim) });
  }
}

function stillHeld(connection: Connection, claim: Claim): boolean {
  try {
    claim.assertHeld();
    return true;
  } catch (error) {
    judgeRejection(error, `assertHeld of ${claim.key} by ${connection.host}`, connection.tools.reporter);
    return false;
  }
}

/** Sends one write through a network of its own; resolves with the answer, or when nobody waits for it any more. */
function write(connection: Connection, claim: Claim, hold: Hold): Promise<void> {
  const { context, tools, host, sim } = connection;
  const { dice } = context;
  const { resource, key, token, leaseId } = hold;
  const role = roleOf(resource, key) ?? "exclusive";
  const reporter: Reporter = tools.reporter;
  const register = tools.registers.get(registerId(resource, role));
  if (register === undefined) {
    reporter.violation("I11-turn", `${host} holds ${key}, and there are no so many permits`);
  }
  const slow = dice.chance(SLOW_CHANCE);
  const travelMs = slow
    ? dice.random() * SLOW_TTLS_MAX * claim.session.ttlMs
    : dice.exponential(QUICK_MS_MEAN);
  const backMs = dice.exponential(QUICK_MS_MEAN);
  return new Promise((resolve) => {
    const giveUp = sim.process.after(ANSWER_MS_MAX, resolve);
    context.scheduler.in(Math.round(travelMs * 1_000), () => {
      register.arrive({ token, leaseId, host, shared: role === "shared" });
      sim.process.deliver(Math.round(backMs * 1_000), () => {
        giveUp();
        resolve();
      });
    });
  });
}

/** The holder of something hears that others want it, in those histories in which anybody asks. */
function listen(connection: Connection, claim: Claim): { readonly byOthers: boolean } {
  const { tools, host } = connection;
  const wanted = { byOthers: false };
  if (tools.plan.askChance === 0) return wanted;
  const judge = (error: unknown): void => {
    // The end of the claim ends the listening, and so does that of its process.
    if (!claim.held.aborted) judgeRejection(error, `listening of ${host} for ${claim.key}`, tools.reporter);
  };
  const onAsked = (): void => {
    wanted.byOthers = true;
    tools.reporter.count("holders asked");
  };
  void settle(connection.client.onAsked(claim, onAsked, { onError: judge })).then((listening) => {
    if (!listening.ok) judge(listening.error);
  });
  return wanted;
}

/** @returns the standing request, if somebody holds it. */
async function ask(connection: Connection, session: Session, wish: Wish): Promise<Claim | undefined> {
  const { ask: send } = wish;
  if (send === undefined) return undefined;
  const asked = await connection.call({
    what: `ask for ${wish.what}`,
    send: (client) => send(client, { session }),
  });
  return asked.ok ? asked.value : undefined;
}
