import type { Client } from "@lockstep/client";

/** Below it lie the keys that {@link fill} writes, `/fill/0000000` and on. */
export const FILL_PREFIX = "/fill/";

const KEYS_PER_TRANSACTION = 64;
const IN_FLIGHT = 8;
const VALUE = "x".repeat(100);

/** Writes `count` keys of 100 bytes: a state that somebody who joins has to be sent. Writing them again changes no count. */
export async function fill(client: Client, count: number, deadlineMs: number): Promise<void> {
  let next = 0;
  const writeOn = async (): Promise<void> => {
    while (next < count) {
      const [from, to] = [next, Math.min(count, next + KEYS_PER_TRANSACTION)];
      next = to;
      const success = Array.from({ length: to - from }, (_, i) => ({
        put: { key: `${FILL_PREFIX}${String(from + i).padStart(7, "0")}`, value: VALUE },
      }));
      await client.txn({ compares: [], success }, { deadlineMs });
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, writeOn));
}
