import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

const log: string[] = [];

async function worker(name: string): Promise<void> {
  const part = await client.doubleBarrier("render", { participants: 2 }).enter({ session, waitMs: 30_000 });
  log.push("begin");
  await client.get(`/frames/${name}`);
  log.push("end");
  await part.leave();
  log.push("on");
}

await Promise.all([worker("left"), worker("right")]);
console.log("both began before one went on:", log.lastIndexOf("begin") < log.indexOf("on"));
console.log("both ended before one went on:", log.lastIndexOf("end") < log.indexOf("on"));
