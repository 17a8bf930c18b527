// The disks behind volumes: sparse files with ext4, mounted through loop devices. Not tmpfs: what a pod writes there
// counts as its memory, and a store that is within its limit would be killed for the size of its data.
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { run, tryRun } from "./command.ts";
import { E2eError } from "./error.ts";
import type { NodeFolders } from "./layout.ts";
import { deviceOf, mountImage, removeUnmounted, unmountBelow } from "./mounts.ts";

/** ext4 wants a little room for itself. */
const BYTES_MIN = 8 * 2 ** 20;
/** In the folder that ext4 keeps for root, where no application looks. */
const FILLER = "lost+found/filler";

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
  truncateSync(disk.image, Math.max(bytes, BYTES_MIN));
  // No reserve for root: a full disk is as full for everybody. A journal of 4 MiB is enough for these sizes.
  await run("mkfs.ext4", [
    "-q",
    "-F",
    "-m",
    "0",
    "-J",
    "size=4",
    "-E",
    "lazy_itable_init=1,nodiscard",
    disk.image,
  ]);
  await mountImage(disk.image, disk.mount);
}

/** Grows a disk while it is in use. A disk that is as large already is left as it is. */
export async function growDisk(disk: Disk, bytes: number): Promise<void> {
  const device = deviceOf(disk.mount);
  if (device === undefined) throw new E2eError("state", `no disk is mounted at ${disk.mount}`);
  truncateSync(disk.image, Math.max(bytes, BYTES_MIN));
  await run("losetup", ["--set-capacity", device]);
  await run("resize2fs", [device]);
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
    if (name !== "lost+found") rmSync(join(disk.mount, name), { recursive: true, force: true });
  freeDisk(disk);
}

/** Takes all of a disk's free space but `leaveBytes`. */
export async function fillDisk(disk: Disk, leaveBytes = 0): Promise<void> {
  const file = join(disk.mount, FILLER);
  freeDisk(disk);
  const { bavail, bsize } = statfsSync(disk.mount);
  const bytes = bavail * bsize - leaveBytes;
  if (bytes > 0) await tryRun("fallocate", ["--length", String(bytes), file]);
  if (leaveBytes === 0) fillToTheBrim(file);
}

/** `fallocate` leaves what the file system may need for its own records; writing takes that too. */
function fillToTheBrim(file: string): void {
  const descriptor = openSync(file, "a");
  try {
    for (let size = 2 ** 16; size >= 2 ** 12; size /= 2) writeUntilFull(descriptor, Buffer.alloc(size));
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
