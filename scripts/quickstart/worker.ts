// A worker of the quickstart: takes the lock over the native client, then writes to the protected resource whenever
// it is told to. It speaks JSON lines: {"event": …} on stdout, {"do": …} on stdin.
//
// On purpose it does NOT ask its lock before a write: it is the process that was already past that check when it
// was paused. What saves the data is the resource, which refuses the smaller token.
import { connect } from "@lockstep/client";
import { createInterface } from "node:readline";

const [name = "worker", endpoints = "", resourceUrl = "", ttlMs = "3000"] = process.argv.slice(2);

const tell = (event: string, fields: object = {}): void =>
  void process.stdout.write(`${JSON.stringify({ event, ...fields })}\n`);

const client = await connect({ endpoints: endpoints.split(",") });
const session = await client.session({ ttlMs: Number(ttlMs), owner: name });
tell("session", { leaseId: session.leaseId, ttlMs: session.ttlMs });
session.lost.addEventListener("abort", () => tell("session-lost", { reason: String(session.lost.reason) }));

const lock = await client.lock("report-42", { session });
tell("locked", { token: lock.token, tokenString: lock.tokenString, key: lock.key });

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line) as { readonly do: "write" | "check" | "stop"; readonly text?: string };
  switch (command.do) {
    case "write": {
      const response = await fetch(resourceUrl, {
        method: "PUT",
        headers: { "fencing-token": lock.tokenString },
        body: command.text ?? "",
      });
      tell("written", { status: response.status, answer: await response.text() });
      break;
    }
    case "check": {
      const now = await client.get(lock.key);
      tell("checked", { stillMine: now?.createRevision === lock.token, remainingMs: session.remainingMs() });
      break;
    }
    case "stop":
      await lock.release();
      await session.close();
      client.close();
      process.exit(0);
  }
}
