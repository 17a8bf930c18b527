import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });

await client.put("/config/a", "1");
await client.put("/config/b", "2");

await using view = await client.view({ prefix: "/config/" });
console.log(
  "keys:",
  view
    .entries()
    .map((kv) => `${kv.keyText}=${kv.text()}`)
    .join(" "),
);

const changes = view.changes();
await client.put("/config/a", "3");
await client.delete("/config/b");
for await (const change of changes) {
  // Read the view itself after a snapshot: history was forgotten, or this loop was too slow for it.
  if (change.kind === "snapshot") console.log("look again:", view.size);
  if (change.kind === "put") console.log("put", change.key, change.kv.text());
  if (change.kind === "delete") console.log("deleted", change.key, "because", change.cause);
  if (change.kind === "delete") break;
}
await client.delete({ prefix: "/config/" });
