import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

const lock = client.lock("cache-rebuild");

// The holder: low priority, and willing to give way.
const held = await lock.acquire({ session });
await client.onAsked(
  held,
  async (request) => {
    console.log("asked by", request.owner, "for", request.reason);
    await held.release();
  },
  { onError: (error) => console.error(error) },
);

// Somebody with something better to do. It is asked, not forced: whether and when is the holder's decision.
await using asker = await client.session({ ttlMs: 15_000, owner: "deployment" });
const request = await lock.askHolder({ session: asker, reason: "a release" });
await using mine = await lock.acquire({ session: asker, waitMs: 30_000 });
await request?.release();
console.log("mine, with a larger token:", mine.token > held.token);
