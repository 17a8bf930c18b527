import { connect } from "@lockstep/client";

const cell = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints: cell });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

interface Address {
  readonly url: string;
}

function parse(json: unknown): Address {
  if (typeof json !== "object" || json === null || !("url" in json) || typeof json.url !== "string") {
    throw new TypeError("an endpoint has a url");
  }
  return { url: json.url };
}

const api = client.service<Address>("api");
await using endpoints = await api.endpoints({ parse, onError: (error) => console.error(error) });
const changes = endpoints.changes();

const me = await api.register({ session, id: "api-1", value: { url: "http://10.0.0.1:8080" } });
await changes.next();
// No call: the set is here. It is never emptied by an outage; `stale` says when it may be old.
for (const { id, value } of endpoints.current) console.log(id, value.url, "stale:", endpoints.stale);

// Out of the set first, then a moment for callers to learn of it, and only then close the listener.
await me.deregister({ drainMs: 100 });
console.log("left:", endpoints.current.length);
