import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, statfsSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const MIB = 1024 * 1024;
/** Room for a member of a torture: segments of 1 MiB, a small store, and a state being received beside it. */
const VOLUME_BYTES = 384 * MIB;

/** Why members have volumes of their own or not. */
export type Mounting = { readonly kind: "loop" } | { readonly kind: "folder"; readonly reason: string };

const live = new Set<Volume>();

/** For the last moment of the process, however it ends: no mount stays. */
export function destroyVolumes(): void {
  for (const volume of [...live]) volume.destroy();
}

/** Whether file systems can be mounted here, tried out once. */
export function tryMounting(directory: string): Mounting {
  if (process.platform !== "linux") return { kind: "folder", reason: "no loop mounts on this platform" };
  if (process.getuid?.() !== 0) return { kind: "folder", reason: "mounting needs root" };
  try {
    const volume = Volume.create(join(directory, "probe"), { kind: "loop" });
    volume.destroy();
    return { kind: "loop" };
  } catch (error) {
    return { kind: "folder", reason: error instanceof Error ? error.message : String(error) };
  }
}

/**
 * Where one member's folder lies: an ext4 file system of its own in a file on the real disk, so that it can be filled
 * without harm to others and an fsync still goes all the way down; a plain folder where mounting is not possible.
 */
export class Volume {
  /** Of the member. */
  readonly directory: string;
  readonly #mountPoint: string;
  readonly #image: string | undefined;
  #destroyed = false;

  private constructor(mountPoint: string, image: string | undefined) {
    this.#mountPoint = mountPoint;
    this.#image = image;
    this.directory = join(mountPoint, "member");
  }

  static create(path: string, mounting: Mounting): Volume {
    mkdirSync(path, { recursive: true });
    if (mounting.kind === "folder") return new Volume(path, undefined);
    const image = `${path}.img`;
    writeFileSync(image, "");
    truncateSync(image, VOLUME_BYTES);
    const volume = new Volume(path, image);
    try {
      run("mkfs.ext4", ["-q", "-F", "-m", "0", image]);
      run("mount", ["-o", "loop", image, path]);
    } catch (error) {
      rmSync(image, { force: true });
      throw error;
    }
    live.add(volume);
    return volume;
  }

  /** Can really be filled. */
  get mounted(): boolean {
    return this.#image !== undefined;
  }

  /** Takes all free space but `leaveBytes`. */
  fill(leaveBytes: number): void {
    const { bavail, bsize } = statfsSync(this.#mountPoint);
    const bytes = Math.max(0, bavail * bsize - leaveBytes);
    // Fails when the member grew meanwhile: then it is full enough.
    spawnSync("fallocate", ["-l", String(bytes), this.#ballast]);
  }

  drain(): void {
    rmSync(this.#ballast, { force: true });
  }

  /** All that was on it is gone. */
  destroy(): void {
    if (this.#destroyed) return;
    this.#destroyed = true;
    live.delete(this);
    if (this.#image !== undefined) {
      // Lazily: whoever still has a file open there is on its way out.
      run("umount", ["-l", this.#mountPoint]);
      rmSync(this.#image, { force: true });
    }
    rmSync(this.#mountPoint, { recursive: true, force: true });
  }

  get #ballast(): string {
    return join(this.#mountPoint, "ballast");
  }
}

function run(command: string, args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(command, args, { encoding: "utf8" });
  if (error !== undefined) throw new Error(`${command} cannot be run: ${error.message}`);
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${stderr.trim()}`);
}
