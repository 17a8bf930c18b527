/**
 * Compaction in two steps. Logical, replicated: the compaction point moves and the counters with it. Physical, local,
 * in slices: the rows that no read at or after the point can reach are deleted.
 */
import type { CompactOperation, CompactResult, Failure, Revision } from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { StoreReader } from "../store/types.ts";
import type { ApplyContext } from "./context.ts";
import { compacted, futureRevision } from "./failures.ts";
import type { HistoryReads } from "./history-reads.ts";
import { historyKey, indexKey, TOMBSTONE } from "./keys.ts";
import { removalSlice } from "./namespaces.ts";
import type { HistoryRow } from "./rows.ts";
import { readHistoryRow, readIndexRow } from "./rows.ts";
import type { MachineState, NamespaceState } from "./state.ts";
import { compactionRow } from "./state.ts";
import type { RetainCommand, RowMutation } from "./types.ts";

/** Digest note. */
const COMPACTED = 4;
const SLICE_BYTES_MAX = 1024 * 1024;

export function applyCompact(
  context: ApplyContext,
  namespace: NamespaceState,
  operation: CompactOperation,
): CompactResult | Failure {
  const { revision } = operation;
  if (revision > context.state.revision) return futureRevision(revision, context.state.revision);
  if (revision <= namespace.compactRevision) return compacted(revision, namespace.compactRevision);
  compact(context, namespace, revision);
  return { kind: "compact", revision: context.state.revision as Revision };
}

export function applyRetain(context: ApplyContext, command: RetainCommand): void {
  const namespace = context.state.namespaces.get(command.namespaceId);
  if (namespace === undefined) return;
  const revision = Math.min(command.compactRevision, context.state.revision);
  if (revision > namespace.compactRevision) compact(context, namespace, revision);
}

function compact(context: ApplyContext, namespace: NamespaceState, revision: number): void {
  const { history } = context.keys;
  const at = totalsAt(history, namespace, revision, context.reader);
  const below = totalsAt(history, namespace, revision - 1, context.reader);
  namespace.compactRevision = revision;
  namespace.compactedSuperseded = at.superseded;
  namespace.compactedTombstones = at.tombstones;
  namespace.compactedTombstonesBelow = below.tombstones;
  namespace.dirty = true;
  context.state.namespacesVersion += 1;
  assert(namespace.reclaimed <= namespace.written, "reclaimed <= written", {
    reclaimed: namespace.reclaimed,
    written: namespace.written,
  });
  context.sink.note(COMPACTED, revision);
}

interface Totals {
  readonly superseded: number;
  readonly tombstones: number;
}

/** The namespace's running totals up to and including `revision`, which is not below the compaction point. */
export function totalsAt(
  history: HistoryReads,
  namespace: NamespaceState,
  revision: number,
  reader: StoreReader,
): Totals {
  const row = history.last(namespace.id, { from: namespace.compactRevision + 1, to: revision }, reader);
  if (row === undefined) {
    return { superseded: namespace.compactedSuperseded, tombstones: namespace.compactedTombstones };
  }
  return { superseded: row.superseded, tombstones: row.tombstones + (row.deletion ? row.size : 0) };
}

/** One slice: first of what deleted namespaces left behind, then over the namespaces that have something to do. */
export function compactSlice(
  state: MachineState,
  reader: StoreReader,
  rowsMax: number,
): { readonly mutations: readonly RowMutation[]; readonly done: boolean } {
  const removed = removalSlice(state, reader, rowsMax);
  if (removed !== undefined) return { mutations: removed, done: false };
  for (const namespace of state.namespaces.values()) {
    if (namespace.compaction.doneFor >= namespace.compactRevision) continue;
    return { mutations: sliceOf(namespace, reader, rowsMax), done: false };
  }
  return { mutations: [], done: true };
}

/**
 * Each row up to the point supersedes the row that it names as previous: that one goes. A deletion goes itself once
 * the point has passed it; one exactly at the point stays, because a watch may resume there (3d, B9).
 */
function sliceOf(namespace: NamespaceState, reader: StoreReader, rowsMax: number): RowMutation[] {
  const place = namespace.compaction;
  // A pass ends at the point that it began with: a deletion that it keeps there is the next pass's.
  if (place.target <= place.doneFor) place.target = namespace.compactRevision;
  const point = place.target;
  const rows = reader.scan("history", {
    from: historyKey(namespace.id, place.revision, place.sub),
    to: historyKey(namespace.id, point + 1, 0),
    limit: Math.max(1, rowsMax),
    bytesMax: SLICE_BYTES_MAX,
  });
  const mutations: RowMutation[] = [];
  const deletions: HistoryRow[] = [];
  for (const { key, value } of rows) {
    const row = readHistoryRow(key, value);
    if (row.previousRevision > 0 && !row.previousDeleted) {
      const previous = historyKey(namespace.id, row.previousRevision, row.previousSub);
      mutations.push({ keyspace: "history", key: previous, value: undefined });
    }
    if (row.deletion && row.revision < point) {
      mutations.push({ keyspace: "history", key, value: undefined });
      deletions.push(row);
    }
    place.revision = row.revision;
    place.sub = row.sub + 1;
  }
  dropTombstones(namespace, deletions, reader, mutations);
  if (rows.length === 0) {
    // The next compaction begins at this point again: a deletion kept here is due then.
    place.revision = point;
    place.sub = 0;
    place.doneFor = point;
  }
  mutations.push(compactionRow(namespace));
  return mutations;
}

/** An index tombstone goes with its history row, unless the key has been deleted again since. */
function dropTombstones(
  namespace: NamespaceState,
  deletions: readonly HistoryRow[],
  reader: StoreReader,
  mutations: RowMutation[],
): void {
  if (deletions.length === 0) return;
  const keys = deletions.map((row) => indexKey(namespace.id, TOMBSTONE, row.key));
  for (const [i, value] of reader.getMany("index", keys).entries()) {
    if (value === undefined) continue;
    const tombstone = readIndexRow(value);
    const row = deletions[i] as HistoryRow;
    if (tombstone.modRevision !== row.revision || tombstone.sub !== row.sub) continue;
    mutations.push({ keyspace: "index", key: keys[i] as Uint8Array, value: undefined });
  }
}
