import {
  linkSync,
  lstatSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
  closeSync,
  existsSync,
} from "node:fs";
import { join } from "node:path";
import type { Dice } from "../dice.ts";
import { SECTOR_BYTES, SyncJournal } from "./sync-journal.ts";
import type { Unsynced } from "./sync-journal.ts";

/** Where the inodes live on that a power cut may have to bring back: on the member's own volume, beside its folder. */
export function trashOf(directory: string): string {
  return `${directory}.unsynced`;
}

/** As of the simulated disk (cell/src/wal/testing). */
export type CrashMode = "lose" | "keep" | "tear";

export interface PowerCut {
  readonly sectorsLost: number;
  readonly sectorsKept: number;
  readonly changesLost: number;
}

/**
 * Takes back from a dead member's folder (the store excepted) what it had not been promised to keep: all of it, none of
 * it, or each sector and each change of a directory by the toss of a coin, so in any order.
 */
export function cutPower(
  directory: string,
  journal: string,
  dice: Dice,
  mode: CrashMode = dice.pick<CrashMode>(["lose", "lose", "tear", "tear", "keep"]),
): PowerCut {
  const { state } = new SyncJournal(journal);
  const survives = (): boolean => (mode === "tear" ? dice.chance(0.5) : mode === "keep");
  const changesLost = undoChanges(state, directory, survives);
  const { lost, kept } = undoSectors(state, directory, survives);
  rmSync(trashOf(directory), { recursive: true, force: true });
  rmSync(journal, { force: true });
  return { sectorsLost: lost, sectorsKept: kept, changesLost };
}

function undoChanges(state: Unsynced, member: string, survives: () => boolean): number {
  let lost = 0;
  for (const [directory, changes] of state.changes) {
    if (!existsSync(directory)) continue;
    const wanted = new Map<string, number | null>();
    for (const { names } of changes) {
      for (const [name, before] of names) if (!wanted.has(name)) wanted.set(name, before);
      if (survives()) for (const [name, , after] of names) wanted.set(name, after);
      else lost += 1;
    }
    for (const [name, inode] of wanted) point(join(directory, name), inode, trashOf(member));
  }
  return lost;
}

/** Makes a name point to an inode, or to nothing. */
function point(path: string, inode: number | null, trash: string): void {
  const present = lstatSync(path, { throwIfNoEntry: false })?.ino ?? null;
  if (present === inode) return;
  if (inode === null) {
    rmSync(path, { force: true });
    return;
  }
  linkSync(join(trash, String(inode)), `${path}.back`);
  renameSync(`${path}.back`, path);
}

function undoSectors(
  state: Unsynced,
  directory: string,
  survives: () => boolean,
): { readonly lost: number; readonly kept: number } {
  const paths = pathsByInode(directory);
  let lost = 0;
  let kept = 0;
  for (const [inode, sectors] of state.sectors) {
    const path = paths.get(inode);
    if (path === undefined) continue;
    const file = openSync(path, "r+");
    try {
      for (const [sector, old] of sectors) {
        if (survives()) {
          kept += 1;
          continue;
        }
        lost += 1;
        writeSync(file, old, 0, old.length, sector * SECTOR_BYTES);
      }
    } finally {
      closeSync(file);
    }
  }
  return { lost, kept };
}

/** Files of the member's folder but for its store's. */
function pathsByInode(directory: string): Map<number, string> {
  const paths = new Map<number, string>();
  const walk = (folder: string): void => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      if (entry.isFile()) paths.set(statSync(path).ino, path);
      else if (entry.isDirectory() && path !== join(directory, "store")) walk(path);
    }
  };
  walk(directory);
  return paths;
}
