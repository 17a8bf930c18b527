/** The lease table: a bounded cache of lease rows that also holds the present batch's changes. */
import type { LeaseId } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { StoreReader } from "../store/types.ts";
import { keyAfter } from "./bytes.ts";
import { ByteReader, ByteWriter, getLeaseId, getUint32 } from "./codec/primitives.ts";
import { LEASE_KEY_BYTES, leaseKey, NAMESPACE_BYTES, prefixEnd } from "./keys.ts";
import type { KeyRecord } from "./records.ts";
import type { RowSink } from "./sink.ts";
import type { LeaseRecord } from "./types.ts";

const ATTACHED_PAGE_ROWS = 1024;
const ROWS_CHUNK_BYTES = 16 * 1024;

export class Lease {
  readonly namespaceId: number;
  readonly leaseId: LeaseId;
  exists = false;
  ttlMs = 0;
  checkpointMs = 0;
  owner = "";
  /** Keys attached now. */
  keys = 0;
  dirty = false;
  /** The store holds its row. */
  stored = false;
  /** Records that were attached in the present batch, perhaps for a moment only. */
  attached: KeyRecord[] = [];

  constructor(namespaceId: number, leaseId: LeaseId) {
    this.namespaceId = namespaceId;
    this.leaseId = leaseId;
  }
}

export class LeaseTable {
  private young = new Map<number, Map<LeaseId, Lease>>();
  private old = new Map<number, Map<LeaseId, Lease>>();
  private youngCount = 0;
  private readonly dirty: Lease[] = [];
  private readonly rows = new ByteWriter(ROWS_CHUNK_BYTES);
  private readonly sink: RowSink;
  private readonly generationCountMax: number;

  constructor(sink: RowSink, countMax: number) {
    this.sink = sink;
    this.generationCountMax = countMax / 2;
  }

  get(namespaceId: number, leaseId: LeaseId, reader: StoreReader): Lease {
    const cached = this.find(namespaceId, leaseId);
    if (cached !== undefined) return cached;
    return this.add(namespaceId, leaseId, reader.get("leases", leaseKey(namespaceId, leaseId)));
  }

  /** Fetches what the batch will ask for in one look-up. */
  prefetch(
    wanted: readonly { readonly namespaceId: number; readonly leaseId: LeaseId }[],
    reader: StoreReader,
  ): void {
    const missing = wanted.filter((w) => this.find(w.namespaceId, w.leaseId) === undefined);
    if (missing.length === 0) return;
    const rows = reader.getMany(
      "leases",
      missing.map((w) => leaseKey(w.namespaceId, w.leaseId)),
    );
    for (const [i, w] of missing.entries()) {
      if (this.find(w.namespaceId, w.leaseId) === undefined) this.add(w.namespaceId, w.leaseId, rows[i]);
    }
  }

  exists(namespaceId: number, leaseId: LeaseId, reader: StoreReader): boolean {
    return this.get(namespaceId, leaseId, reader).exists;
  }

  attach(namespaceId: number, leaseId: LeaseId, record: KeyRecord, reader: StoreReader): void {
    const lease = this.get(namespaceId, leaseId, reader);
    assert(lease.exists, "a key is attached to a lease that exists", { leaseId });
    lease.keys += 1;
    lease.attached.push(record);
    this.touch(lease);
  }

  detach(namespaceId: number, leaseId: LeaseId, reader: StoreReader): void {
    const lease = this.get(namespaceId, leaseId, reader);
    assert(lease.keys > 0, "a key is detached from a lease that holds keys", { leaseId });
    lease.keys -= 1;
    this.touch(lease);
  }

  touch(lease: Lease): void {
    if (lease.dirty) return;
    lease.dirty = true;
    this.dirty.push(lease);
  }

  /** End of a batch: emits the lease rows. */
  settle(): void {
    for (const lease of this.dirty) {
      const key = leaseKey(lease.namespaceId, lease.leaseId);
      if (lease.exists) this.sink.put("leases", key, leaseRow(this.rows, lease), !lease.stored);
      else this.sink.delete("leases", key);
      lease.stored = lease.exists;
      lease.dirty = false;
      lease.attached = [];
    }
    this.dirty.length = 0;
    this.trim();
  }

  /** Frees what is over the bound; only when nothing is dirty. */
  trim(): void {
    if (this.youngCount <= this.generationCountMax) return;
    this.old = this.young;
    this.young = new Map();
    this.youngCount = 0;
  }

  clear(): void {
    this.young = new Map();
    this.old = new Map();
    this.youngCount = 0;
  }

  private find(namespaceId: number, leaseId: LeaseId): Lease | undefined {
    const lease = this.young.get(namespaceId)?.get(leaseId);
    if (lease !== undefined) return lease;
    const older = this.old.get(namespaceId)?.get(leaseId);
    if (older !== undefined) this.remember(older);
    return older;
  }

  private add(namespaceId: number, leaseId: LeaseId, row: Uint8Array | undefined): Lease {
    const lease = new Lease(namespaceId, leaseId);
    if (row !== undefined) readLeaseRow(lease, row);
    lease.stored = lease.exists;
    this.remember(lease);
    return lease;
  }

  private remember(lease: Lease): void {
    let leases = this.young.get(lease.namespaceId);
    if (leases === undefined) this.young.set(lease.namespaceId, (leases = new Map<LeaseId, Lease>()));
    leases.set(lease.leaseId, lease);
    this.youngCount += 1;
  }
}

function leaseRow(writer: ByteWriter, lease: Lease): Uint8Array {
  writer.varint(lease.ttlMs);
  writer.varint(lease.checkpointMs);
  writer.varint(lease.keys);
  writer.text(lease.owner);
  return writer.take();
}

function readLeaseRow(lease: Lease, row: Uint8Array): void {
  const reader = new ByteReader(row);
  lease.exists = true;
  lease.ttlMs = reader.varint();
  lease.checkpointMs = reader.varint();
  lease.keys = reader.varint();
  lease.owner = reader.text();
  reader.end();
}

export function leaseRecord(lease: Lease): LeaseRecord {
  const { namespaceId, leaseId, ttlMs, checkpointMs, owner } = lease;
  return { namespaceId, leaseId, ttlMs, checkpointMs, owner };
}

/** A row of `leases` as the session keeper sees it. */
export function readLeaseRecord(key: Uint8Array, value: Uint8Array): LeaseRecord {
  const lease = new Lease(getUint32(key, 0), getLeaseId(key, NAMESPACE_BYTES));
  readLeaseRow(lease, value);
  return leaseRecord(lease);
}

/** The keys that the store's `lease-keys` lists for a lease, in order. */
export function attachedKeys(namespaceId: number, leaseId: LeaseId, reader: StoreReader): Uint8Array[] {
  const prefix = leaseKey(namespaceId, leaseId);
  const to = prefixEnd(prefix);
  const keys: Uint8Array[] = [];
  let from = prefix;
  for (;;) {
    const rows = reader.scan("lease-keys", {
      from,
      ...(to === undefined ? {} : { to }),
      limit: ATTACHED_PAGE_ROWS,
      keysOnly: true,
    });
    for (const row of rows) keys.push(row.key.subarray(LEASE_KEY_BYTES));
    const last = rows.at(-1);
    if (last === undefined || rows.length < ATTACHED_PAGE_ROWS) return keys;
    from = keyAfter(last.key);
  }
}
