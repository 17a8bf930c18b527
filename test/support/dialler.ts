// Whose socket the other end of a connection is: Linux tells it of processes of the same machine.
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

const LOOPBACK = "0100007F";
/** The kernel's table is read in pieces, and what changes meanwhile may hide a row of it. */
const LOOKS = 3;
/** Of a connection that no process has any more. */
const NO_INODE = "0";

/** Remembers who has dialled: whoever dials again is found without a look at every process. */
export class Diallers {
  /** Sockets by inode. The kernel counts inodes on, so that an old one is never somebody else's. */
  readonly #owners = new Map<string, number>();
  readonly #known = new Set<number>();

  /** @returns the process that dialled `target` from this port of the loopback; undefined: nobody, as after its end. */
  find(port: number, target: number): number | undefined {
    for (let look = 0; look < LOOKS; look += 1) {
      const inode = inodeOf(port, target);
      if (inode === NO_INODE) return undefined;
      if (inode === undefined) continue;
      return this.#owners.get(inode) ?? this.#lookAt(this.#known, inode) ?? this.#lookAt(strangers(), inode);
    }
    return undefined;
  }

  #lookAt(pids: Iterable<number>, wanted: string): number | undefined {
    for (const pid of pids) {
      const inodes = socketsOf(pid);
      if (inodes === undefined) this.#known.delete(pid);
      else if (this.#known.has(pid) || inodes.includes(wanted)) {
        this.#known.add(pid);
        for (const inode of inodes) this.#owners.set(inode, pid);
      }
      if (inodes?.includes(wanted) === true) return pid;
    }
    return undefined;
  }
}

function inodeOf(port: number, target: number): string | undefined {
  const ends = `${LOOPBACK}:${hex(port)} ${LOOPBACK}:${hex(target)} `;
  const table = readFileSync("/proc/net/tcp", "latin1");
  const at = table.indexOf(ends);
  if (at < 0) return undefined;
  // "local remote state queues timer retransmits uid timeout inode"
  return table.slice(at, table.indexOf("\n", at)).trim().split(/\s+/)[8];
}

function hex(port: number): string {
  return port.toString(16).toUpperCase().padStart(4, "0");
}

/** The youngest first: whoever dials has often just begun. */
function strangers(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .sort((a, b) => b - a);
}

/** @returns the inodes of its sockets; undefined: it is gone, or somebody else's. */
function socketsOf(pid: number): string[] | undefined {
  const folder = `/proc/${String(pid)}/fd`;
  try {
    return readdirSync(folder).flatMap(
      (fd) => /^socket:\[(\d+)\]$/.exec(linkOf(`${folder}/${fd}`))?.[1] ?? [],
    );
  } catch {
    return undefined;
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
