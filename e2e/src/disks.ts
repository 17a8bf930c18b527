// The disks behind volumes: sparse files with XFS, mounted through loop devices. Not tmpfs: what a pod writes there
// counts as its memory, and a store that is within its limit would be killed for the size of its data. Not ext4: to grow
// it in use takes a capability (CAP_SYS_RESOURCE) that root of a container or of a small virtual machine often lacks.
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  statfsSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { run, tryRun } from "./command.ts";
import { E2eError } from "./error.ts";
import type { NodeFolders } from "./layout.ts";
import { deviceOf, mountImage, removeUnmounted, unmountBelow } from "./mounts.ts";

/** XFS takes this for its own journal, and will not be smaller than that: a claim of less gets a little more. */
const JOURNAL_BYTES = 64 * 2 ** 20;
const IMAGE_BYTES_MIN = 300 * 2 ** 20;
/** A folder that only root may enter, as ext4 has it on the disks of most clouds: applications must put up with it. */
const ROOT_FOLDER = "lost+found";
const FILLER = join(ROOT_FOLDER, "filler");

const imageBytesOf = (claimed: number): number => Math.max(claimed + JOURNAL_BYTES, IMAGE_BYTES_MIN);

export interface Disk {
  readonly image: string;
  readonly mount: string;
}

export const diskOf = (folders: NodeFolders, volume: string): Disk => ({
  image: join(folders.disks, `${volume}.img`),
  mount: join(folders.volumes, volume),
});

/** Makes an empty disk of this size, mounted. One that is there already is left as it is. */
export async function createDisk(disk: Disk, bytes: number): Promise<void> {
  if (deviceOf(disk.mount) !== undefined) return;
  mkdirSync(disk.mount, { recursive: true });
  rmSync(disk.image, { force: true });
  closeSync(openSync(disk.image, "w"));
  truncateSync(disk.image, imageBytesOf(bytes));
  await run("mkfs.xfs", ["-q", "-f", "-K", "-l", `size=${String(JOURNAL_BYTES)}`, disk.image]);
  await mountImage(disk.image, disk.mount);
  mkdirSync(join(disk.mount, ROOT_FOLDER), { mode: 0o700 });
}

/** Grows a disk while it is in use. A disk that is as large already is left as it is. */
export async function growDisk(disk: Disk, bytes: number): Promise<void> {
  const device = deviceOf(disk.mount);
  if (device === undefined) throw new E2eError("state", `no disk is mounted at ${disk.mount}`);
  if (statSync(disk.image).size < imageBytesOf(bytes)) truncateSync(disk.image, imageBytesOf(bytes));
  await run("losetup", ["--set-capacity", device]);
  await run("xfs_growfs", ["-d", disk.mount]);
}

/** Unmounts and destroys a disk. None is fine. */
export async function destroyDisk(disk: Disk): Promise<void> {
  await unmountBelow(disk.mount);
  removeUnmounted(disk.mount);
  rmSync(disk.image, { force: true });
}

/** Removes every file of a disk, under the feet of whoever uses it. */
export function wipeDisk(disk: Disk): void {
  for (const name of readdirSync(disk.mount))
    if (name !== ROOT_FOLDER) rmSync(join(disk.mount, name), { recursive: true, force: true });
  freeDisk(disk);
}

const PIECE_BYTES_MIN = 2 ** 20;

/** Takes all of a disk's free space but `leaveBytes`. */
export async function fillDisk(disk: Disk, leaveBytes = 0): Promise<void> {
  const file = join(disk.mount, FILLER);
  freeDisk(disk);
  const { bavail, bsize } = statfsSync(disk.mount);
  let wanted = bavail * bsize - leaveBytes;
  // Not all that is free can be had in one piece: what cannot is asked for in halves.
  for (let offset = 0, piece = wanted; piece >= PIECE_BYTES_MIN; piece = Math.min(piece, wanted)) {
    const { code } = await tryRun("fallocate", ["-o", String(offset), "-l", String(piece), file]);
    if (code === 0) {
      offset += piece;
      wanted -= piece;
    } else piece = Math.floor(piece / 2);
  }
  if (leaveBytes === 0) fillToTheBrim(file);
}

/** What is left is smaller than a piece, or kept back from `fallocate`; writing takes that too. */
function fillToTheBrim(file: string): void {
  const descriptor = openSync(file, "a");
  try {
    for (let size = 2 ** 16; size >= 2 ** 12; size /= 2) writeUntilFull(descriptor, Buffer.alloc(size));
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function writeUntilFull(descriptor: number, block: Buffer): void {
  try {
    for (;;) writeSync(descriptor, block);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  }
}

/** Gives back what `fillDisk` took. */
export function freeDisk(disk: Disk): void {
  const file = join(disk.mount, FILLER);
  if (existsSync(file)) rmSync(file);
}
