// A user's program: checked against the published types and run with the published package, and nothing else of ours.
// It runs on the oldest Node that the package allows, so there is no `await using` in it.
import { connect, LockstepError, type Client, type Lock, type WatchEvent } from "@lockstep/client";
import { PostgresGuard } from "@lockstep/client/guards/postgres";
import { RedisGuard } from "@lockstep/client/guards/redis";
import { FencedRegister, StaleTokenError } from "@lockstep/client/guards/register";
import { S3Guard } from "@lockstep/client/guards/s3";
import { GrpcTransport, type Transport } from "@lockstep/client/transport";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
// One in a thread of its own, one on this thread.
const client = await connect({ endpoints });
const observer = await connect({ endpoints, worker: false });
try {
  const event = await firstEvent(observer, "/orders/7", () => client.put("/orders/7", "paid"));
  console.log("watched", event.kind, event.kv.keyText, event.kv.text());
  console.log("locked, with tokens that grow:", await tokensGrow(client));
  console.log(
    "also there:",
    PostgresGuard.name,
    RedisGuard.name,
    S3Guard.name,
    isTransport(new GrpcTransport(undefined)),
  );
} finally {
  client.close();
  observer.close();
}
await client.get("/orders/7").catch((error: unknown) => {
  console.log("closed:", error instanceof LockstepError && error.code);
});

/** The first change of `key`, made once the watch is known to see it. */
async function firstEvent(watcher: Client, key: string, change: () => Promise<unknown>): Promise<WatchEvent> {
  const watch = watcher.watch(key);
  await watch.created;
  await change();
  for await (const event of watch) return event;
  throw new Error("a watch does not end by itself");
}

async function tokensGrow(own: Client): Promise<boolean> {
  const session = await own.session({ ttlMs: 10_000, owner: "consumer" });
  const register = new FencedRegister("report", "");
  const take = (): Promise<number> => own.lock("report").with({ session, waitMs: 5_000 }, write);
  const write = (lock: Lock): number => {
    lock.assertHeld();
    register.write(lock.token, `by ${String(lock.token)}`);
    return lock.token;
  };
  try {
    const earlier = await take();
    const later = await take();
    return later > earlier && refuses(() => register.write(earlier, "late"));
  } finally {
    await session.close();
  }
}

function refuses(write: () => void): boolean {
  try {
    write();
    return false;
  } catch (error) {
    return error instanceof StaleTokenError;
  }
}

function isTransport(transport: Transport): boolean {
  return typeof transport.open === "function";
}

/** Never run: that the compiler refuses these shows that the types have arrived. */
export function mistakes(held: Lock): unknown {
  return [
    // @ts-expect-error a token is a number
    held.token satisfies string,
    // @ts-expect-error endpoints are needed
    connect({}),
    // @ts-expect-error a key is text or bytes
    client.get(7),
  ];
}
