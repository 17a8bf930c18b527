import { dirname, join } from "node:path";
import type { MemberAddresses } from "../machine/membership.ts";
import type { LogIndex, MemberId, Term } from "../raft/types.ts";
import type { Disk } from "../wal/types.ts";

/** Who this folder belongs to; written once, before anything else, and never changed. */
export interface MemberIdentity {
  readonly cellId: string;
  readonly memberId: MemberId;
  readonly name: string;
  /** UUID of this disk: a wiped disk draws another and is another member (W17). */
  readonly incarnation: string;
  /** Set when this cell came out of another that had lost its majority. */
  readonly recoveredFrom?: RecoveredFrom;
}

/** The member that a recovered one was before. */
export interface RecoveredFrom {
  readonly cellId: string;
  readonly memberId: MemberId;
  readonly name: string;
  /** What its state reflected, and where its log ended: everything up to there was kept. */
  readonly appliedIndex: LogIndex;
  readonly lastIndex: LogIndex;
}

/** A recovery under way: drawn once, so that it ends as it began however often it is interrupted. */
export interface Recovering {
  readonly from: RecoveredFrom;
  readonly to: {
    readonly cellId: string;
    readonly name: string;
    readonly incarnation: string;
    readonly addresses: MemberAddresses;
  };
  /** The first term of the new cell. */
  readonly term: Term;
}

/** A folder that has no part in a cell yet: the incarnation is drawn first and survives failed joins. */
export interface UnjoinedIdentity {
  readonly name: string;
  readonly incarnation: string;
}

export type FolderState =
  | { readonly kind: "member"; readonly identity: MemberIdentity }
  | { readonly kind: "unjoined"; readonly identity: UnjoinedIdentity };

/** A folder that cannot be used as it is; the message says what to do. */
export class IdentityError extends Error {
  override readonly name = "IdentityError";
}

const FILE = "identity.json";
/** There while the folder belongs to nobody: then log and store, if any, took part in nothing. */
const JOINING_FILE = "joining.json";
/** There from the first change that a recovery makes until the new identity is written. */
const RECOVERING_FILE = "recovering.json";
const PARTS = ["wal", "store"] as const;

export interface FolderTools {
  readonly disk: Disk;
  /** Draws an incarnation. */
  readonly uuid: () => string;
}

/** Reads who a folder belongs to; a fresh one gets an incarnation. */
export async function openFolder(
  { disk, uuid }: FolderTools,
  directory: string,
  name: string,
): Promise<FolderState> {
  await disk.makeDirectory(directory);
  const identity = await readIdentity(disk, directory);
  if (identity !== undefined) {
    const recovering = await readRecovering(disk, directory);
    if (recovering !== undefined && recovering.to.cellId !== identity.cellId) {
      throw new IdentityError(
        `A recovery of ${directory} as ${recovering.to.name} was begun and not finished. Run \`lockstep recover ${directory} --name ${recovering.to.name}\` to its end.`,
      );
    }
    if (identity.name !== name) {
      throw new IdentityError(
        `${directory} belongs to member ${identity.name}, not ${name}. Start it under its own name, or give ${name} a folder of its own.`,
      );
    }
    const entries = (await disk.list(directory)) ?? [];
    for (const part of PARTS) {
      if (!entries.includes(part)) {
        throw new IdentityError(
          `${directory} has lost its ${part}/ folder: this member's acknowledged writes may be gone, so it must not vote again under its old identity. Remove member ${String(identity.memberId)} (lockstep member remove), then join with an empty folder under a new name.`,
        );
      }
    }
    await removeJoining(disk, directory);
    if (recovering !== undefined) await clearRecovering(disk, directory);
    return { kind: "member", identity };
  }
  const joining = await readJson<UnjoinedIdentity>(disk, join(directory, JOINING_FILE));
  if (joining?.name === name) return { kind: "unjoined", identity: joining };
  if (joining === undefined) {
    const part = (await disk.list(directory))?.find((entry) => (PARTS as readonly string[]).includes(entry));
    if (part !== undefined) {
      throw new IdentityError(
        `${directory} holds a ${part}/ folder but no ${FILE}: it belongs to a member whose name was lost, and its acknowledged writes are not thrown away. Put ${FILE} back, or replace the member: remove it from the cell and join with an empty folder under a new name.`,
      );
    }
  }
  const fresh: UnjoinedIdentity = { name, incarnation: uuid() };
  await writeJson(disk, join(directory, JOINING_FILE), fresh);
  return { kind: "unjoined", identity: fresh };
}

/** From here on the folder is this member's. Written last, when log and store exist. */
export async function writeIdentity(disk: Disk, directory: string, identity: MemberIdentity): Promise<void> {
  await writeJson(disk, join(directory, FILE), identity);
  await removeJoining(disk, directory);
}

async function removeJoining(disk: Disk, directory: string): Promise<void> {
  await disk.remove(join(directory, JOINING_FILE));
  await disk.syncDirectory(directory);
}

/** The identity in a member's folder; undefined: it holds none. */
export async function readIdentity(disk: Disk, directory: string): Promise<MemberIdentity | undefined> {
  return readJson<MemberIdentity>(disk, join(directory, FILE));
}

/** undefined: no recovery is under way. */
export async function readRecovering(disk: Disk, directory: string): Promise<Recovering | undefined> {
  return readJson<Recovering>(disk, join(directory, RECOVERING_FILE));
}

export async function writeRecovering(disk: Disk, directory: string, recovering: Recovering): Promise<void> {
  await writeJson(disk, join(directory, RECOVERING_FILE), recovering);
}

export async function clearRecovering(disk: Disk, directory: string): Promise<void> {
  await disk.remove(join(directory, RECOVERING_FILE));
  await disk.syncDirectory(directory);
}

async function readJson<T>(disk: Disk, path: string): Promise<T | undefined> {
  const text = await disk.read(path);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text.toString("utf8")) as T;
  } catch {
    throw new IdentityError(`${path} is damaged. Restore it from the member list, or replace the member.`);
  }
}

/** Written beside, fsynced, renamed, folder fsynced: it is there whole or not at all. */
async function writeJson(disk: Disk, path: string, value: unknown): Promise<void> {
  const content = Buffer.from(`${JSON.stringify(value, undefined, 2)}\n`);
  const temporary = `${path}.tmp`;
  await disk.createZeroed(temporary, content.length);
  const file = await disk.open(temporary);
  try {
    await file.writeDurably([content], 0);
  } finally {
    await file.close();
  }
  await disk.rename(temporary, path);
  await disk.syncDirectory(dirname(path));
}

/** The parts of a member's folder. */
export function memberPaths(directory: string): { readonly wal: string; readonly store: string } {
  return { wal: join(directory, "wal"), store: join(directory, "store") };
}
