import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

const barrier = client.barrier("migration");
await barrier.raise({ session });

const workers = ["a", "b"].map(async (name) => {
  await barrier.wait({ waitMs: 30_000 });
  return name;
});
console.log("up:", await barrier.isUp());
await barrier.lower();
console.log("went on:", (await Promise.all(workers)).join(", "));
