import { randomUUID } from "node:crypto";
import { open, readFile, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import type { MemberId } from "../raft/types.ts";
import { createNodeDisk } from "../wal/index.ts";

/** Who this folder belongs to; written once, before anything else, and never changed. */
export interface MemberIdentity {
  readonly cellId: string;
  readonly memberId: MemberId;
  readonly name: string;
  /** UUID of this disk: a wiped disk draws another and is another member (W17). */
  readonly incarnation: string;
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
const PARTS = ["wal", "store"] as const;

/** Reads who a folder belongs to; a fresh one gets an incarnation. */
export async function openFolder(directory: string, name: string): Promise<FolderState> {
  await createNodeDisk().makeDirectory(directory);
  const identity = await readJson<MemberIdentity>(join(directory, FILE));
  if (identity !== undefined) {
    if (identity.name !== name) {
      throw new IdentityError(
        `${directory} belongs to member ${identity.name}, not ${name}. Start it under its own name, or give ${name} a folder of its own.`,
      );
    }
    const entries = await readdir(directory);
    for (const part of PARTS) {
      if (!entries.includes(part)) {
        throw new IdentityError(
          `${directory} has lost its ${part}/ folder: this member's acknowledged writes may be gone, so it must not vote again under its old identity. Remove member ${String(identity.memberId)} (lockstep member remove), then join with an empty folder under a new name.`,
        );
      }
    }
    await removeJoining(directory);
    return { kind: "member", identity };
  }
  const joining = await readJson<UnjoinedIdentity>(join(directory, JOINING_FILE));
  if (joining?.name === name) return { kind: "unjoined", identity: joining };
  if (joining === undefined) {
    const part = (await readdir(directory)).find((entry) => (PARTS as readonly string[]).includes(entry));
    if (part !== undefined) {
      throw new IdentityError(
        `${directory} holds a ${part}/ folder but no ${FILE}: it belongs to a member whose name was lost, and its acknowledged writes are not thrown away. Put ${FILE} back, or replace the member: remove it from the cell and join with an empty folder under a new name.`,
      );
    }
  }
  const fresh: UnjoinedIdentity = { name, incarnation: randomUUID() };
  await writeJson(directory, JOINING_FILE, fresh);
  return { kind: "unjoined", identity: fresh };
}

/** From here on the folder is this member's. Written last, when log and store exist. */
export async function writeIdentity(directory: string, identity: MemberIdentity): Promise<void> {
  await writeJson(directory, FILE, identity);
  await removeJoining(directory);
}

async function removeJoining(directory: string): Promise<void> {
  await rm(join(directory, JOINING_FILE), { force: true });
  await syncFolder(directory);
}

/** The identity of a stopped member's folder, for offline tools. */
export async function readIdentity(directory: string): Promise<MemberIdentity | undefined> {
  return readJson<MemberIdentity>(join(directory, FILE));
}

async function readJson<T>(path: string): Promise<T | undefined> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new IdentityError(`${path} is damaged. Restore it from the member list, or replace the member.`);
  }
}

/** Written beside, fsynced, renamed, folder fsynced: it is there whole or not at all. */
async function writeJson(directory: string, file: string, value: unknown): Promise<void> {
  const temporary = join(directory, `${file}.tmp`);
  const handle = await open(temporary, "w");
  try {
    await handle.writeFile(`${JSON.stringify(value, undefined, 2)}\n`);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(temporary, join(directory, file));
  await syncFolder(directory);
}

async function syncFolder(directory: string): Promise<void> {
  const folder = await open(directory, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** The parts of a member's folder. */
export function memberPaths(directory: string): { readonly wal: string; readonly store: string } {
  return { wal: join(directory, "wal"), store: join(directory, "store") };
}
