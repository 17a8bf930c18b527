import type { MemberAddresses, MemberRecord } from "../machine/membership.ts";
import { findMember } from "../machine/membership.ts";
import type { LogIndex, Term } from "../raft/types.ts";
import { CellState } from "../replica/state.ts";
import { StoreError } from "../store/index.ts";
import type { Generations } from "../store/index.ts";
import { openWal } from "../wal/index.ts";
import type { Disk, Wal, WalRecovery } from "../wal/types.ts";
import { reconcile, written } from "./folder.ts";
import {
  clearRecovering,
  memberPaths,
  readIdentity,
  readRecovering,
  writeIdentity,
  writeRecovering,
} from "./identity.ts";
import type { MemberIdentity, RecoveredFrom, Recovering } from "./identity.ts";
import { MEMBER_DEFAULTS } from "./options.ts";
import { applyWholeLog, becomeNewCell } from "./recover-state.ts";

export interface RecoverOptions {
  readonly directory: string;
  /**
   * The member's new name: never that of another member of the old cell. It may keep its own only together with
   * `expectCellId`, which then tells whether a recovery was done already.
   */
  readonly name: string;
  /** What others are told to dial. Each default: what the old member advertised. */
  readonly advertise: Partial<MemberAddresses>;
  /** Refuse unless the folder belongs (or, recovered before, belonged) to this cell. Absent: any. */
  readonly expectCellId?: string;
  /** Refuse unless the folder holds everything up to this index of the log. Absent: whatever it holds. */
  readonly expectAppliedIndex?: number;
}

export interface RecoverTools {
  readonly disk: Disk;
  readonly openStore: (directory: string, monotonicMs: () => number) => Promise<Generations>;
  readonly uuid: () => string;
  /** Size of the new log's segments. Default: {@link MEMBER_DEFAULTS}. */
  readonly segmentBytes?: number;
}

export interface Recovery {
  /** `already`: an earlier run with the same parameters had done it; nothing was changed. */
  readonly outcome: "recovered" | "already";
  readonly identity: MemberIdentity;
  readonly from: RecoveredFrom;
}

/** The folder cannot, or must not, be recovered like this; the message says why and what to do. Nothing was changed. */
export class RecoveryRefused extends Error {
  override readonly name = "RecoveryRefused";
}

/**
 * Makes the folder of a stopped member the only voter of a new cell, after the old one has lost its majority for good.
 * Its whole log is applied, also what is not known to be committed: acknowledged writes may be among it.
 *
 * It can be stopped at any point and run again. First a note of what is to be becomes durable, and while it stands the
 * member does not start; then the state becomes the new cell's in one batch; then the log is begun anew; last, the
 * identity. Run again afterwards, it changes nothing.
 *
 * @throws RecoveryRefused
 */
export async function recoverFolder(options: RecoverOptions, tools: RecoverTools): Promise<Recovery> {
  const { directory } = options;
  const identity = await readIdentity(tools.disk, directory);
  if (identity === undefined) throw new RecoveryRefused(`${directory} holds no member (no identity.json).`);
  const done = alreadyDone(identity, options);
  if (done !== undefined) {
    await clearRecovering(tools.disk, directory);
    return done;
  }
  const begun = await readRecovering(tools.disk, directory);
  checkIdentity(identity, options, begun);
  const generations = await openStoppedStore(options, tools);
  try {
    const recovering = await convert({ options, tools, identity, begun, generations });
    const { membership, appliedIndex } = new CellState(generations.current);
    const [self] = membership.members;
    if (self === undefined) throw new Error("a recovered cell has one member");
    const recovered: MemberIdentity = {
      ...{ cellId: membership.cellId, memberId: self.id, name: self.name, incarnation: self.incarnation },
      recoveredFrom: recovering.from,
    };
    await beginLog(options, tools, recovered, { index: appliedIndex, term: recovering.term });
    await writeIdentity(tools.disk, directory, recovered);
    await clearRecovering(tools.disk, directory);
    return { outcome: "recovered", identity: recovered, from: recovering.from };
  } finally {
    await generations.close();
  }
}

function alreadyDone(identity: MemberIdentity, options: RecoverOptions): Recovery | undefined {
  const from = identity.recoveredFrom;
  if (from === undefined || identity.name !== options.name) return undefined;
  const { expectCellId, expectAppliedIndex = 0 } = options;
  // Asked to leave the cell that an earlier recovery made: once more, then.
  if (expectCellId === identity.cellId) return undefined;
  if (expectCellId !== undefined && expectCellId !== from.cellId) {
    throw new RecoveryRefused(
      `The folder was recovered as ${identity.name} before, from cell ${from.cellId}, not ${expectCellId}. To recover it once more, give it another name.`,
    );
  }
  if (expectAppliedIndex > from.lastIndex) throw tooShort(from.lastIndex, expectAppliedIndex);
  return { outcome: "already", identity, from };
}

function checkIdentity(
  identity: MemberIdentity,
  { name, advertise, expectCellId }: RecoverOptions,
  begun: Recovering | undefined,
): void {
  if (expectCellId !== undefined && identity.cellId !== expectCellId) {
    throw new RecoveryRefused(
      `The folder belongs to cell ${identity.cellId}, not ${expectCellId}. Is it the right folder?`,
    );
  }
  if (begun !== undefined) {
    const { to } = begun;
    const same = Object.entries(advertise).every(
      ([port, address]) => to.addresses[port as keyof MemberAddresses] === address,
    );
    if (to.name === name && same) return;
    throw new RecoveryRefused(
      `A recovery as ${to.name} (${JSON.stringify(to.addresses)}) was begun and not finished. Run it to its end with the same parameters.`,
    );
  }
  if (identity.name === name && expectCellId === undefined) {
    throw new RecoveryRefused(
      `${name} is the member's name in the cell that is lost. Give it another, never used before; or say with --expect-cell-id which cell is given up, so that running this twice does it once.`,
    );
  }
}

/** The store's own lock tells whether the member runs. */
async function openStoppedStore({ directory }: RecoverOptions, tools: RecoverTools): Promise<Generations> {
  try {
    return await tools.openStore(memberPaths(directory).store, () => 0);
  } catch (error) {
    if (error instanceof StoreError && error.code === "open-failed") {
      throw new RecoveryRefused(
        `The member's store cannot be opened: ${error.message}. Does its process still run? Stop it first.`,
      );
    }
    throw error;
  }
}

interface Conversion {
  readonly options: RecoverOptions;
  readonly tools: RecoverTools;
  readonly identity: MemberIdentity;
  readonly begun: Recovering | undefined;
  readonly generations: Generations;
}

/** The state becomes the new cell's; nothing is done that was done before a crash. */
async function convert(parts: Conversion): Promise<Recovering> {
  const { begun, generations, tools, options, identity } = parts;
  const state = new CellState(generations.current);
  if (begun !== undefined && state.membership.cellId === begun.to.cellId) return begun;
  const { wal, recovery, failed } = await openLog(options, tools, identity);
  try {
    const { entries, logStart } = await Promise.race([
      failed,
      wholeLog({ begun, state, generations, wal, recovery }),
    ]);
    const lastIndex = (logStart.index + entries.length) as LogIndex;
    const { expectAppliedIndex = 0 } = options;
    if (lastIndex < expectAppliedIndex) throw tooShort(lastIndex, expectAppliedIndex);
    const recovering = begun ?? plan(parts, state, lastIndex, lastTerm(recovery, logStart.term));
    if (begun === undefined) await writeRecovering(tools.disk, options.directory, recovering);
    applyWholeLog(state, entries);
    becomeNewCell(state, recovering.to, recovering.term);
    await generations.current.barrier();
    return recovering;
  } finally {
    await closeLog(wal, failed);
  }
}

/** The log, as far as it is of use: after a crash the state may have left it behind already. */
async function wholeLog(parts: {
  readonly begun: Recovering | undefined;
  readonly state: CellState;
  readonly generations: Generations;
  readonly wal: Wal;
  readonly recovery: WalRecovery;
}): Promise<Pick<WalRecovery, "entries" | "logStart">> {
  const { begun, state, generations, wal, recovery } = parts;
  const end = recovery.logStart.index + recovery.entries.length;
  if (begun !== undefined && state.appliedIndex > end) return recovery;
  return reconcile(state, generations, wal, recovery);
}

interface OpenedLog {
  readonly wal: Wal;
  readonly recovery: WalRecovery;
  /** Rejects when the disk fails: what was handed to the log is then never called durable. */
  readonly failed: Promise<never>;
}

async function openLog(
  { directory }: RecoverOptions,
  { disk, segmentBytes = MEMBER_DEFAULTS.segmentBytes }: RecoverTools,
  { cellId, memberId, incarnation }: MemberIdentity,
): Promise<OpenedLog> {
  let fail: (error: Error) => void = () => undefined;
  const failed = new Promise<never>((_, reject) => (fail = reject));
  failed.catch(() => undefined);
  const { wal, recovery } = await openWal({
    ...{ disk, directory: memberPaths(directory).wal, segmentBytesMax: segmentBytes },
    identity: { cellId, memberId, incarnation },
    onFatal: fail,
    now: () => 0,
  });
  return { wal, recovery, failed };
}

/** A log whose disk has failed waits for ever for what it has written. */
async function closeLog(wal: Wal, failed: Promise<never>): Promise<void> {
  await Promise.race([wal.close(), failed.catch(() => undefined)]);
}

function lastTerm(recovery: WalRecovery, start: Term): Term {
  const last = recovery.entries.at(-1)?.term ?? start;
  return Math.max(last, recovery.hardState?.term ?? 0) as Term;
}

function plan(
  { options, tools, identity }: Conversion,
  { membership, appliedIndex }: CellState,
  lastIndex: LogIndex,
  seen: Term,
): Recovering {
  const record: MemberRecord | undefined = findMember(membership, identity.memberId);
  if (membership.configuration.voters.length === 0) {
    throw new RecoveryRefused(
      "This member joined the cell and has never received its state: there is nothing to recover.",
    );
  }
  const addresses = { ...record?.addresses, ...options.advertise };
  return {
    from: {
      ...{ cellId: identity.cellId, memberId: identity.memberId, name: identity.name },
      ...{ appliedIndex, lastIndex },
    },
    to: {
      cellId: tools.uuid(),
      name: options.name,
      incarnation: tools.uuid(),
      addresses: wholeAddresses(addresses),
    },
    term: (seen + 1) as Term,
  };
}

function wholeAddresses(addresses: Partial<MemberAddresses>): MemberAddresses {
  const { client, http, peer, admin, ops } = addresses;
  if (
    client !== undefined &&
    http !== undefined &&
    peer !== undefined &&
    admin !== undefined &&
    ops !== undefined
  )
    return { client, http, peer, admin, ops };
  throw new RecoveryRefused(
    "The cell's configuration does not name this member any more, so its addresses are not known: give all five.",
  );
}

/** The old log is of no more use: all of it is in the state, durably. */
async function beginLog(
  options: RecoverOptions,
  tools: RecoverTools,
  identity: MemberIdentity,
  at: { readonly index: LogIndex; readonly term: Term },
): Promise<void> {
  await tools.disk.removeTree(memberPaths(options.directory).wal);
  const { wal, failed } = await openLog(options, tools, identity);
  try {
    const hardState = { term: at.term, vote: identity.memberId, commit: at.index };
    await Promise.race([failed, written(wal, { snapshot: at, hardState, entries: [] })]);
  } finally {
    await closeLog(wal, failed);
  }
}

function tooShort(lastIndex: number, expected: number): RecoveryRefused {
  return new RecoveryRefused(
    `The folder's log ends at index ${String(lastIndex)}, before ${String(expected)}: this is not the member that was looked at, or it has lost something. Is there a survivor that holds more?`,
  );
}
