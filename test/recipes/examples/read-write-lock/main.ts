import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

const lock = client.readWriteLock("catalogue");

const one = await lock.read({ session });
const two = await lock.read({ session });
console.log("a writer gets in beside readers:", (await lock.tryWrite({ session })) !== undefined);

const writing = lock.write({ session });
await one.release();
await two.release();
const writer = await writing;
console.log("a later claim has a larger token:", writer.token > two.token);
console.log("a reader gets in beside a writer:", (await lock.tryRead({ session })) !== undefined);
await writer.release();
