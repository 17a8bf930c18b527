/**
 * Single keys that reads which wait already will ask for. The first of them that is not in the cache fetches the rest as
 * well, in one look-up: reads come by the hundred in a frame and wait for the same round of heartbeats, and a look-up of
 * many keys costs the store much less than many look-ups.
 */
import type { StoreReader } from "../store/types.ts";
import type { KeyStates } from "./key-states.ts";
import type { KeyRecord } from "./records.ts";

const KEYS_MAX = 1_024;

export class ReadAhead {
  private readonly keys: KeyStates;
  private namespaceIds: number[] = [];
  private wanted: Uint8Array[] = [];

  constructor(keys: KeyStates) {
    this.keys = keys;
  }

  /** A hint: nothing depends on it. */
  add(namespaceId: number, key: Uint8Array): void {
    // What is left are keys that were found in the cache.
    if (this.wanted.length >= KEYS_MAX) this.clear();
    this.namespaceIds.push(namespaceId);
    // Not the request's own bytes: they would keep the whole of what was received with it.
    this.wanted.push(key.slice());
  }

  clear(): void {
    this.namespaceIds = [];
    this.wanted = [];
  }

  /** To be called for a key that is not in the cache. */
  fetch(reader: StoreReader): void {
    if (this.wanted.length <= 1) return;
    const { wanted, namespaceIds } = this;
    this.clear();
    const records = new Set<KeyRecord>();
    for (const [at, key] of wanted.entries()) {
      const record = this.keys.cache.obtain(namespaceIds[at] as number, key);
      if (record.status === "unknown") records.add(record);
    }
    const unknown = [...records];
    if (unknown.length > 0) this.keys.load(unknown, reader);
    this.keys.loadValues(unknown, reader);
  }
}
