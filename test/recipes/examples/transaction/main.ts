import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

await client.put("/reports/42", "draft");
await using lock = await client.lock("report-42", { session });

const publish = client
  .transaction()
  .ifHeld(lock)
  .ifValue("/reports/42", "draft")
  .put("/reports/42", "published")
  .otherwise((steps) => steps.get("/reports/42"));

const first = await publish.commit();
console.log("published:", first.ok);

const again = await publish.commit();
if (!again.ok) {
  for (const { kind, key } of again.failed) console.log("did not hold:", kind, key);
  const [found] = again.results;
  console.log("found:", found.kvs[0]?.text());
}
await client.delete("/reports/42");
