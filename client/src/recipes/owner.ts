import type { Client } from "../client.ts";
import type { Session } from "../session.ts";
import type { KeyValue } from "../types.ts";

/** What a claim's value says: for people who look who holds something, and to find one's own key again. */
export interface OwnerMark {
  readonly owner: string;
  /** Tells this attempt's key from any other's, also of the same session. */
  readonly attempt: string;
  /** Milliseconds since the epoch, by the owner's clock. */
  readonly at: number;
}

export function ownerMark(client: Client, session: Session): OwnerMark {
  return { owner: session.owner, attempt: client.runtime.uuid(), at: Math.round(client.runtime.wallNow()) };
}

/** The fields of a value that is a JSON object; none when it is not one. */
export function fieldsOf(kv: KeyValue): ReadonlyMap<string, unknown> {
  try {
    const value = kv.json();
    if (typeof value === "object" && value !== null) return new Map(Object.entries(value));
  } catch {
    // A key that was not written by this library counts all the same.
  }
  return new Map();
}

/** Who holds something, or waits for it. */
export interface LockState {
  readonly token: number;
  readonly leaseId: string;
  /** What its session said of itself. */
  readonly owner: string;
  /** When it began to hold or to wait, by its own clock; absent: it did not say. */
  readonly sinceMs?: number;
}

/** Reads the key of a claim; undefined: there is none. */
export function lockState(kv: KeyValue): LockState;
export function lockState(kv: KeyValue | undefined): LockState | undefined;
export function lockState(kv: KeyValue | undefined): LockState | undefined {
  if (kv === undefined) return undefined;
  const fields = fieldsOf(kv);
  const owner = fields.get("owner");
  const at = fields.get("at");
  return {
    token: kv.createRevision,
    leaseId: kv.leaseId,
    owner: typeof owner === "string" ? owner : "",
    ...(typeof at === "number" ? { sinceMs: at } : {}),
  };
}
