import assert from "node:assert/strict";
import { after } from "node:test";
import { connect, type Client, type ConnectOptions } from "../../index.ts";
import { FakeMember, type FakeMemberOptions } from "../../testing/fake-cell.ts";

const cleanUps: (() => void)[] = [];
after(() => {
  for (const cleanUp of cleanUps.reverse()) cleanUp();
});

/** A cell in memory and a client of it; both end with the file's tests. */
export async function setUp(
  options: Partial<ConnectOptions> = {},
  memberOptions: FakeMemberOptions = {},
): Promise<{ readonly member: FakeMember; readonly client: Client }> {
  const member = await FakeMember.start(memberOptions);
  cleanUps.push(() => member.stop());
  return { member, client: await connectTo(member, options) };
}

/** One more process on the same cell. */
export async function connectTo(member: FakeMember, options: Partial<ConnectOptions> = {}): Promise<Client> {
  const client = await connect({ endpoints: [member.address], ...options });
  cleanUps.push(() => client.close());
  return client;
}

/** The keys that are there. */
export function keysIn(member: FakeMember): string[] {
  return [...member.store.kvs.keys()];
}

/** Waits, turn by turn, for something that is bound to happen. */
export async function eventually(what: string, holds: () => boolean): Promise<void> {
  const limit = performance.now() + 10_000;
  while (!holds()) {
    assert.ok(performance.now() < limit, `waited too long until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** Everything that was sent before has been executed. */
export async function settled(client: Client): Promise<void> {
  await client.get("/settled");
}

export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
