import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

const lock = client.fairLock("gpu-0");
const served: string[] = [];

const first = await lock.acquire({ session });
const others = ["second", "third"].map((name) => lock.with({ session }, () => served.push(name)));
console.log("free at once:", (await lock.tryAcquire({ session })) !== undefined);

const { holder, waiters } = await lock.inspect();
console.log("held by", holder?.owner, "and", waiters.length, "wait");

await first.release();
await Promise.all(others);
console.log("served:", served.join(", "));
