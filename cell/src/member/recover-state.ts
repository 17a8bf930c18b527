import type { LeaseId } from "@lockstep/gateway/coordinator";
import { createCommandEncoder } from "../machine/index.ts";
import type { MemberAddresses, Membership } from "../machine/membership.ts";
import type { CheckpointCommand, Command, MachineEntry, NamespaceId } from "../machine/types.ts";
import {
  applyChange,
  decodeConfigurationChange,
  EMPTY_CONFIGURATION,
  validateChange,
} from "../raft/index.ts";
import type { ConfigurationChange, Entry, LogIndex, MemberId, Term } from "../raft/types.ts";
import type { CellState } from "../replica/state.ts";

/**
 * What the revision, and the counters of lease and client ids, are raised by: above everything that the lost majority
 * can have given out without this member's knowledge. A cell that wrote 100,000 times a second would need four months.
 */
export const RECOVERY_FLOOR: number = 2 ** 40;
/** Ids of members that changes which were lost with the majority may have given. */
const MEMBER_IDS_SKIPPED = 1000;

const ENTRIES_A_SLICE = 64;
const LEASES_A_SLICE = 512;

export interface NewCell {
  readonly cellId: string;
  readonly name: string;
  readonly incarnation: string;
  readonly addresses: MemberAddresses;
}

/** Applies the rest of the log to its end, committed or not. */
export function applyWholeLog(state: CellState, entries: readonly Entry[]): void {
  let slice: MachineEntry[] = [];
  const flush = (): void => {
    if (slice.length > 0) state.apply(slice, false);
    slice = [];
  };
  for (const entry of entries) {
    if (entry.index <= state.appliedIndex) continue;
    if (entry.kind === "normal") {
      slice.push(entry);
      if (slice.length >= ENTRIES_A_SLICE) flush();
      continue;
    }
    flush();
    applyConfiguration(state, entry);
  }
  flush();
}

function applyConfiguration(state: CellState, entry: Entry): void {
  let change: ConfigurationChange | undefined;
  try {
    change = decodeConfigurationChange(entry.data);
  } catch {
    change = undefined;
  }
  state.applyConfiguration(entry.index, change, (accepted) => {
    const { configuration } = state.membership;
    const refused = validateChange(configuration, accepted);
    if (refused !== undefined) return { refused };
    return { configuration: applyChange(configuration, accepted) };
  });
}

/**
 * Makes the state that of a cell with one voter. The change of identity is one atomic batch and the last: until it is
 * written, everything can be done again.
 *
 * @param term of the entries by which it happens: above all that this member has seen
 */
export function becomeNewCell(state: CellState, cell: NewCell, term: Term): void {
  // It must not turn up under later revisions.
  state.dropStrayHistory();
  clearCheckpoints(state, term);
  const { machine } = state;
  const next = machine.appliedIndex + 1;
  const retains = machine.namespaces().map(({ id }): Command => ({
    kind: "retain",
    namespaceId: id,
    // History below the floor is given up: a watch must not go on as if nothing had been lost.
    compactRevision: (machine.revision + RECOVERY_FLOOR) as never,
  }));
  state.becomeOther(
    RECOVERY_FLOOR,
    encode(state, term, retains),
    newMembership(state.membership, cell, (next + 1) as LogIndex),
  );
}

/** A new leader then counts the full TTL of every lease: what the lost majority renewed is not known here. */
function clearCheckpoints(state: CellState, term: Term): void {
  let after: { readonly namespaceId: NamespaceId; readonly leaseId: LeaseId } | undefined;
  for (;;) {
    const leases = state.machine.scanLeases(after, LEASES_A_SLICE, state.store);
    const checkpoints = new Map<NamespaceId, CheckpointCommand["leases"][number][]>();
    for (const { namespaceId, leaseId, checkpointMs } of leases) {
      if (checkpointMs === 0) continue;
      const cleared = checkpoints.get(namespaceId) ?? [];
      cleared.push({ leaseId, remainingMs: 0 });
      checkpoints.set(namespaceId, cleared);
    }
    const commands = [...checkpoints].map(([namespaceId, cleared]): Command => ({
      ...{ kind: "checkpoint", namespaceId, leaderTerm: term, leases: cleared },
    }));
    if (commands.length > 0) state.apply([encode(state, term, commands)], false);
    const last = leases.at(-1);
    if (last === undefined || leases.length < LEASES_A_SLICE) return;
    after = last;
  }
}

function encode(state: CellState, term: Term, commands: readonly Command[]): MachineEntry {
  const encoder = createCommandEncoder();
  for (const command of commands) encoder.add(command);
  const index = (state.appliedIndex + 1) as LogIndex;
  return { index, term, data: encoder.finish(state.machine.timeMs) };
}

function newMembership(old: Membership, cell: NewCell, index: LogIndex): Membership {
  const id = (old.nextMemberId + MEMBER_IDS_SKIPPED) as MemberId;
  const { name, incarnation, addresses } = cell;
  const gone = [...old.removedIds, ...old.members.map((member) => member.id)];
  return {
    cellId: cell.cellId,
    configurationIndex: index,
    configuration: { ...EMPTY_CONFIGURATION, voters: [id] },
    members: [{ id, name, incarnation, addresses }],
    removedIds: gone.sort((a, b) => a - b),
    nextMemberId: (id + 1) as MemberId,
  };
}
