import { crc32 } from "node:zlib";
import { assert } from "../invariant.ts";
import { createMachine } from "../machine/index.ts";
import type { MemberRecord, Membership } from "../machine/membership.ts";
import { EMPTY_CONFIGURATION } from "../raft/index.ts";
import type { HardState, LogIndex, MemberId, RaftInitialState, Term } from "../raft/types.ts";
import type { Environment } from "../replica/environment.ts";
import { decodeHeader } from "../replica/snapshots.ts";
import { CellState, membershipRow } from "../replica/state.ts";
import type { Generations, Store } from "../store/index.ts";
import { openWal } from "../wal/index.ts";
import type { Wal, WalOptions, WalRecovery } from "../wal/types.ts";
import { IdentityError, memberPaths, openFolder, writeIdentity } from "./identity.ts";
import type { MemberIdentity, UnjoinedIdentity } from "./identity.ts";
import { joinCell } from "./join.ts";
import type { MemberOptions } from "./options.ts";
import type { Platform } from "./platform.ts";

/** A member's disk, opened and checked: everything the replica needs to go on where it stopped. */
export interface OpenedFolder {
  readonly identity: MemberIdentity;
  readonly generations: Generations;
  readonly state: CellState;
  readonly wal: Wal;
  readonly initial: RaftInitialState;
}

export interface FolderParts {
  readonly options: MemberOptions;
  readonly environment: Environment;
  readonly platform: Platform;
  /** See the log's options. */
  readonly onSync: NonNullable<WalOptions["onSync"]>;
}

const FIRST_MEMBER = 1 as MemberId;
/** The log of every cell begins after this index, so that a joiner always starts from a state (R45). */
const BOOTSTRAP_INDEX = 1 as LogIndex;
const BOOTSTRAP_TERM = 1 as Term;

/** Opens a member's folder, making it one first if it is fresh. */
export async function openMemberFolder(parts: FolderParts): Promise<OpenedFolder> {
  const { options, environment, platform } = parts;
  const folder = await openFolder(platform, options.directory, options.name);
  const identity = folder.kind === "member" ? folder.identity : await becomeMember(parts, folder.identity);
  const generations = await openStore(parts);
  const { wal, recovery } = await openLog(parts, identity, environment.fatal);
  const state = new CellState(generations.current);
  if (recovery.repaired !== undefined) {
    environment.log.warn("a torn write at the end of the log was cut", { ...recovery.repaired });
  }
  const initial = await reconcile(state, generations, wal, recovery);
  return { identity, generations, state, wal, initial };
}

function openStore({ options, environment, platform }: FolderParts): Promise<Generations> {
  return platform.openStore(memberPaths(options.directory).store, () => environment.clock.monotonicMs());
}

function openLog(
  { options, environment, platform, onSync }: FolderParts,
  identity: MemberIdentity,
  onFatal: (error: Error) => void,
): Promise<{ wal: Wal; recovery: WalRecovery }> {
  const { cellId, memberId, incarnation } = identity;
  return openWal({
    disk: platform.disk,
    directory: memberPaths(options.directory).wal,
    identity: { cellId, memberId, incarnation },
    segmentBytesMax: options.segmentBytes,
    onFatal,
    onSync,
    now: () => environment.clock.monotonicMs(),
  });
}

/**
 * What must hold between log and store: the log covers everything after the store's applied index (W11, W12). A store
 * ahead of its log is data loss, except right after a snapshot was installed and before the log was told: the store's
 * own note says so, and the log starts over from there (W14).
 */
export async function reconcile(
  state: CellState,
  generations: Generations,
  wal: Wal,
  recovery: WalRecovery,
): Promise<RaftInitialState> {
  const applied = state.appliedIndex;
  const { logStart, entries, hardState } = recovery;
  const lastIndex = logStart.index + entries.length;
  const base = { applied, configuration: state.membership.configuration };
  const origin = decodeHeader(generations.note)?.snapshot;
  if (origin !== undefined && origin.index > logStart.index && !holds(recovery, origin)) {
    assert(
      applied === origin.index,
      "nothing is applied between a snapshot's installation and its log marker",
      {
        applied,
        snapshot: origin.index,
      },
    );
    const restarted = raised(hardState, origin.index, origin.term);
    await written(wal, {
      snapshot: { index: origin.index, term: origin.term },
      hardState: restarted,
      entries: [],
    });
    return {
      ...base,
      hardState: restarted,
      logStart: { index: origin.index, term: origin.term },
      entries: [],
    };
  }
  if (applied > lastIndex) {
    throw new IdentityError(
      `the store holds index ${String(applied)} but the log ends at ${String(lastIndex)}: acknowledged entries are gone from this disk. Replace this member: remove it from the cell and join with an empty folder under a new name.`,
    );
  }
  if (applied < logStart.index) {
    throw new IdentityError(
      `the store ends at index ${String(applied)} but the log begins after ${String(logStart.index)}: the store has lost what it had promised to keep. Replace this member: remove it from the cell and join with an empty folder under a new name.`,
    );
  }
  state.logEndsAt(lastIndex as LogIndex);
  const clamped =
    hardState === undefined ? undefined : clampCommit(hardState, applied, lastIndex as LogIndex);
  return { ...base, ...(clamped === undefined ? {} : { hardState: clamped }), logStart, entries };
}

function holds(recovery: WalRecovery, at: { readonly index: LogIndex; readonly term: Term }): boolean {
  const entry = recovery.entries[at.index - recovery.logStart.index - 1];
  return entry !== undefined && entry.term === at.term;
}

/** The persisted commit index may lag what was applied (R2). */
function clampCommit(hardState: HardState, applied: LogIndex, lastIndex: LogIndex): HardState {
  assert(hardState.commit <= lastIndex, "the commit index lies within the log", {
    commit: hardState.commit,
    lastIndex,
  });
  return { ...hardState, commit: Math.max(hardState.commit, applied) as LogIndex };
}

/** The vote of a term survives; a state of a later term than any seen starts without one. */
function raised(hardState: HardState | undefined, commit: LogIndex, term: Term): HardState {
  if (hardState === undefined || hardState.term < term) return { term, vote: 0 as MemberId, commit };
  return { ...hardState, commit };
}

/** Resolves when the write is durable. */
export function written(wal: Wal, write: Parameters<Wal["append"]>[0]): Promise<void> {
  return new Promise((resolve) => {
    wal.append(write, resolve);
  });
}

/** Makes a fresh folder a member: log and store first, the identity last, so that a crash leaves a fresh folder. */
async function becomeMember(parts: FolderParts, unjoined: UnjoinedIdentity): Promise<MemberIdentity> {
  const { options, environment, platform } = parts;
  const { directory, origin } = options;
  // Left by a start that was interrupted before the identity was written: it took part in nothing.
  for (const part of Object.values(memberPaths(directory))) await platform.disk.removeTree(part);
  switch (origin.kind) {
    case "bootstrap":
      return bootstrap(parts, unjoined);
    case "join": {
      environment.log.info("joining a cell", {
        targets: origin.targets.join(","),
        incarnation: unjoined.incarnation,
      });
      const joined = await joinCell({
        identity: unjoined,
        addresses: options.advertise,
        targets: origin.targets,
        ask: platform.askToJoin,
        log: environment.log,
        after: environment.after,
        random: environment.random,
      });
      const identity = { cellId: joined.cellId, memberId: joined.memberId, ...unjoined };
      await initialise(parts, identity, {
        membership: waitingMembership(joined.cellId, joined.members),
        appliedIndex: 0 as LogIndex,
        hardState: undefined,
      });
      return identity;
    }
    case "existing":
      throw new IdentityError(
        `${directory} holds no member. Start it with --bootstrap to begin a new cell, or with --join HOST:ADMIN-PORT to join one.`,
      );
  }
}

async function bootstrap(parts: FolderParts, unjoined: UnjoinedIdentity): Promise<MemberIdentity> {
  const identity: MemberIdentity = { cellId: parts.platform.uuid(), memberId: FIRST_MEMBER, ...unjoined };
  const membership: Membership = {
    cellId: identity.cellId,
    configurationIndex: BOOTSTRAP_INDEX,
    configuration: { ...EMPTY_CONFIGURATION, voters: [FIRST_MEMBER] },
    members: [
      {
        id: FIRST_MEMBER,
        name: unjoined.name,
        incarnation: unjoined.incarnation,
        addresses: parts.options.advertise,
      },
    ],
    removedIds: [],
    nextMemberId: (FIRST_MEMBER + 1) as MemberId,
  };
  await initialise(parts, identity, {
    membership,
    appliedIndex: BOOTSTRAP_INDEX,
    hardState: { term: BOOTSTRAP_TERM, vote: FIRST_MEMBER, commit: BOOTSTRAP_INDEX },
  });
  parts.environment.log.info("bootstrapped a new cell", { cellId: identity.cellId });
  return identity;
}

/** What a joiner knows before its first snapshot: whom to let in, and that it has no part in any quorum. */
function waitingMembership(cellId: string, members: readonly MemberRecord[]): Membership {
  return {
    cellId,
    configurationIndex: 0 as LogIndex,
    configuration: EMPTY_CONFIGURATION,
    members,
    removedIds: [],
    nextMemberId: (Math.max(...members.map((member) => member.id)) + 1) as MemberId,
  };
}

interface Beginning {
  readonly membership: Membership;
  readonly appliedIndex: LogIndex;
  /** Absent: nothing was voted or committed yet. */
  readonly hardState: HardState | undefined;
}

async function initialise(parts: FolderParts, identity: MemberIdentity, beginning: Beginning): Promise<void> {
  const generations = await openStore(parts);
  await writeFirstRows(generations.current, beginning);
  await generations.close();
  let failure: Error | undefined;
  const { wal } = await openLog(parts, identity, (error) => (failure = error));
  if (beginning.hardState !== undefined) {
    await written(wal, {
      snapshot: { index: beginning.appliedIndex, term: BOOTSTRAP_TERM },
      hardState: beginning.hardState,
      entries: [],
    });
  }
  await wal.close();
  if (failure !== undefined) throw failure;
  await writeIdentity(parts.platform.disk, parts.options.directory, identity);
}

async function writeFirstRows(store: Store, beginning: Beginning): Promise<void> {
  const machine = createMachine({ crc32 });
  const rows = [
    ...machine.bootstrap({ appliedIndex: beginning.appliedIndex }),
    membershipRow(beginning.membership),
  ];
  store.write((batch) => {
    for (const { keyspace, key, value } of rows) {
      if (value !== undefined) batch.put(keyspace, key, value);
    }
  });
  await store.barrier();
}
