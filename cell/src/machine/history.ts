/** Reads of history for watches and retention. */
import type { KeyValue, Revision } from "@lockstep/gateway/coordinator";
import type { StoreReader } from "../store/types.ts";
import { keyAfter } from "./bytes.ts";
import { totalsAt } from "./compaction.ts";
import { deletedKeyValue } from "./context.ts";
import { historyKey } from "./keys.ts";
import type { KeyStates } from "./key-states.ts";
import { rowKeyValue } from "./key-states.ts";
import type { HistoryRow } from "./rows.ts";
import { readHistoryRow } from "./rows.ts";
import type { MachineState, NamespaceState } from "./state.ts";
import type { MachineEvent, RetentionPolicy, RevisionEvents, RowMutation } from "./types.ts";

const HISTORY_BYTES_MAX = 4 * 1024 * 1024;

/** At most `rowsMax` deletions of rows above the state's revision (see {@link LoadableMachine.strayHistory}). */
export function strayHistory(state: MachineState, reader: StoreReader, rowsMax: number): RowMutation[] {
  const mutations: RowMutation[] = [];
  const drop = (from: Uint8Array, to?: Uint8Array): void => {
    const limit = rowsMax - mutations.length;
    const span = to === undefined ? { from } : { from, to };
    for (const { key } of reader.scan("history", { ...span, limit, keysOnly: true })) {
      mutations.push({ keyspace: "history", key, value: undefined });
    }
  };
  for (const { id } of state.namespaces.values()) {
    drop(historyKey(id, state.revision + 1, 0), historyKey(id + 1, 0, 0));
  }
  // Of namespaces that were created in what is lost.
  drop(historyKey(state.nextNamespaceId, 0, 0));
  return mutations;
}

/** Whole revisions of [from, to], about `limit` events or {@link HISTORY_BYTES_MAX}. */
export function readHistory(
  namespace: NamespaceState,
  span: { readonly from: number; readonly to: number; readonly limit: number },
  reader: StoreReader,
): { readonly events: readonly RevisionEvents[]; readonly next: Revision } {
  const { to } = span;
  const limit = Math.max(1, span.limit);
  const events: RevisionEvents[] = [];
  let open: { revision: number; events: MachineEvent[] } | undefined;
  let from = historyKey(namespace.id, span.from, 0);
  const close = (): void => {
    if (open === undefined) return;
    events.push({
      namespaceId: namespace.id,
      revision: open.revision as Revision,
      events: open.events,
    });
  };
  let rowsLeft = limit;
  let bytesLeft = HISTORY_BYTES_MAX;
  for (;;) {
    const page = { from, to: historyKey(namespace.id, to + 1, 0), limit, bytesMax: HISTORY_BYTES_MAX };
    const rows = reader.scan("history", page);
    for (const { key, value } of rows) {
      const row = readHistoryRow(key, value);
      if (open?.revision !== row.revision) {
        close();
        if (open !== undefined && (rowsLeft <= 0 || bytesLeft <= 0)) {
          return { events, next: row.revision as Revision };
        }
        open = { revision: row.revision, events: [] };
      }
      open.events.push(eventOf(row));
      rowsLeft -= 1;
      bytesLeft -= row.size;
    }
    const last = rows.at(-1);
    if (last === undefined) {
      close();
      return { events, next: (to + 1) as Revision };
    }
    from = keyAfter(last.key);
  }
}

function eventOf(row: HistoryRow): MachineEvent {
  return {
    kind: row.deletion ? "delete" : "put",
    kv: row.deletion ? deletedKeyValue(row.key, row.revision) : rowKeyValue(row, row.value),
    previousRevision: row.previousDeleted ? 0 : row.previousRevision,
    cause: row.cause,
  };
}

/** undefined: the key did not exist then, or its row is given up to compaction. */
export function stateAt(
  keys: KeyStates,
  namespace: NamespaceState,
  { key, revision }: { readonly key: Uint8Array; readonly revision: number },
  reader: StoreReader,
): KeyValue | undefined {
  const newest = keys.state(namespace.id, key, reader);
  if (newest.modRevision === 0) return undefined;
  if (newest.status !== "live" && newest.modRevision <= revision) return undefined;
  let place = { revision: newest.modRevision, sub: newest.sub };
  // Until the row is read: nothing has superseded the newest one.
  let supersededAt = Infinity;
  while (supersededAt > namespace.compactRevision) {
    if (place.revision <= revision && newest.modRevision === place.revision) {
      return keys.answer(newest, reader);
    }
    const row = keys.history.get(namespace.id, place, reader);
    if (row === undefined) return undefined;
    if (row.revision <= revision) return row.deletion ? undefined : rowKeyValue(row, row.value);
    if (row.previousRevision === 0) return undefined;
    supersededAt = row.revision;
    place = { revision: row.previousRevision, sub: row.previousSub };
  }
  return undefined;
}

/** The largest revision that one of the policy's bounds gives up; undefined when it is none above the present point. */
export function retentionDue(
  keys: KeyStates,
  state: MachineState,
  { namespace, policy }: { readonly namespace: NamespaceState; readonly policy: RetentionPolicy },
  reader: StoreReader,
): Revision | undefined {
  let due = 0;
  if (policy.revisions !== undefined) due = Math.max(due, state.revision - policy.revisions);
  const last = (to: number): HistoryRow | undefined =>
    keys.history.last(namespace.id, { from: namespace.compactRevision + 1, to }, reader);
  if (policy.ageMs !== undefined) {
    const before = state.timeMs - policy.ageMs;
    // The state as of `before` stays readable, so the point is the last revision that is as old as that.
    const oldEnough = lastRevision(namespace, state, (to) => (last(to)?.timeMs ?? 0) <= before);
    due = Math.max(due, last(oldEnough)?.revision ?? 0);
  }
  if (policy.bytes !== undefined) {
    const garbage = namespace.superseded + namespace.tombstones;
    const over = (point: number): boolean => {
      const at = totalsAt(keys.history, namespace, point, reader);
      const below = totalsAt(keys.history, namespace, point - 1, reader);
      return garbage - at.superseded - below.tombstones > (policy.bytes ?? 0);
    };
    const presentlyOver = garbage - namespace.reclaimed > policy.bytes;
    if (presentlyOver)
      due = Math.max(due, Math.min(state.revision, lastRevision(namespace, state, over) + 1));
  }
  return due > namespace.compactRevision ? (due as Revision) : undefined;
}

/** The last revision for which `holds`, which never becomes true again once it is false; else the compaction point. */
function lastRevision(
  namespace: NamespaceState,
  state: MachineState,
  holds: (revision: number) => boolean,
): number {
  let low = namespace.compactRevision;
  let high = state.revision;
  while (low < high) {
    const middle = low + Math.ceil((high - low) / 2);
    if (holds(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}
