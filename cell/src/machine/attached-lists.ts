/** The keys of many leases that end together. */
import type { LeaseId } from "@lockstep/gateway/coordinator";
import type { StoreReader } from "../store/types.ts";
import { compareBytes } from "./bytes.ts";
import { LEASE_KEY_BYTES, leaseKey, prefixEnd } from "./keys.ts";
import { attachedKeys } from "./leases.ts";
import type { Lease } from "./leases.ts";

/** Rows of one scan. */
const PAGE_ROWS_MAX = 128;
/** A page of which less than this share was wanted is the last one: strangers' keys stand in between. */
const USEFUL_SHARE_MIN = 0.25;

interface Wanted {
  readonly lease: Lease;
  readonly prefix: Uint8Array;
}

/**
 * What the store's `lease-keys` lists for each of the leases, in order. Sessions that end together were mostly begun
 * together, so their rows stand side by side: a scan of its own for each lease is most of what an expiry costs (73 of
 * 100 microseconds), a stretch for many next to nothing. Where the rows of others stand in between, each is read alone.
 *
 * @param leases of one namespace, each once
 */
export function attachedLists(
  namespaceId: number,
  leases: readonly Lease[],
  reader: StoreReader,
): ReadonlyMap<LeaseId, readonly Uint8Array[]> {
  const lists = new Map<LeaseId, Uint8Array[]>();
  const wanted = leases
    .filter((lease) => lease.keys > 0)
    .map((lease): Wanted => ({ lease, prefix: leaseKey(namespaceId, lease.leaseId) }))
    .sort((a, b) => compareBytes(a.prefix, b.prefix));
  let next = wanted.length > 1 ? readStretches(wanted, lists, reader) : 0;
  for (; next < wanted.length; next += 1) {
    const { leaseId } = (wanted[next] as Wanted).lease;
    lists.set(leaseId, attachedKeys(namespaceId, leaseId, reader));
  }
  return lists;
}

/** Reads page after page as long as that pays. @returns the first of `wanted` that was not read to its end. */
function readStretches(
  wanted: readonly Wanted[],
  lists: Map<LeaseId, Uint8Array[]>,
  reader: StoreReader,
): number {
  const to = prefixEnd((wanted[wanted.length - 1] as Wanted).prefix);
  let next = 0;
  while (next < wanted.length) {
    const page = { from: (wanted[next] as Wanted).prefix, limit: rowsOf(wanted, next), keysOnly: true };
    const rows = reader.scan("lease-keys", to === undefined ? page : { ...page, to });
    let useful = 0;
    let at = next;
    for (const { key } of rows) {
      while (at < wanted.length && comparePrefix((wanted[at] as Wanted).prefix, key) < 0) at += 1;
      const one = wanted[at];
      if (one === undefined) break;
      if (comparePrefix(one.prefix, key) > 0) continue;
      useful += 1;
      listOf(lists, one.lease.leaseId).push(key.subarray(LEASE_KEY_BYTES));
    }
    const last = rows[rows.length - 1];
    if (last === undefined || rows.length < page.limit) return wanted.length;
    while (at < wanted.length && comparePrefix((wanted[at] as Wanted).prefix, last.key) < 0) at += 1;
    // The last row's lease may have more: it is read anew.
    if (at < wanted.length) lists.delete((wanted[at] as Wanted).lease.leaseId);
    if (at === next || useful < rows.length * USEFUL_SHARE_MIN) return at;
    next = at;
  }
  return next;
}

/** One row more than the leases from here on have: when no others stand between them, the page is known to be whole. */
function rowsOf(wanted: readonly Wanted[], from: number): number {
  let rows = 0;
  for (let at = from; at < wanted.length && rows < PAGE_ROWS_MAX; at += 1) {
    rows += (wanted[at] as Wanted).lease.keys;
  }
  return Math.min(rows, PAGE_ROWS_MAX) + 1;
}

function listOf(lists: Map<LeaseId, Uint8Array[]>, leaseId: LeaseId): Uint8Array[] {
  let list = lists.get(leaseId);
  if (list === undefined) lists.set(leaseId, (list = []));
  return list;
}

function comparePrefix(prefix: Uint8Array, key: Uint8Array): number {
  for (let at = 0; at < LEASE_KEY_BYTES; at += 1) {
    const difference = (prefix[at] as number) - (key[at] as number);
    if (difference !== 0) return difference;
  }
  return 0;
}
