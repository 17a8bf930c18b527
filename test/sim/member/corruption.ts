/** Bits that flip on a disk while nobody looks. */
import type { MemoryDisk } from "../../../cell/src/wal/testing/memory-disk.ts";
import type { Dice } from "../contract.ts";

const LOG = "/data/wal";

/** Bytes of a segment up to the last one that is not zero. */
function written(content: Buffer): number {
  let end = content.length;
  while (end > 0 && content[end - 1] === 0) end -= 1;
  return end;
}

function segments(
  disk: MemoryDisk,
): { readonly path: string; readonly end: number; readonly size: number }[] {
  if (!disk.names("/data").includes("wal")) return [];
  return disk
    .names(LOG)
    .filter((name) => name.endsWith(".wal"))
    .map((name) => {
      const content = disk.peek(`${LOG}/${name}`);
      return { path: `${LOG}/${name}`, end: written(content), size: content.length };
    });
}

/**
 * Flips one bit of what was written to the log; the process must be dead, and the power must not have failed (a torn
 * batch may be damaged further without harm). The next start must refuse.
 * @returns whether there was such a place
 */
export function corruptMiddle(disk: MemoryDisk, dice: Dice): boolean {
  const found = segments(disk).filter(({ end }) => end > 0);
  if (found.length === 0) return false;
  const { path, end } = dice.pick(found);
  disk.flipBit(path, dice.between(0, end * 8 - 1));
  return true;
}

/**
 * Flips one bit behind everything that was ever written to the newest segment: the next start may refuse, but must not
 * lose anything.
 * @returns whether there was such a place
 */
export function corruptTail(disk: MemoryDisk, dice: Dice): boolean {
  const last = segments(disk).findLast(({ end }) => end > 0);
  if (last === undefined || last.end === last.size) return false;
  disk.flipBit(last.path, dice.between(last.end * 8, last.size * 8 - 1));
  return true;
}
