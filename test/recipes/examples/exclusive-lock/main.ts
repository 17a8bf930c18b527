import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

{
  await using lock = await client.lock("report-42", { session, waitMs: 30_000 });
  // The signal ends what is under way; the clock is asked before each effect; the token goes with each of them.
  for (const part of ["header", "body"]) {
    lock.assertHeld(2_000);
    await write(part, { token: lock.token, signal: lock.held });
  }
}
console.log("free again:", (await client.lock("report-42").holder()) === undefined);

function write(
  part: string,
  options: { readonly token: number; readonly signal: AbortSignal },
): Promise<void> {
  options.signal.throwIfAborted();
  console.log(`wrote ${part} with the token ${String(options.token)}`);
  return Promise.resolve();
}
