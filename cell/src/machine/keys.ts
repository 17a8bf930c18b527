/** Keys of the store's rows (FORMAT.md). Each begins with the namespace's id, so a namespace is one range everywhere. */
import { copyInto } from "./bytes.ts";
import { putLeaseId, putUint32, putUint64 } from "./codec/primitives.ts";

export const NAMESPACE_BYTES = 4;
export const HISTORY_KEY_BYTES = 16;

/** `index`: live keys and tombstones are two ranges, so that a range read never walks over what is gone. */
export const LIVE = 1;
export const TOMBSTONE = 2;
export const INDEX_PREFIX_BYTES: number = NAMESPACE_BYTES + 1;

/** `requests` tables. */
export const CLIENTS = 1;
export const OUTCOMES = 2;
export const IDLE = 3;
export const TOKENS = 4;
export const TOKEN_ORDER = 5;

/** `meta` rows; those of the cell are under namespace 0. `m` and `M` are the membership's. */
export const META_STATE = 0x73; // s
export const META_SETTINGS = 0x63; // c
export const META_NAMESPACE = 0x6e; // n
export const META_COMPACTION = 0x70; // p
export const META_REMOVAL = 0x64; // d
export const CELL_NAMESPACE = 0;

/** Everything of a namespace, in whatever keyspace, lies from here to the next one's. */
export function namespaceKey(namespaceId: number): Uint8Array {
  const row = new Uint8Array(NAMESPACE_BYTES);
  putUint32(row, 0, namespaceId);
  return row;
}

export function indexKey(namespaceId: number, section: number, key: Uint8Array): Uint8Array {
  const row = new Uint8Array(INDEX_PREFIX_BYTES + key.length);
  writeIndexKey(row, 0, { namespaceId, section, key });
  return row;
}

/** In one piece of memory: many small ones cost more to make than to fill. */
export function indexKeys(
  section: number,
  keys: readonly { readonly namespaceId: number; readonly key: Uint8Array; readonly keyLength: number }[],
): Uint8Array[] {
  let bytes = 0;
  for (const { keyLength } of keys) bytes += INDEX_PREFIX_BYTES + keyLength;
  const rows = new Uint8Array(bytes);
  let end = 0;
  return keys.map(({ namespaceId, key }) => {
    const at = end;
    end = writeIndexKey(rows, at, { namespaceId, section, key });
    return new Uint8Array(rows.buffer, at, end - at);
  });
}

/** @returns the position after it. */
export function writeIndexKey(
  buffer: Uint8Array,
  at: number,
  row: { readonly namespaceId: number; readonly section: number; readonly key: Uint8Array },
): number {
  putUint32(buffer, at, row.namespaceId);
  buffer[at + NAMESPACE_BYTES] = row.section;
  return copyInto(buffer, at + INDEX_PREFIX_BYTES, row.key);
}

export function historyKey(namespaceId: number, revision: number, sub: number): Uint8Array {
  const row = new Uint8Array(HISTORY_KEY_BYTES);
  putUint32(row, 0, namespaceId);
  putUint64(row, 4, revision);
  putUint32(row, 12, sub);
  return row;
}

export function leaseKey(namespaceId: number, leaseId: string): Uint8Array {
  const row = new Uint8Array(NAMESPACE_BYTES + 8);
  putUint32(row, 0, namespaceId);
  putLeaseId(row, NAMESPACE_BYTES, leaseId);
  return row;
}

export const LEASE_KEY_BYTES: number = NAMESPACE_BYTES + 8;

/** @returns the position after it. */
export function writeAttachedKey(
  buffer: Uint8Array,
  at: number,
  row: { readonly namespaceId: number; readonly leaseId: string; readonly key: Uint8Array },
): number {
  putUint32(buffer, at, row.namespaceId);
  putLeaseId(buffer, at + NAMESPACE_BYTES, row.leaseId);
  return copyInto(buffer, at + LEASE_KEY_BYTES, row.key);
}

/** `requests`: ns, table, then numbers (8 bytes each). */
export function requestKey(namespaceId: number, table: number, ...numbers: readonly number[]): Uint8Array {
  const row = new Uint8Array(NAMESPACE_BYTES + 1 + numbers.length * 8);
  putUint32(row, 0, namespaceId);
  row[NAMESPACE_BYTES] = table;
  let at = NAMESPACE_BYTES + 1;
  for (const number of numbers) {
    putUint64(row, at, number);
    at += 8;
  }
  return row;
}

export function tokenKey(namespaceId: number, token: Uint8Array): Uint8Array {
  const row = new Uint8Array(NAMESPACE_BYTES + 1 + token.length);
  putUint32(row, 0, namespaceId);
  row[NAMESPACE_BYTES] = TOKENS;
  row.set(token, NAMESPACE_BYTES + 1);
  return row;
}

export function metaKey(namespaceId: number, what: number): Uint8Array {
  const row = new Uint8Array(NAMESPACE_BYTES + 1);
  putUint32(row, 0, namespaceId);
  row[NAMESPACE_BYTES] = what;
  return row;
}

/** The first key after everything that begins with `prefix`; undefined when there is none. */
export function prefixEnd(prefix: Uint8Array): Uint8Array | undefined {
  for (let last = prefix.length - 1; last >= 0; last--) {
    const byte = prefix[last] as number;
    if (byte === 0xff) continue;
    const end = prefix.slice(0, last + 1);
    end[last] = byte + 1;
    return end;
  }
  return undefined;
}
