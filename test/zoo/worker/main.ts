// A process of the zoo: it becomes the owner of one thing after the other and works under its token. Its keeper stops it,
// moves its clocks, cuts its connections and kills it; what it sees and does it tells on standard output.
import { setTimeout as sleep } from "node:timers/promises";
import { createInterface } from "node:readline";
import { connect, LockstepError } from "@lockstep/client";
import type { Claim, Client, Session } from "@lockstep/client";
import { Dice } from "../../torture/dice.ts";
import { trueNowMs } from "../../support/clocks/shifted-clocks.ts";
import { Journal } from "./journal.ts";
import { leftBehind } from "./left-behind.ts";
import { acquire } from "./ownership.ts";
import type { Owned } from "./ownership.ts";
import { KINDS, SESSIONS } from "./report.ts";
import type { Kind, Order, Report, WorkerOptions } from "./report.ts";

const EFFECTS_MAX = 6;
const EFFECT_PAUSE_MS_MAX = 120;
const REST_MS_MAX = 200;
const ROUNDS_MAX = 12;
const PATIENCE_MS = 4_000;
/** Owners that do nothing but look, until they stop: their last look is as late as the client lets it be. */
const CLINGING = 0.3;
const CLING_TTLS_MAX = 2.2;
const LOOK_EVERY_MS = 15;
/** Effects that were sent in time and arrive late: only the guard can stop them. */
const LATE = 0.3;
const LATE_MS_MIN = 100;
const LATE_MS_MAX = 1_500;

const options = JSON.parse(process.argv[2] ?? "") as WorkerOptions;
const dice = new Dice(options.seed);
const journal = new Journal(options);
const finish = new AbortController();
const orders: { wanted: Kind | undefined; calm: boolean } = { wanted: undefined, calm: false };

const tell = (report: Report): void => {
  process.stdout.write(`${JSON.stringify(report)}\n`);
};

createInterface({ input: process.stdin })
  .on("line", (line) => obey(JSON.parse(line) as Order))
  // Nobody keeps it any more.
  .on("close", () => process.exit(0));
for (const event of ["uncaughtException", "unhandledRejection"] as const) {
  process.on(event, (error: unknown) => {
    tell({ what: "broken", error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
    process.exit(1);
  });
}

const client = await connect({ endpoints: options.endpoints, connectTimeoutMs: 60_000 });
while (!finish.signal.aborted) await liveOneSession(client);
await journal.close();
client.close();
process.exit(0);

function obey(order: Order): void {
  switch (order.what) {
    case "spin": {
      const end = trueNowMs() + order.ms;
      while (trueNowMs() < end);
      tell({ what: "spun", ms: order.ms });
      return;
    }
    case "want":
      orders.wanted = order.kind;
      return;
    case "calm":
      orders.calm = order.calm;
      return;
    case "finish":
      finish.abort();
      return;
  }
}

async function liveOneSession(client: Client): Promise<void> {
  let session: Session;
  try {
    session = await client.session({ ttlMs: options.ttlMs, owner: options.name });
  } catch (error) {
    tell({ what: "no session", code: codeOf(error) });
    return;
  }
  tell({ what: "session", leaseId: session.leaseId });
  try {
    // Its end in the cell is seen by the end of this key.
    await client.put(sessionKey(session.leaseId), options.name, { leaseId: session.leaseId });
    const rounds = dice.between(1, ROUNDS_MAX);
    for (let round = 0; round < rounds && !session.lost.aborted && !finish.signal.aborted; round += 1) {
      await ownOneThing(client, session);
    }
  } catch (error) {
    codeOf(error);
  } finally {
    await session.close();
  }
}

async function ownOneThing(client: Client, session: Session): Promise<void> {
  const drawn = dice.pick(KINDS);
  const kind = orders.wanted ?? drawn;
  orders.wanted = undefined;
  const isPatient = dice.chance(0.6);
  tell({ what: "waiting", kind, atMs: trueNowMs() });
  let owned: Owned;
  try {
    owned = await acquire(client, kind, { session, ...(isPatient ? {} : { waitMs: PATIENCE_MS }) });
  } catch (error) {
    tell({ what: "gave up", kind, code: codeOf(error) });
    const left = await leftBehind(client, session, [sessionKey(session.leaseId)]);
    if (left.length > 0) tell({ what: "broken", error: `it gave up a ${kind} and left ${left.join(", ")}` });
    return;
  }
  const { claim, domains } = owned;
  const { token } = claim;
  tell({ what: "acquired", kind, token, leaseId: session.leaseId, domains, atMs: trueNowMs() });
  try {
    if (options.careful && dice.chance(CLINGING)) await cling(claim);
    for (let effects = dice.between(1, EFFECTS_MAX); effects > 0; effects -= 1) {
      if (!(await affect(owned))) break;
    }
  } finally {
    tell({ what: "releasing", token, atMs: trueNowMs() });
    await claim[Symbol.asyncDispose]();
  }
  if (dice.chance(LATE)) {
    await sleep(dice.between(LATE_MS_MIN, LATE_MS_MAX));
    tell({ what: await journal.write(token, domains), token });
  }
  await sleep(dice.between(0, REST_MS_MAX));
}

async function cling(claim: Claim): Promise<void> {
  const end = trueNowMs() + options.ttlMs * CLING_TTLS_MAX;
  while (!orders.calm && !finish.signal.aborted && trueNowMs() < end && isSure(claim))
    await sleep(LOOK_EVERY_MS);
}

/** @returns whether there may be a next one. */
async function affect({ claim, domains }: Owned): Promise<boolean> {
  const { token } = claim;
  await sleep(dice.between(0, EFFECT_PAUSE_MS_MAX));
  if (options.careful && !isSure(claim)) return false;
  // Stopped here, it wakes up with a token that is history.
  if (dice.chance(0.5)) await sleep(dice.between(0, EFFECT_PAUSE_MS_MAX));
  const written = await journal.write(token, domains);
  tell({ what: written, token });
  return written !== "refused";
}

function isSure(claim: Claim): boolean {
  const { token, session } = claim;
  // Before it looks: should it be stopped in between, it claims less than it is sure of.
  const atMs = trueNowMs();
  try {
    claim.assertHeld();
  } catch (error) {
    codeOf(error);
    tell({ what: "stopped", token });
    return false;
  }
  tell({ what: "sure", token, atMs, leftMs: session.remainingMs() });
  return true;
}

function sessionKey(leaseId: string): string {
  return `${SESSIONS}${leaseId}`;
}

/** The client's own errors are ordinary here; anything else is a defect. */
function codeOf(error: unknown): string {
  if (error instanceof LockstepError) return error.code;
  throw error;
}
