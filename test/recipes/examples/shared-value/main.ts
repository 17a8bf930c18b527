import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });

interface Limits {
  readonly perSecond: number;
}

function parse(json: unknown): Limits {
  if (
    typeof json === "object" &&
    json !== null &&
    "perSecond" in json &&
    typeof json.perSecond === "number"
  ) {
    return { perSecond: json.perSecond };
  }
  throw new TypeError("limits have a number perSecond");
}

await using limits = await client.value<Limits>("/config/limits", {
  initial: { perSecond: 10 },
  parse,
  onError: (error) => console.log("kept the last good one:", String(error)),
});
console.log("now", limits.current.perSecond);

const changes = limits.changes();
await limits.set({ perSecond: 20 });
console.log("then", (await changes.next()).value?.perSecond);

// Somebody's mistake reaches nobody.
await client.put("/config/limits", '{"perSecond": "many"}');
await limits.set({ perSecond: 30 });
console.log("then", (await changes.next()).value?.perSecond);
await client.delete("/config/limits");
