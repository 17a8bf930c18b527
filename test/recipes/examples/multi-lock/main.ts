import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

const transfer = client.multiLock(["account-7", "account-3"]);

await transfer.with({ session, waitMs: 30_000 }, (accounts) => {
  console.log("holding", accounts.names.join(" and "), "with one token:", accounts.token > 0);
});

// They are the same locks as the single ones: while one is taken, all are not to be had.
const single = await client.lock("account-3", { session });
console.log("both at once:", (await transfer.tryAcquire({ session })) !== undefined);
await single.release();
