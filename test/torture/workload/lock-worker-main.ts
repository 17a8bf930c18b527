// A client process that holds a lock now and then and works under it, carelessly: it does not look at its session between
// two effects, so only the token stands between a worker that was stopped for long and the register. Started by the
// torture, which stops and continues it at will and reads its lines; ends with its standard input.
import { LockstepError, connect } from "@lockstep/client";
import type { Lock, Session } from "@lockstep/client";
import { flushCompileCache } from "node:module";
import { Agent, request } from "node:http";
import type { Effect, Handover } from "./guard.ts";

const [, , worker = "", lock = "", port = "", ttl = "", ...endpoints] = process.argv;
const EFFECTS = 6;
const EFFECT_PAUSE_MS = 120;
const agent = new Agent({ keepAlive: true });

process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
process.on("SIGINT", () => undefined);

flushCompileCache();
const client = await connect({ endpoints, connectTimeoutMs: 30_000 });
for (;;) {
  try {
    const session = await client.session({ ttlMs: Number(ttl), owner: worker });
    try {
      while (!session.lost.aborted) await work(session);
    } finally {
      await session.close();
    }
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error;
    await sleep(200);
  }
}

async function work(session: Session): Promise<void> {
  const held = await client.lock(lock, { session, waitMs: 60_000 });
  tell(held, "acquired");
  for (let effect = 0; effect < EFFECTS; effect += 1) {
    const { token } = held;
    const nowMs = now();
    const leftMs = session.remainingMs();
    // Once nothing is left it is not sure of anything, not even of this very moment.
    const sureUntilMs = leftMs > 0 ? nowMs + leftMs : 0;
    // Stopped here, it wakes up with a token that is history.
    await sleep(EFFECT_PAUSE_MS);
    if (!(await write({ lock, worker, token, sureUntilMs }))) break;
  }
  tell(held, "releasing");
  await held.release();
  await sleep(50);
}

function tell(held: Lock, what: Handover["what"]): void {
  const line: Handover = { lock, worker, token: held.token, what, atMs: now() };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** The same for all processes of the machine. */
function now(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Whether the guarded register took it. */
function write(effect: Effect): Promise<boolean> {
  return new Promise((resolve) => {
    const call = request(
      { host: "127.0.0.1", port: Number(port), method: "POST", path: "/", agent },
      (response) => {
        response.resume();
        response.on("end", () => resolve(response.statusCode === 200));
      },
    );
    call.on("error", () => resolve(false));
    call.end(JSON.stringify(effect));
  });
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
