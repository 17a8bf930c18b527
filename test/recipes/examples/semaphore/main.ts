import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

// All who use it must say the same number: another one is refused with `limit-mismatch`.
const semaphore = client.semaphore("downloads", { permits: 2 });

const first = await semaphore.acquire({ session });
const second = await semaphore.acquire({ session });
console.log("slots", first.slot, "and", second.slot);
console.log("a third at once:", (await semaphore.tryAcquire({ session })) !== undefined);

const waiting = semaphore.acquire({ session });
await first.release();
const third = await waiting;
console.log("the third has slot", third.slot, "and a larger token there:", third.token > first.token);
await second.release();
await third.release();
