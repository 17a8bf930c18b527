/** The machine as its host sees it. The work is in apply.ts, range.ts, history.ts and compaction.ts. */
import { NO_LEASE } from "@lockstep/gateway/coordinator";
import type {
  Failure,
  KeyValue,
  LeaseId,
  LeaseListOperation,
  LeaseListResult,
  RangeOperation,
  RangeResult,
  Revision,
  TxnCommand,
  TxnResult,
} from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { LogIndex } from "../raft/types.ts";
import type { StoreReader } from "../store/types.ts";
import type { MachineParts } from "./apply.ts";
import { applyEntries } from "./apply.ts";
import { EMPTY, keyAfter } from "./bytes.ts";
import { ClientTable } from "./clients.ts";
import { compactSlice } from "./compaction.ts";
import { refusal } from "./failures.ts";
import { readHistory, retentionDue, stateAt, strayHistory } from "./history.ts";
import { KeyStates } from "./key-states.ts";
import { leaseKey } from "./keys.ts";
import { attachedKeys, leaseRecord, LeaseTable, readLeaseRecord } from "./leases.ts";
import { PendingRows } from "./pending-rows.ts";
import { orderedRefusal } from "./ordered-range.ts";
import { rangeRefusal, readRange } from "./range.ts";
import { RecordCache } from "./records.ts";
import { DEFAULT_SETTINGS } from "./settings.ts";
import type { Crc32 } from "./sink.ts";
import { RowSink } from "./sink.ts";
import type { BootstrapOptions, NamespaceState } from "./state.ts";
import { bootstrapState, MachineState } from "./state.ts";
import { TokenTable } from "./tokens.ts";
import { readTxn } from "./txn.ts";
import type {
  Applied,
  Digest,
  ExternalRows,
  LeaseRecord,
  Machine,
  MachineEntry,
  MachineSettings,
  NamespaceId,
  NamespaceInfo,
  RetentionPolicy,
  RevisionEvents,
  RowMutation,
} from "./types.ts";

const CACHE_BYTES_DEFAULT = 64 * 1024 * 1024;
const CACHE_LEASES_MAX = 131_072;
const LEASE_LIST_DEFAULT = 1000;
/** Above those that may have been given without this member's knowledge. */
const NAMESPACE_IDS_SKIPPED = 1000;

export interface MachineOptions {
  readonly crc32: Crc32;
  /** What {@link LoadableMachine.bootstrap} gives a fresh cell. Default: {@link DEFAULT_SETTINGS}. */
  readonly settings?: MachineSettings;
  /** Bytes of hot records kept in memory. Default 32 MiB. Local: it decides no outcome. */
  readonly cacheBytesMax?: number;
}

/** The machine of one member, with how it begins. */
export interface LoadableMachine extends Machine {
  /**
   * Takes the state from the store's `meta`: at start, and after a snapshot replaced the store. Forgets everything
   * that was cached.
   */
  load(reader: StoreReader): void;
  /** Makes the state of a fresh cell. @returns its rows, to be written before anything is read. */
  bootstrap(options?: BootstrapOptions): readonly RowMutation[];
  /**
   * Raises the revision and the counters of lease and client ids by `by`, that of namespaces by less, outside of the
   * log: for a cell that goes on without those who know how far they had got. Its rows are among those of the next
   * apply.
   */
  lift(by: number): void;
  /**
   * At most `rowsMax` deletions of history above the revision. The store takes history before all else, so a crash may
   * leave such rows; the log writes them anew. Where that log is given up they have to go, before anything is written
   * above them.
   */
  strayHistory(reader: StoreReader, rowsMax: number): readonly RowMutation[];
  /** Bytes of hot records held, estimated. */
  readonly cacheBytes: number;
}

/** Before {@link LoadableMachine.load} or {@link LoadableMachine.bootstrap} it holds nothing and applies nothing. */
export function createMachine(options: MachineOptions): LoadableMachine {
  return new CellMachine(options);
}

class CellMachine implements LoadableMachine {
  private readonly state = new MachineState();
  private readonly sink: RowSink;
  private readonly keys: KeyStates;
  private readonly leases: LeaseTable;
  private readonly clients: ClientTable;
  private readonly parts: MachineParts;
  private readonly bootSettings: MachineSettings;

  constructor(options: MachineOptions) {
    this.bootSettings = options.settings ?? DEFAULT_SETTINGS;
    this.sink = new RowSink(options.crc32);
    const cache = new RecordCache(options.cacheBytesMax ?? CACHE_BYTES_DEFAULT);
    const neverDeleted = (id: number): boolean => this.state.namespaces.get(id)?.tombstones === 0;
    this.keys = new KeyStates(cache, this.sink, neverDeleted);
    this.leases = new LeaseTable(this.sink, CACHE_LEASES_MAX);
    const requests = new PendingRows("requests", this.sink);
    this.clients = new ClientTable(requests, this.sink);
    this.parts = {
      state: this.state,
      sink: this.sink,
      keys: this.keys,
      leases: this.leases,
      requests,
      clients: this.clients,
      tokens: new TokenTable(requests),
    };
  }

  get revision(): Revision {
    return this.state.revision as Revision;
  }

  get appliedIndex(): LogIndex {
    return this.state.appliedIndex as LogIndex;
  }

  get digest(): Digest {
    return { index: this.appliedIndex, hash: this.state.digest };
  }

  get formatVersion(): number {
    return this.state.formatVersion;
  }

  get settings(): MachineSettings {
    return this.state.settings;
  }

  get namespacesVersion(): number {
    return this.state.namespacesVersion;
  }

  get historyBytes(): number {
    let bytes = 0;
    for (const { written, reclaimed } of this.state.namespaces.values()) bytes += written - reclaimed;
    return bytes;
  }

  get timeMs(): number {
    return this.state.timeMs;
  }

  get cacheBytes(): number {
    return this.keys.cache.bytes;
  }

  load(reader: StoreReader): void {
    this.keys.clear();
    this.leases.clear();
    this.clients.clear();
    this.state.load(reader);
  }

  bootstrap(options: BootstrapOptions = {}): readonly RowMutation[] {
    return bootstrapState(this.state, { settings: this.bootSettings, ...options });
  }

  lift(by: number): void {
    const { state } = this;
    assert(state.revision + by < Number.MAX_SAFE_INTEGER, "revision < 2^53", {
      revision: state.revision,
      by,
    });
    state.revision += by;
    state.nextLeaseId += by;
    state.nextClientId += by;
    state.nextNamespaceId += NAMESPACE_IDS_SKIPPED;
  }

  strayHistory(reader: StoreReader, rowsMax: number): readonly RowMutation[] {
    return strayHistory(this.state, reader, rowsMax);
  }

  apply(entries: readonly MachineEntry[], reader: StoreReader, wantEvents = true): Applied {
    assert(this.state.formatVersion > 0, "the machine is loaded before it applies");
    return applyEntries(this.parts, entries, reader, wantEvents);
  }

  applyExternal({ index, mutations }: ExternalRows): Applied {
    const { state, sink } = this;
    assert(index === state.appliedIndex + 1, "entries are applied in order, each once", {
      index,
      applied: state.appliedIndex,
    });
    sink.beginEntry(state.digest);
    sink.note(index, mutations.length);
    for (const { keyspace, key, value } of mutations) {
      if (value === undefined) sink.delete(keyspace, key);
      else sink.put(keyspace, key, value);
    }
    state.digest = sink.endEntry();
    state.appliedIndex = index;
    sink.mutations.push(...state.rows());
    return { entries: [{ index, outcomes: [] }], mutations: sink.take(), events: [], leaseChanges: [] };
  }

  namespaceByName(name: string): NamespaceInfo | undefined {
    return this.state.namespaceByName(name)?.info();
  }

  namespace(id: NamespaceId): NamespaceInfo | undefined {
    return this.state.namespaces.get(id)?.info();
  }

  namespaces(): readonly NamespaceInfo[] {
    return [...this.state.namespaces.values()].map((namespace) => namespace.info());
  }

  expectRead(namespace: string, key: Uint8Array): void {
    const id = this.state.namespaceByName(namespace)?.id;
    if (id !== undefined) this.keys.readAhead.add(id, key);
  }

  range(
    namespaceId: NamespaceId,
    operation: RangeOperation,
    reader: StoreReader,
    uncounted: boolean = false,
  ): RangeResult | Failure {
    const namespace = this.state.namespaces.get(namespaceId);
    if (namespace === undefined) return refusal("namespace-not-found", "this cell has no such namespace");
    const reads = { state: this.state, keys: this.keys, reader, uncounted };
    const refused =
      rangeRefusal(this.state, namespace, operation) ?? orderedRefusal(reads, namespace, operation);
    if (refused !== undefined) return refused;
    const result = readRange(reads, namespace, operation, this.revision);
    this.keys.cache.trim();
    return result;
  }

  readTxn(namespaceId: NamespaceId, txn: TxnCommand, reader: StoreReader): TxnResult | Failure {
    const namespace = this.state.namespaces.get(namespaceId);
    if (namespace === undefined) return refusal("namespace-not-found", "this cell has no such namespace");
    const { state, sink, keys, leases } = this;
    const context = { state, sink, keys, leases, reader, events: undefined, leaseChanges: [] };
    const result = readTxn(context, namespace, txn);
    keys.cache.trim();
    leases.trim();
    return result;
  }

  lease(namespaceId: NamespaceId, leaseId: LeaseId, reader: StoreReader): LeaseRecord | undefined {
    const lease = this.leases.get(namespaceId, leaseId, reader);
    this.leases.trim();
    return lease.exists ? leaseRecord(lease) : undefined;
  }

  leaseKeys(namespaceId: NamespaceId, leaseId: LeaseId, reader: StoreReader): Uint8Array[] {
    return attachedKeys(namespaceId, leaseId, reader);
  }

  listLeases(
    namespaceId: NamespaceId,
    { after, limit }: LeaseListOperation,
    reader: StoreReader,
  ): LeaseListResult {
    const { rangeKeysMax } = this.state.settings.limits;
    const asked = limit === undefined || limit === 0 ? LEASE_LIST_DEFAULT : limit;
    const max = Math.min(asked, rangeKeysMax);
    const end = leaseKey(namespaceId + 1, NO_LEASE);
    const from = keyAfter(leaseKey(namespaceId, after ?? NO_LEASE));
    const rows = reader.scan("leases", { from, to: end, limit: max + 1 });
    const leases = rows.slice(0, max).map(({ key, value }) => {
      const { leaseId, ttlMs, owner } = readLeaseRecord(key, value);
      return { leaseId, ttlMs, owner };
    });
    return { kind: "lease-list", revision: this.revision, leases, more: rows.length > max };
  }

  scanLeases(
    after: { readonly namespaceId: NamespaceId; readonly leaseId: LeaseId } | undefined,
    limit: number,
    reader: StoreReader,
  ): readonly LeaseRecord[] {
    const from = after === undefined ? EMPTY : keyAfter(leaseKey(after.namespaceId, after.leaseId));
    return reader.scan("leases", { from, limit }).map(({ key, value }) => readLeaseRecord(key, value));
  }

  history(
    request: {
      readonly namespaceId: NamespaceId;
      readonly from: Revision;
      readonly to: Revision;
      readonly limit: number;
    },
    reader: StoreReader,
  ): { readonly events: readonly RevisionEvents[]; readonly next: Revision } {
    const to = Math.min(request.to, this.state.revision);
    if (to < request.from) return { events: [], next: request.from };
    const namespace = this.state.namespaces.get(request.namespaceId);
    if (namespace === undefined) return { events: [], next: (to + 1) as Revision };
    return readHistory(namespace, { ...request, to }, reader);
  }

  stateAt(
    namespaceId: NamespaceId,
    key: Uint8Array,
    revision: Revision,
    reader: StoreReader,
  ): KeyValue | undefined {
    const namespace = this.state.namespaces.get(namespaceId);
    if (namespace === undefined) return undefined;
    const state = stateAt(this.keys, namespace, { key, revision }, reader);
    this.keys.cache.trim();
    return state;
  }

  retentionDue(namespaceId: NamespaceId, policy: RetentionPolicy, reader: StoreReader): Revision | undefined {
    const namespace = this.known(namespaceId);
    return retentionDue(this.keys, this.state, { namespace, policy }, reader);
  }

  compactSlice(
    reader: StoreReader,
    rowsMax: number,
  ): { readonly mutations: readonly RowMutation[]; readonly done: boolean } {
    return compactSlice(this.state, reader, rowsMax);
  }

  private known(id: NamespaceId): NamespaceState {
    const namespace = this.state.namespaces.get(id);
    assert(namespace !== undefined, "the namespace exists", { id });
    return namespace;
  }
}
