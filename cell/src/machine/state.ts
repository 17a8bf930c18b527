/** The machine's small replicated state: counters, settings, namespaces; its rows in `meta`. */
import type { Revision } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { LogIndex } from "../raft/types.ts";
import type { StoreReader } from "../store/types.ts";
import { EMPTY, keyAfter } from "./bytes.ts";
import { ByteReader, ByteWriter, getUint32 } from "./codec/primitives.ts";
import {
  CELL_NAMESPACE,
  META_COMPACTION,
  META_NAMESPACE,
  META_REMOVAL,
  META_SETTINGS,
  META_STATE,
  metaKey,
  NAMESPACE_BYTES,
} from "./keys.ts";
import { decodeSettings, DEFAULT_SETTINGS, encodeSettings } from "./settings.ts";
import type { MachineSettings, NamespaceInfo, RowMutation } from "./types.ts";

/**
 * Newest format version that this program applies (R60). The one place to change when the log or the state gains what an
 * older program cannot apply.
 */
export const FORMAT_VERSION_MAX = 1;
export const NEWER_FORMAT_VERSION =
  "the cell is at a newer format version than this program applies: run a newer program";
const META_PAGE_ROWS = 1024;

export class NamespaceState {
  readonly id: number;
  readonly name: string;
  readonly uid: string;
  epoch = 1;
  compactRevision = 0;
  keys = 0;
  /** Bytes of all history rows ever written. */
  written = 0;
  /** Of these, bytes of rows that a later row of their key superseded, and bytes of deletions. */
  superseded = 0;
  tombstones = 0;
  /** The same totals at the compaction point: superseded at it, deletions up to it, and deletions before it. */
  compactedSuperseded = 0;
  compactedTombstones = 0;
  compactedTombstonesBelow = 0;
  /** Order numbers of the remembered HTTP request ids: [first, next). */
  tokenFirst = 0;
  tokenNext = 0;
  dirty = false;
  /**
   * Local, not replicated: the present pass of physical compaction goes to `target` and did everything before
   * (revision, sub); earlier passes did everything for `doneFor`.
   */
  readonly compaction: { revision: number; sub: number; target: number; doneFor: number } = {
    revision: 0,
    sub: 0,
    target: 0,
    doneFor: 0,
  };

  constructor(id: number, name: string, uid: string) {
    this.id = id;
    this.name = name;
    this.uid = uid;
  }

  /** History that compaction gave up, whether or not this member has deleted it yet. */
  get reclaimed(): number {
    return this.compactedSuperseded + this.compactedTombstonesBelow;
  }

  info(): NamespaceInfo {
    return {
      id: this.id,
      name: this.name,
      uid: this.uid,
      epoch: this.epoch,
      compactRevision: this.compactRevision as Revision,
      keys: this.keys,
      historyBytes: this.written - this.reclaimed,
    };
  }
}

/** Local, not replicated: how far the rows of a deleted namespace are deleted. A restart begins anew. */
export interface NamespaceRemoval {
  readonly id: number;
  /** Position in the order of keyspaces. */
  keyspace: number;
  /** Where the next slice begins; undefined: at the beginning of the keyspace. */
  from: Uint8Array | undefined;
}

export class MachineState {
  formatVersion = 0;
  revision = 0;
  appliedIndex = 0;
  timeMs = 0;
  digest = 0;
  nextLeaseId = 1;
  nextClientId = 1;
  nextNamespaceId = 1;
  /** Replicated time of the next look for forgotten clients and aged request ids. */
  nextSweepMs = 0;
  settings: MachineSettings = DEFAULT_SETTINGS;
  namespaces: Map<number, NamespaceState> = new Map<number, NamespaceState>();
  /** Deleted namespaces of which this member still has rows, oldest first. */
  removals: Map<number, NamespaceRemoval> = new Map<number, NamespaceRemoval>();
  /** Local: see {@link Machine.namespacesVersion}. */
  namespacesVersion = 0;
  private readonly byName = new Map<string, NamespaceState>();
  /** Rows of namespaces that were deleted, for the end of the batch. */
  private deletedRows: RowMutation[] = [];

  /** Replaces everything by what the store's `meta` says. */
  load(reader: StoreReader): void {
    const row = reader.get("meta", metaKey(CELL_NAMESPACE, META_STATE));
    assert(row !== undefined, "meta holds the machine's state row");
    this.readState(row);
    const settings = reader.get("meta", metaKey(CELL_NAMESPACE, META_SETTINGS));
    this.settings = settings === undefined ? DEFAULT_SETTINGS : decodeSettings(settings);
    this.namespaces = new Map();
    this.byName.clear();
    this.removals = new Map();
    this.namespacesVersion += 1;
    let from = metaKey(1, 0);
    for (;;) {
      const rows = reader.scan("meta", { from, limit: META_PAGE_ROWS });
      for (const { key, value } of rows) this.readNamespaceRow(key, value);
      const last = rows.at(-1);
      if (last === undefined || rows.length < META_PAGE_ROWS) break;
      from = keyAfter(last.key);
    }
  }

  namespaceByName(name: string): NamespaceState | undefined {
    return this.byName.get(name);
  }

  /** Ids are never given twice. */
  createNamespace(name: string, uid: string): NamespaceState {
    const namespace = new NamespaceState(this.nextNamespaceId++, name, uid);
    namespace.dirty = true;
    this.namespaces.set(namespace.id, namespace);
    this.byName.set(name, namespace);
    this.namespacesVersion += 1;
    return namespace;
  }

  /** From here on nobody can name it. */
  deleteNamespace({ id, name }: NamespaceState): void {
    this.namespaces.delete(id);
    this.byName.delete(name);
    this.removals.set(id, { id, keyspace: 0, from: undefined });
    this.namespacesVersion += 1;
    this.deletedRows.push(
      { keyspace: "meta", key: metaKey(id, META_NAMESPACE), value: undefined },
      { keyspace: "meta", key: metaKey(id, META_COMPACTION), value: undefined },
      { keyspace: "meta", key: metaKey(id, META_REMOVAL), value: EMPTY },
    );
  }

  rows(): RowMutation[] {
    const rows: RowMutation[] = [this.stateRow(), ...this.deletedRows];
    if (this.deletedRows.length > 0) this.deletedRows = [];
    for (const namespace of this.namespaces.values()) {
      if (!namespace.dirty) continue;
      namespace.dirty = false;
      rows.push(namespaceRow(namespace));
    }
    return rows;
  }

  settingsRow(): RowMutation {
    return {
      keyspace: "meta",
      key: metaKey(CELL_NAMESPACE, META_SETTINGS),
      value: encodeSettings(this.settings),
    };
  }

  private stateRow(): RowMutation {
    const writer = new ByteWriter(80);
    writer.varint(this.formatVersion);
    writer.varint(this.appliedIndex);
    writer.varint(this.revision);
    writer.varint(this.timeMs);
    writer.varint(this.digest);
    writer.varint(this.nextLeaseId);
    writer.varint(this.nextClientId);
    writer.varint(this.nextNamespaceId);
    writer.varint(this.nextSweepMs);
    return { keyspace: "meta", key: metaKey(CELL_NAMESPACE, META_STATE), value: writer.take() };
  }

  private readState(row: Uint8Array): void {
    const reader = new ByteReader(row);
    this.formatVersion = reader.varint();
    assert(this.formatVersion <= FORMAT_VERSION_MAX, NEWER_FORMAT_VERSION, {
      version: this.formatVersion,
      known: FORMAT_VERSION_MAX,
    });
    this.appliedIndex = reader.varint();
    this.revision = reader.varint();
    this.timeMs = reader.varint();
    this.digest = reader.varint();
    this.nextLeaseId = reader.varint();
    this.nextClientId = reader.varint();
    this.nextNamespaceId = reader.varint();
    this.nextSweepMs = reader.varint();
    reader.end();
  }

  private readNamespaceRow(key: Uint8Array, value: Uint8Array): void {
    const id = getUint32(key, 0);
    const what = key[NAMESPACE_BYTES];
    if (key.length !== NAMESPACE_BYTES + 1) return;
    if (what === META_NAMESPACE) {
      const namespace = readNamespace(id, value);
      this.namespaces.set(id, namespace);
      this.byName.set(namespace.name, namespace);
    } else if (what === META_REMOVAL) {
      this.removals.set(id, { id, keyspace: 0, from: undefined });
    } else if (what === META_COMPACTION) {
      // "n" sorts before "p": the namespace is there.
      const namespace = this.namespaces.get(id);
      assert(namespace !== undefined, "a compaction row belongs to a namespace", { id });
      const reader = new ByteReader(value);
      namespace.compaction.revision = reader.varint();
      namespace.compaction.sub = reader.varint();
      namespace.compaction.target = reader.varint();
      namespace.compaction.doneFor = reader.varint();
    }
  }
}

export function compactionRow(namespace: NamespaceState): RowMutation {
  const writer = new ByteWriter(24);
  writer.varint(namespace.compaction.revision);
  writer.varint(namespace.compaction.sub);
  writer.varint(namespace.compaction.target);
  writer.varint(namespace.compaction.doneFor);
  return { keyspace: "meta", key: metaKey(namespace.id, META_COMPACTION), value: writer.take() };
}

function namespaceRow(namespace: NamespaceState): RowMutation {
  const writer = new ByteWriter(128);
  writer.text(namespace.name);
  writer.text(namespace.uid);
  writer.varint(namespace.epoch);
  writer.varint(namespace.compactRevision);
  writer.varint(namespace.keys);
  writer.varint(namespace.written);
  writer.varint(namespace.superseded);
  writer.varint(namespace.tombstones);
  writer.varint(namespace.compactedSuperseded);
  writer.varint(namespace.compactedTombstones);
  writer.varint(namespace.compactedTombstonesBelow);
  writer.varint(namespace.tokenFirst);
  writer.varint(namespace.tokenNext);
  return { keyspace: "meta", key: metaKey(namespace.id, META_NAMESPACE), value: writer.take() };
}

function readNamespace(id: number, value: Uint8Array): NamespaceState {
  const reader = new ByteReader(value);
  const namespace = new NamespaceState(id, reader.text(), reader.text());
  namespace.epoch = reader.varint();
  namespace.compactRevision = reader.varint();
  namespace.keys = reader.varint();
  namespace.written = reader.varint();
  namespace.superseded = reader.varint();
  namespace.tombstones = reader.varint();
  namespace.compactedSuperseded = reader.varint();
  namespace.compactedTombstones = reader.varint();
  namespace.compactedTombstonesBelow = reader.varint();
  namespace.tokenFirst = reader.varint();
  namespace.tokenNext = reader.varint();
  reader.end();
  return namespace;
}

export interface BootstrapOptions {
  /** What counts as applied already. Default 0: a fresh log. */
  readonly appliedIndex?: LogIndex;
  /** Default: {@link DEFAULT_SETTINGS}. */
  readonly settings?: MachineSettings;
  /** Default: `default`, which gets the id 1 and the epoch 1. */
  readonly namespace?: string;
}

/** Sets the state of a fresh cell: revision 1, one namespace. */
export function bootstrapState(state: MachineState, options: BootstrapOptions): RowMutation[] {
  state.formatVersion = FORMAT_VERSION_MAX;
  state.revision = 1;
  state.appliedIndex = options.appliedIndex ?? 0;
  state.settings = options.settings ?? DEFAULT_SETTINGS;
  state.createNamespace(options.namespace ?? "default", "");
  return [...state.rows(), state.settingsRow()];
}
