import fs from "node:fs";
import path from "node:path";
import type { Disk, DiskFile } from "./types.ts";

/**
 * Zeros are written and synced in pieces of this size. Synced only at the end, 16 MiB at once made group commits next to
 * it ten times slower; this way they hardly notice.
 */
const ZERO_CHUNK_BYTES = 256 * 1024;
/** POSIX lets one writev take 1,024 pieces. */
const PIECES_MAX = 1024;

/**
 * On Linux a file opened with O_DSYNC makes a write durable in one hop through libuv's pool where writev + fdatasync
 * need two. Elsewhere its promise is weaker (macOS: no flush of the drive's cache), so there it is fdatasync.
 */
const WRITES_ARE_DURABLE = process.platform === "linux";
const OPEN_FLAGS = fs.constants.O_RDWR | (WRITES_ARE_DURABLE ? fs.constants.O_DSYNC : 0);

/** The real disk. All work runs on libuv's pool. */
export function createNodeDisk(): Disk {
  return {
    makeDirectory,
    list,
    read,
    createZeroed,
    open,
    rename: (from, to) => fs.promises.rename(from, to),
    remove: (file) => fs.promises.rm(file, { force: true }),
    removeTree: (top) => fs.promises.rm(top, { recursive: true, force: true }),
    syncDirectory,
    async freeBytes(directory) {
      const stats = await fs.promises.statfs(directory);
      return stats.bavail * stats.bsize;
    },
    async volumeBytes(directory) {
      const stats = await fs.promises.statfs(directory);
      return stats.blocks * stats.bsize;
    },
  };
}

async function makeDirectory(directory: string): Promise<void> {
  const first = await fs.promises.mkdir(directory, { recursive: true });
  if (first === undefined) return;
  // `first` is as relative as `directory` is.
  const top = path.resolve(first);
  for (let made = path.resolve(directory); made.length >= top.length; made = path.dirname(made)) {
    await syncDirectory(path.dirname(made));
  }
}

async function list(directory: string): Promise<string[] | undefined> {
  try {
    return (await fs.promises.readdir(directory)).sort();
  } catch (error) {
    return undefinedWhenAbsent(error);
  }
}

async function read(file: string): Promise<Buffer | undefined> {
  try {
    return await fs.promises.readFile(file);
  } catch (error) {
    return undefinedWhenAbsent(error);
  }
}

function undefinedWhenAbsent(error: unknown): undefined {
  if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
  throw error;
}

/**
 * Zeros are written, not merely reserved: extents that were never written cost a metadata change, and so a journal
 * commit, on the first durable write into them.
 */
async function createZeroed(file: string, bytes: number): Promise<void> {
  const handle = await fs.promises.open(file, "w");
  try {
    const zeros = Buffer.alloc(Math.min(bytes, ZERO_CHUNK_BYTES));
    let at = 0;
    while (at < bytes) {
      const { bytesWritten } = await handle.write(zeros, 0, Math.min(zeros.length, bytes - at), at);
      at += bytesWritten;
      await handle.datasync();
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function open(file: string): Promise<DiskFile> {
  return new Promise((resolve, reject) => {
    fs.open(file, OPEN_FLAGS, (error, descriptor) => {
      if (error === null) resolve(new NodeDiskFile(descriptor));
      else reject(error);
    });
  });
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await fs.promises.open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

class NodeDiskFile implements DiskFile {
  readonly #descriptor: number;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  writeDurably(buffers: readonly Uint8Array[], position: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#write(buffers, position, (error) => {
        if (error !== null) reject(error);
        else if (WRITES_ARE_DURABLE) resolve();
        else fs.fdatasync(this.#descriptor, (failure) => (failure === null ? resolve() : reject(failure)));
      });
    });
  }

  close(): Promise<void> {
    return new Promise((resolve, reject) => {
      fs.close(this.#descriptor, (error) => (error ? reject(error) : resolve()));
    });
  }

  #write(buffers: readonly Uint8Array[], position: number, done: (error: Error | null) => void): void {
    const pieces = buffers.length > PIECES_MAX ? buffers.slice(0, PIECES_MAX) : buffers;
    const onWritten = (error: Error | null, written: number): void => {
      if (error !== null) return done(error);
      const rest = remaining(buffers, written);
      if (rest.length === 0) return done(null);
      if (written === 0) return done(new Error("the disk accepted no bytes"));
      this.#write(rest, position + written, done);
    };
    const only = pieces.length === 1 ? pieces[0] : undefined;
    if (only !== undefined) fs.write(this.#descriptor, only, 0, only.length, position, onWritten);
    else fs.writev(this.#descriptor, pieces, position, onWritten);
  }
}

/** What is left of `buffers` after the first `written` bytes. */
function remaining(buffers: readonly Uint8Array[], written: number): readonly Uint8Array[] {
  let skip = written;
  for (let i = 0; i < buffers.length; i++) {
    const buffer = buffers[i];
    if (buffer === undefined) break;
    if (skip < buffer.length) return [buffer.subarray(skip), ...buffers.slice(i + 1)];
    skip -= buffer.length;
  }
  return [];
}
