import type { Store } from "../store/index.ts";
import { KEYSPACES, openGenerations, openRocksStore } from "../store/index.ts";
import type { Keyspace } from "../store/index.ts";
import { createNodeDisk, inspectWal, verifyWal } from "../wal/index.ts";
import { CellState } from "../replica/state.ts";
import { memberPaths, readIdentity, readRecovering } from "./identity.ts";

export interface FolderReport {
  /** Whether the member could start from this folder. */
  readonly sound: boolean;
  /** For people. */
  readonly lines: readonly string[];
  readonly problems: readonly string[];
  readonly appliedIndex?: number;
  readonly revision?: number;
  readonly digest?: string;
  readonly keys?: number;
  readonly rows?: Readonly<Record<string, number>>;
}

const SCAN_ROWS = 1000;

/**
 * Checks a stopped member's folder without changing the log: every record's checksum and order, that every row of the
 * store can be read, and that log and store fit together.
 */
export async function verifyFolder(directory: string): Promise<FolderReport> {
  const identity = await readIdentity(createNodeDisk(), directory);
  if (identity === undefined) {
    const problem = `${directory} holds no member (no identity.json)`;
    return { sound: false, lines: [problem], problems: [problem] };
  }
  const lines = [
    `member ${identity.name} (id ${String(identity.memberId)}) of cell ${identity.cellId}, incarnation ${identity.incarnation}`,
  ];
  const problems: string[] = [];
  const recovering = await readRecovering(createNodeDisk(), directory);
  if (recovering !== undefined && recovering.to.cellId !== identity.cellId) {
    problems.push(`a recovery as ${recovering.to.name} was begun and not finished: run it again`);
  }
  const log = await verifyWal(createNodeDisk(), memberPaths(directory).wal);
  for (const problem of log.problems) {
    const text = `log: ${problem.segment} at ${String(problem.offset)}: ${problem.message}`;
    if (problem.code === "torn") lines.push(`${text} (the next start cuts it off)`);
    else problems.push(text);
  }
  lines.push(
    `log: ${String(log.records)} records in ${String(log.segments)} segments, entries ${String((log.log?.logStart.index ?? 0) + 1)} to ${String(log.log?.lastIndex ?? 0)}`,
  );
  const generations = await openStore(directory);
  try {
    const state = new CellState(generations.current);
    const rows = countRows(generations.current);
    const { appliedIndex, machine } = state;
    const keys = machine.namespaces().reduce((sum, namespace) => sum + namespace.keys, 0);
    const digest = machine.digest.hash.toString(16).padStart(8, "0");
    lines.push(
      `store: applied index ${String(appliedIndex)}, revision ${String(machine.revision)}, digest ${digest}, ${String(keys)} keys`,
      `rows: ${Object.entries(rows)
        .map(([keyspace, count]) => `${keyspace} ${String(count)}`)
        .join(", ")}`,
    );
    if (log.log !== undefined && generations.note.length === 0) {
      if (appliedIndex > log.log.lastIndex) problems.push("the store is ahead of the log: entries are lost");
      if (appliedIndex < log.log.logStart.index) problems.push("the store is behind the start of the log");
    }
    const sound = problems.length === 0;
    lines.push(
      ...problems,
      sound ? "sound: the member can start from this folder" : "NOT sound: replace this member",
    );
    return { sound, lines, problems, appliedIndex, revision: machine.revision, digest, keys, rows };
  } finally {
    await generations.close();
  }
}

/** The log's records, then the newest keys, as plain objects. */
export async function* dumpFolder(
  directory: string,
  options: { readonly values: boolean },
): AsyncGenerator<object, void, void> {
  const identity = await readIdentity(createNodeDisk(), directory);
  if (identity === undefined) throw new Error(`${directory} holds no member (no identity.json)`);
  yield { identity };
  for await (const item of inspectWal(createNodeDisk(), memberPaths(directory).wal)) {
    if (item.kind === "problem") {
      yield { problem: item.message, segment: item.segment, offset: item.offset };
    } else {
      const { segment, offset, bytes, position, record } = item;
      yield { log: record.kind, segment, offset, bytes, ...position };
    }
  }
  const generations = await openStore(directory);
  try {
    const state = new CellState(generations.current);
    const { machine, membership } = state;
    yield { membership, appliedIndex: machine.appliedIndex, revision: machine.revision };
    for (const namespace of machine.namespaces()) {
      yield { namespace };
      yield* dumpKeys(state, namespace.id, options.values);
    }
  } finally {
    await generations.close();
  }
}

function* dumpKeys(state: CellState, namespaceId: number, values: boolean): Generator<object> {
  let from: Uint8Array = Uint8Array.of(0);
  while (true) {
    const range = { key: from, rangeEnd: new Uint8Array() };
    const operation = { kind: "range", range, limit: SCAN_ROWS, keysOnly: !values } as const;
    const result = state.machine.range(namespaceId, operation, state.store);
    if ("code" in result) throw new Error(result.message);
    for (const kv of result.kvs) {
      yield {
        key: text(kv.key),
        createRevision: kv.createRevision,
        modRevision: kv.modRevision,
        version: kv.version,
        leaseId: kv.leaseId,
        ...(values ? { value: text(kv.value) } : {}),
      };
    }
    const last = result.kvs[result.kvs.length - 1];
    if (!result.more || last === undefined) return;
    from = Buffer.concat([last.key, Buffer.of(0)]);
  }
}

function openStore(directory: string): ReturnType<typeof openGenerations> {
  return openGenerations(memberPaths(directory).store, {
    openStore: (path) => openRocksStore(path, { now: () => 0 }),
  });
}

function countRows(store: Store): Record<Keyspace, number> {
  const counts = Object.fromEntries(KEYSPACES.map((keyspace) => [keyspace, 0])) as Record<Keyspace, number>;
  for (const keyspace of KEYSPACES) {
    let from: Uint8Array = new Uint8Array();
    while (true) {
      const rows = store.scan(keyspace, { from, limit: SCAN_ROWS });
      counts[keyspace] += rows.length;
      const last = rows[rows.length - 1];
      if (rows.length < SCAN_ROWS || last === undefined) break;
      from = Buffer.concat([last.key, Buffer.of(0)]);
    }
  }
  return counts;
}

/** UTF-8 where it is, else base64 behind a marker. */
function text(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes);
  const decoded = buffer.toString("utf8");
  return Buffer.from(decoded).equals(buffer) ? decoded : `base64:${buffer.toString("base64")}`;
}
