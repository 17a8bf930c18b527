// What is mounted below our folders.
import { readFileSync, rmSync } from "node:fs";
import { run, tryRun } from "./command.ts";
import { E2eError } from "./error.ts";

/** One mount of this mount namespace. */
export interface Mount {
  readonly target: string;
  /** The device or the file system's own name for what is mounted. */
  readonly source: string;
}

const unescape = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(parseInt(octal, 8)));

/** Parses `/proc/self/mountinfo`; the optional fields before the dash vary in number. */
export function parseMounts(mountinfo: string): readonly Mount[] {
  return mountinfo
    .split("\n")
    .filter(Boolean)
    .map((line) => {
      const [before = "", after = ""] = line.split(" - ");
      return { target: unescape(before.split(" ")[4] ?? ""), source: unescape(after.split(" ")[1] ?? "") };
    });
}

export const currentMounts = (): readonly Mount[] =>
  parseMounts(readFileSync("/proc/self/mountinfo", "utf8"));

/** Mounts at a folder or below it, the newest first: the order in which they can be taken away. */
export function mountsBelow(mounts: readonly Mount[], folder: string): readonly Mount[] {
  return mounts.filter(({ target }) => target === folder || target.startsWith(`${folder}/`)).toReversed();
}

/** Unmounts everything at or below a folder. Lazily: a mount that is in use goes away when its last user does. */
export async function unmountBelow(folder: string): Promise<void> {
  const targets = mountsBelow(currentMounts(), folder).map(({ target }) => target);
  if (targets.length === 0) return;
  // One by one when the whole fails: mounts that propagate take others away with them.
  const all = await tryRun("umount", ["--lazy", "--no-mtab", ...targets]);
  if (all.code === 0) return;
  for (const { target } of mountsBelow(currentMounts(), folder)) await tryRun("umount", ["--lazy", target]);
}

/** Removes a folder with all in it. Throws `state` when something is still mounted there: what is in it may be somebody else's. */
export function removeUnmounted(folder: string): void {
  const [mounted] = mountsBelow(currentMounts(), folder);
  if (mounted !== undefined) throw new E2eError("state", `still mounted: ${mounted.target}`);
  rmSync(folder, { recursive: true, force: true });
}

/** Mounts an image file with XFS through a loop device, which the kernel frees at the unmount. */
export async function mountImage(image: string, target: string): Promise<void> {
  await run("mount", ["-t", "xfs", "-o", "loop,noatime", image, target]);
  const device = deviceOf(target);
  // Past the page cache of the file below: half the memory, and flushes are as quick as the disk's. Some file systems refuse.
  if (device !== undefined) await tryRun("losetup", ["--direct-io=on", device]);
}

/** The device that is mounted at a folder. */
export function deviceOf(target: string): string | undefined {
  return currentMounts().findLast((mount) => mount.target === target)?.source;
}
