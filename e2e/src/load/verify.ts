import type { ErrorCounts } from "./errors.ts";
import type { KeyRecord, Ledger } from "./ledger.ts";
import type { Guard } from "./locker.ts";
import type { Timing } from "./pace.ts";
import type { Store, Stored } from "./store.ts";
import type { Violations } from "./violations.ts";
import type { WatchCheck } from "./watch-check.ts";
import type { Watcher } from "./watcher.ts";
import type { Writer } from "./writer.ts";

/** What a verification looked at. What it found is among the load's violations. */
export interface Verification {
  /** False: the cell did not answer in time, so not everything was looked at. */
  readonly complete: boolean;
  /** Why it is not complete; empty if it is. */
  readonly reason: string;
  /** Keys that were read back. */
  readonly keys: number;
  /** Acknowledged writes that were read as of their own revision. */
  readonly past: number;
}

export interface VerifyParts {
  readonly store: Store;
  readonly prefix: string;
  readonly ledger: Ledger;
  readonly watch: WatchCheck;
  readonly watcher: Watcher;
  readonly guard: Guard;
  readonly violations: Violations;
  readonly errors: ErrorCounts;
  readonly timing: Timing;
  readonly writer: Writer;
  /** The key whose write tells where the watch has to get to. */
  readonly last: KeyRecord;
}

const ATTEMPTS_MAX = 10;
const BACKOFF_MS = 500;
const WATCH_MS_MAX = 30_000;

/** To be called while nobody else writes. */
export async function verifyAll(parts: VerifyParts): Promise<Verification> {
  const { watch, last } = parts;
  if (!(await writeLast(parts))) return incomplete(`no write was acknowledged: ${parts.errors.last}`);
  const keys = await readBack(parts);
  if (keys === undefined) return incomplete(`the keys could not be listed: ${parts.errors.last}`);
  const { revision = 0 } = last.last ?? {};
  const { timing, watcher } = parts;
  await Promise.race([watcher.reached(revision), timing.delay(WATCH_MS_MAX)]);
  if (watch.revision < revision)
    parts.violations.add(
      "watch-gap",
      `within ${WATCH_MS_MAX / 1000} s the watch has not shown revision ${revision}; it is at ${watch.revision}`,
    );
  return { complete: true, reason: "", keys, past: await readPast(parts) };
}

function incomplete(reason: string): Verification {
  return { complete: false, reason, keys: 0, past: 0 };
}

async function writeLast({ writer, last, timing }: VerifyParts): Promise<boolean> {
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt += 1) {
    if ((last.maybe.length === 0 || (await writer.read(last))) && (await writer.write(last))) return true;
    await timing.delay(BACKOFF_MS);
  }
  return false;
}

/** @returns how many keys were there; undefined: no answer. */
async function readBack(parts: VerifyParts): Promise<number | undefined> {
  const { ledger, guard, violations } = parts;
  const { floor } = ledger;
  const listed = await list(parts);
  if (listed === undefined) return undefined;
  const found = new Map(listed.stored.map((stored) => [stored.key, stored]));
  for (const record of ledger.records) {
    const stored = found.get(record.key);
    ledger.observed(
      record,
      { revision: listed.revision, ...(stored === undefined ? {} : { stored }) },
      floor,
    );
    found.delete(record.key);
  }
  const register = found.get(guard.key)?.value ?? 0;
  found.delete(guard.key);
  if (register < guard.acknowledged)
    violations.add(
      "lost-write",
      `the guarded register holds ${register}, and ${guard.acknowledged} had been written`,
    );
  for (const { key, value } of found.values())
    violations.add("phantom-write", `${key} = ${value} is there, and nobody wrote it`);
  return listed.stored.length;
}

async function list(
  parts: VerifyParts,
): Promise<{ readonly revision: number; readonly stored: readonly Stored[] } | undefined> {
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt += 1) {
    try {
      return await parts.store.list(parts.prefix);
    } catch (error) {
      parts.errors.add(error);
      await parts.timing.delay(BACKOFF_MS);
    }
  }
  return undefined;
}

/** Reads the last acknowledged writes as of their own revision, as far as the cell still has them. */
async function readPast({ store, ledger, violations, errors }: VerifyParts): Promise<number> {
  let count = 0;
  for (const { key, value, revision } of [...ledger.recent]) {
    try {
      const { stored } = await store.get(key, revision);
      count += 1;
      if (stored?.value !== value || stored.revision !== revision)
        violations.add(
          "lost-write",
          `${key} = ${value} was acknowledged at revision ${revision}, and as of that revision it is ${stored?.value ?? "absent"}`,
        );
    } catch (error) {
      // Compacted, mostly: then nothing older is there either, and newer writes may be.
      errors.add(error);
    }
  }
  return count;
}
