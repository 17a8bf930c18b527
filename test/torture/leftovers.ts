import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PREFIX = "lockstep-torture-";
/** There while the torture that owns a folder runs; a folder that was kept for people has none. */
const OWNER = "owner.pid";

/** A folder for one torture, under the system's temporary folder. */
export function createScratch(seed: number): string {
  const scratch = mkdtempSync(join(tmpdir(), `${PREFIX}${String(seed)}-`));
  writeFileSync(join(scratch, OWNER), String(process.pid));
  return scratch;
}

/** The torture is over; what it leaves belongs to people. */
export function disown(scratch: string): void {
  rmSync(join(scratch, OWNER), { force: true });
}

/** Removes what a torture left that was killed with no chance to clean up: mounts first. */
export function removeLeftovers(): void {
  for (const name of readdirSync(tmpdir())) {
    const folder = join(tmpdir(), name);
    const owner = name.startsWith(PREFIX) ? ownerOf(folder) : undefined;
    if (owner === undefined || isAlive(owner)) continue;
    for (const mountPoint of mountsUnder(folder)) spawnSync("umount", ["-l", mountPoint]);
    rmSync(folder, { recursive: true, force: true });
  }
}

function ownerOf(folder: string): number | undefined {
  try {
    return Number(readFileSync(join(folder, OWNER), "utf8"));
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Somebody else's process is alive, too.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function mountsUnder(folder: string): string[] {
  if (process.platform !== "linux") return [];
  const lines = readFileSync("/proc/mounts", "utf8").split("\n");
  return lines.map((line) => line.split(" ")[1] ?? "").filter((point) => point.startsWith(`${folder}/`));
}
