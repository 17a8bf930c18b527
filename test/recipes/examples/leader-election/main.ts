import { connect } from "@lockstep/client";

const endpoints = (process.env["LOCKSTEP_ENDPOINTS"] ?? "127.0.0.1:7400").split(",");
await using client = await connect({ endpoints });
await using session = await client.session({ ttlMs: 15_000, owner: "example" });

const election = client.election("scheduler");
const observed = new AbortController();
const seen: string[] = [];
const watching = election.subscribe((leader) => seen.push(leader?.value ?? "nobody"), {
  signal: observed.signal,
  onError: (error) => console.error(error),
});

// Resolves when this process has led, done its work, and resigned.
await election.lead({ session, value: "host-7" }, async (leadership) => {
  console.log("leading in the term", leadership.term);
  await schedule(leadership.term, leadership.held);
  const leader = await election.leader();
  console.log("everybody sees", leader?.value);
});
console.log("leader now:", await election.leader());

observed.abort();
await watching;
console.log("the observer saw", seen.at(0), "first");

function schedule(term: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  // Put the term into every effect, and let what is affected refuse smaller ones.
  console.log("scheduled under the term", term);
  return Promise.resolve();
}
