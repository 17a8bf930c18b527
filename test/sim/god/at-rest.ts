/**
 * I13: some time after the last fault the cell has one leader, everybody has everything, and all stores hold the same
 * rows, byte for byte: those of the true history.
 *
 * What members may differ in is only *when* they physically remove what a compaction gave up. So the rows are compared
 * once every member is done with that, and the true history is compacted to the same end before. The rows that book the
 * progress of the removal itself are local and left out; everything else must be equal, the request ids, tombstones and
 * lease attachments included.
 */
import { ByteReader } from "../../../cell/src/machine/codec/primitives.ts";
import { META_COMPACTION, metaKey } from "../../../cell/src/machine/keys.ts";
import { encodeMembership } from "../../../cell/src/machine/membership.ts";
import { isJoint, membersOf } from "../../../cell/src/raft/configuration.ts";
import type { CellState } from "../../../cell/src/replica/state.ts";
import { KEYSPACES } from "../../../cell/src/store/index.ts";
import type { Keyspace, Row, StoreReader } from "../../../cell/src/store/index.ts";
import type { WatchedMember } from "./god.ts";
import type { CellTruth } from "./truth.ts";

/** More than any simulated history leaves. */
const ROWS_MAX = 10_000_000;
const COMPACTION_KEY_BYTES = 5;

/** @returns why the cell is not at rest yet; undefined: it is */
export function describeUnrest(
  members: readonly WatchedMember[],
  expectedHosts: readonly string[],
  truth: CellTruth,
): string | undefined {
  const running = new Map(members.map((member) => [member.host, member]));
  const present: WatchedMember[] = [];
  for (const host of expectedHosts) {
    const member = running.get(host);
    if (member === undefined) return `${host} does not run`;
    present.push(member);
  }
  return describeLeadership(present, truth) ?? describeQueues(present) ?? describeStates(present, truth);
}

function describeLeadership(members: readonly WatchedMember[], truth: CellTruth): string | undefined {
  const leaders = members.filter(({ core }) => core.replica.isLeader);
  const leader = leaders[0];
  if (leader === undefined || leaders.length > 1) return `${String(leaders.length)} leaders`;
  const { raft } = leader.core.replica.parts;
  const status = raft.status();
  if (isJoint(status.configuration)) return "the configuration is joint";
  const ids = members.map(({ core }) => Number(core.replica.parts.self)).sort((a, b) => a - b);
  const configured = membersOf(status.configuration);
  if (configured.join() !== ids.join()) {
    return `the configuration has members ${configured.join(" ")}, expected ${ids.join(" ")}`;
  }
  for (const { host, core } of members) {
    const other = core.replica.parts.raft;
    if (other.leader !== raft.leader || other.term !== raft.term)
      return `${host} does not follow ${leader.host}`;
    if (other.lastIndex !== raft.lastIndex) return `${host} does not hold the leader's log`;
    const { appliedIndex } = core.replica.parts.state;
    if (appliedIndex !== raft.lastIndex) {
      return `${host} has applied ${String(appliedIndex)} of ${String(raft.lastIndex)}`;
    }
  }
  const late = status.progress.find((peer) => peer.id !== status.id && peer.state !== "replicate");
  if (late !== undefined) return `the leader sees member ${String(late.id)} in ${late.state}`;
  return truth.appliedIndex === raft.lastIndex
    ? undefined
    : `the true history ends at ${String(truth.appliedIndex)}`;
}

function describeQueues(members: readonly WatchedMember[]): string | undefined {
  for (const { host, core } of members) {
    const { replica, hub } = core;
    if (replica.proposals.pending > 0)
      return `${host} has ${String(replica.proposals.pending)} commands pending`;
    if (replica.reads.pending > 0) return `${host} has ${String(replica.reads.pending)} reads pending`;
    if (replica.applyLag > 0) return `${host} has ${String(replica.applyLag)} entries to apply`;
    if (hub.pendingBytes > 0) return `${host} has ${String(hub.pendingBytes)} bytes pending for watchers`;
    if (replica.isDiverged) return `${host} believes that members diverged`;
  }
  return undefined;
}

function describeStates(members: readonly WatchedMember[], truth: CellTruth): string | undefined {
  const { shadow } = truth;
  if (shadow === undefined) return "the cell has not begun";
  const membership = Buffer.from(encodeMembership(shadow.membership));
  for (const { host, core } of members) {
    const { state } = core.replica.parts;
    if (state.machine.digest.hash !== shadow.machine.digest.hash) return `${host} has another digest`;
    if (!membership.equals(encodeMembership(state.membership))) return `${host} has another membership`;
    const compacting = describeCompaction(state);
    if (compacting !== undefined) return `${host} ${compacting}`;
  }
  shadow.compact();
  const expected = rowsOf(shadow.store);
  for (const { host, core } of members) {
    const difference = describeOtherRows(core.replica.parts.state.store, expected);
    if (difference !== undefined) return `${host} ${difference}`;
  }
  return undefined;
}

/** Physical compaction goes on; its progress is in a local row. */
function describeCompaction(state: CellState): string | undefined {
  for (const { id, compactRevision } of state.machine.namespaces()) {
    if (compactRevision > 0 && compactionDoneFor(state.store, id) < compactRevision) {
      return `still removes history below ${String(compactRevision)}`;
    }
  }
  return undefined;
}

function compactionDoneFor(store: StoreReader, namespaceId: number): number {
  const row = store.get("meta", metaKey(namespaceId, META_COMPACTION));
  if (row === undefined) return 0;
  const reader = new ByteReader(row);
  for (let skipped = 0; skipped < 3; skipped += 1) reader.varint();
  return reader.varint();
}

/** The first row in which two stores differ; undefined: none. */
export function describeDifference(store: StoreReader, expected: StoreReader): string | undefined {
  return describeOtherRows(store, rowsOf(expected));
}

type Rows = ReadonlyMap<Keyspace, readonly Row[]>;

function describeOtherRows(store: StoreReader, expected: Rows): string | undefined {
  for (const [keyspace, others] of expected) {
    const rows = rowsIn(store, keyspace);
    const count = Math.max(rows.length, others.length);
    for (let at = 0; at < count; at += 1) {
      const row = rows[at];
      const other = others[at];
      if (
        row !== undefined &&
        other !== undefined &&
        equal(row.key, other.key) &&
        equal(row.value, other.value)
      ) {
        continue;
      }
      return `has another row in ${keyspace}: ${show(row)}, expected ${show(other)}`;
    }
  }
  return undefined;
}

function rowsOf(store: StoreReader): Rows {
  return new Map(KEYSPACES.map((keyspace) => [keyspace, rowsIn(store, keyspace)]));
}

function rowsIn(store: StoreReader, keyspace: Keyspace): readonly Row[] {
  const rows = store.scan(keyspace, { from: new Uint8Array(0), limit: ROWS_MAX });
  return keyspace === "meta" ? rows.filter(({ key }) => !isCompactionRow(key)) : rows;
}

function isCompactionRow(key: Uint8Array): boolean {
  return key.length === COMPACTION_KEY_BYTES && key[COMPACTION_KEY_BYTES - 1] === META_COMPACTION;
}

/** Rows are short: a loop is faster than a call out of JavaScript. */
function equal(one: Uint8Array, other: Uint8Array): boolean {
  if (one.length !== other.length) return false;
  for (let at = 0; at < one.length; at += 1) if (one[at] !== other[at]) return false;
  return true;
}

function show(row: Row | undefined): string {
  if (row === undefined) return "none";
  return `${Buffer.from(row.key).toString("hex")} = ${Buffer.from(row.value).toString("hex")}`;
}
