import assert from "node:assert/strict";
import { test } from "node:test";
import { LockstepError, type AcquireOptions, type Claim, type Client, type Session } from "../index.ts";
import type { FakeMember } from "../testing/fake-cell.ts";
import { connectTo, eventually, keysIn, setUp } from "./testing/set-up.ts";

const ACTORS = 6;
const TURNS_EACH = 40;
const SEEDS = 3;

/** A small generator of its own: a seed replays the same choices (not the same interleaving of real streams). */
function diceOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

type Acquire = (client: Client, options: AcquireOptions) => Promise<Claim>;

/** Those that exclude each other stand together. */
const RECIPES: readonly { readonly domain: string; readonly acquire: Acquire }[] = [
  { domain: "exclusive", acquire: (client, options) => client.lock("a", options) },
  { domain: "exclusive", acquire: (client, options) => client.multiLock(["a", "b"]).acquire(options) },
  { domain: "fair", acquire: (client, options) => client.fairLock("a").acquire(options) },
  { domain: "fair", acquire: (client, options) => client.fairLock("a").acquire(options) },
  { domain: "election", acquire: (client, options) => client.election("a").campaign(options) },
  { domain: "read-write", acquire: (client, options) => client.readWriteLock("a").write(options) },
  {
    domain: "semaphore",
    acquire: (client, options) => client.semaphore("a", { permits: 1 }).acquire(options),
  },
];

interface World {
  readonly member: FakeMember;
  readonly dice: () => number;
  /** Claims whose holders are at work. */
  readonly inside: Map<string, Set<Claim>>;
  readonly sessions: Set<Session>;
  readonly counts: Record<"held" | "refused" | "disturbed", number>;
}

/** The cell's own word on whether it is held. */
function isTrue(member: FakeMember, claim: Claim): boolean {
  return claim.conditions.every(
    ({ key, createRevision }) => member.store.kvs.get(String(key))?.createRevision === createRevision,
  );
}

async function work(world: World, domain: string, claim: Claim, client: Client): Promise<void> {
  const { member, inside } = world;
  const holders = inside.get(domain) ?? new Set();
  inside.set(domain, holders);
  holders.add(claim);
  world.counts.held += 1;
  try {
    const true_ = [...holders].filter((holder) => isTrue(member, holder));
    assert.ok(true_.length <= 1, `${domain}: ${String(true_.length)} hold it at once`);
    await client.get("/work").catch(() => undefined);
    claim.held.throwIfAborted();
    claim.assertHeld();
  } finally {
    holders.delete(claim);
  }
}

async function act(world: World, client: Client): Promise<void> {
  const { dice, sessions } = world;
  let session: Session | undefined;
  for (let turn = 0; turn < TURNS_EACH; turn++) {
    const recipe = RECIPES[Math.floor(dice() * RECIPES.length)] ?? {
      domain: "",
      acquire: () => assert.fail(),
    };
    const patience = dice();
    try {
      if (session === undefined || session.lost.aborted) {
        session = await client.session({ ttlMs: 20_000 });
        sessions.add(session);
      }
      await using claim = await recipe.acquire(client, {
        session,
        ...(patience < 0.2 ? { waitMs: 0 } : patience < 0.6 ? { waitMs: Math.ceil(dice() * 60) } : {}),
        ...(dice() < 0.2 ? { signal: AbortSignal.timeout(Math.ceil(dice() * 40)) } : {}),
      });
      await work(world, recipe.domain, claim, client);
    } catch (error) {
      // Refused, lost, taken away: what a hostile world explains. A failed assertion is none of these.
      if (!(error instanceof LockstepError)) throw error;
      world.counts.refused += 1;
    }
  }
}

/** What happens to a process or a cell. */
function disturb({ member, dice, sessions, counts }: World): void {
  counts.disturbed += 1;
  const kind = dice();
  if (kind < 0.3) member.breakStreams();
  else if (kind < 0.5) {
    const [session] = [...sessions].filter(({ lost }) => !lost.aborted).sort(() => dice() - 0.5);
    if (session !== undefined) member.store.expire(session.leaseId);
  } else if (kind < 0.7) member.store.compactRevision = member.store.revision;
  else {
    const fate = dice() < 0.5 ? "execute-and-break" : "fail";
    member.judge = (_, { operation }) => {
      if (operation?.$case !== "txn") return { kind: "execute" };
      member.judge = () => ({ kind: "execute" });
      return fate === "fail"
        ? { kind: fate, failure: { code: "overloaded", retryAfterMs: 1 } }
        : { kind: fate };
    };
  }
}

const met = { held: 0, refused: 0, disturbed: 0 };

for (let round = 0; round < SEEDS; round++) {
  const given = process.env["LOCKSTEP_SEED"];
  const seed = given === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(given) + round;
  test(`chaos, LOCKSTEP_SEED=${String(seed)} node --test client/src/recipes/chaos.test.ts: locks of all kinds exclude each other, nobody hangs, nothing stays`, async (t) => {
    const { member, client } = await setUp();
    const world: World = {
      member,
      dice: diceOf(seed),
      inside: new Map(),
      sessions: new Set(),
      counts: { held: 0, refused: 0, disturbed: 0 },
    };
    const clients = await Promise.all(
      Array.from({ length: ACTORS }, (_, i) =>
        connectTo(member, { identity: i % 2 === 0 ? "client" : "none" }),
      ),
    );
    const disturbing = setInterval(() => disturb(world), 15);
    try {
      await Promise.all(clients.map((each) => act(world, each)));
    } finally {
      clearInterval(disturbing);
      member.judge = () => ({ kind: "execute" });
    }
    t.diagnostic(JSON.stringify(world.counts));
    await client.get("/settled");
    // The sessions live on: what is gone is gone by what the recipes did.
    await eventually("nothing is left", () => keysIn(member).length === 0);
    for (const what of ["held", "refused", "disturbed"] as const) met[what] += world.counts[what];
  });
}

test("chaos: what the rounds met together", () => {
  // How much of each is a matter of the machine: on a busy one hardly anybody is patient enough.
  assert.ok(met.held > 5 && met.refused > 0 && met.disturbed > 0, JSON.stringify(met));
});
