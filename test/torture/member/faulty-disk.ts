import { fstatSync, linkSync, lstatSync, mkdirSync, readSync, rmSync, openSync, closeSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { Disk, DiskFile } from "../../../cell/src/wal/index.ts";
import type { Faults } from "./faults.ts";
import { SECTOR_BYTES } from "./sync-journal.ts";
import type { SyncJournal } from "./sync-journal.ts";

/** So much later than it says, a lying disk makes a write durable. */
const LIE_MS = 3_000;

export interface FaultyDiskOptions {
  readonly disk: Disk;
  readonly journal: SyncJournal;
  readonly faults: Faults;
  /** Keeps inodes that a power cut may have to bring back; on the same volume. */
  readonly trash: string;
}

/** The real disk, with a memory of what is not synced yet, and with faults on command. */
export class FaultyDisk implements Disk {
  readonly #inner: Disk;
  readonly #journal: SyncJournal;
  readonly #faults: Faults;
  readonly #trash: string;

  constructor({ disk, journal, faults, trash }: FaultyDiskOptions) {
    this.#inner = disk;
    this.#journal = journal;
    this.#faults = faults;
    this.#trash = trash;
    mkdirSync(trash, { recursive: true });
  }

  makeDirectory(path: string): Promise<void> {
    return this.#inner.makeDirectory(path);
  }

  list(directory: string): Promise<string[] | undefined> {
    return this.#inner.list(directory);
  }

  read(path: string): Promise<Buffer | undefined> {
    return this.#inner.read(path);
  }

  removeTree(path: string): Promise<void> {
    return this.#inner.removeTree(path);
  }

  freeBytes(path: string): Promise<number> {
    return this.#faults.full ? Promise.resolve(0) : this.#inner.freeBytes(path);
  }

  volumeBytes(path: string): Promise<number> {
    return this.#inner.volumeBytes(path);
  }

  async createZeroed(path: string, bytes: number): Promise<void> {
    if (this.#faults.full) throw Object.assign(new Error(`ENOSPC: injected, '${path}'`), { code: "ENOSPC" });
    const before = inodeOf(path);
    await this.#inner.createZeroed(path, bytes);
    await this.#faults.delay();
    const inode = inodeOf(path);
    if (inode === null) throw new Error(`${path} vanished while it was made`);
    this.#journal.zeroed(inode);
    if (before !== inode) this.#changed(dirname(path), [[basename(path), before, inode]]);
  }

  async rename(from: string, to: string): Promise<void> {
    // A whole folder is renamed once, before the member is anybody: its loss is not of interest.
    if (lstatSync(from, { throwIfNoEntry: false })?.isDirectory() === true)
      return this.#inner.rename(from, to);
    const source = this.#keep(from);
    const target = this.#keep(to);
    await this.#inner.rename(from, to);
    this.#changed(dirname(to), [
      [basename(from), source, null],
      [basename(to), target, source],
    ]);
  }

  async remove(path: string): Promise<void> {
    const inode = this.#keep(path);
    await this.#inner.remove(path);
    if (inode !== null) this.#changed(dirname(path), [[basename(path), inode, null]]);
  }

  async syncDirectory(path: string): Promise<void> {
    const { sequence } = this.#journal;
    await this.#inner.syncDirectory(path);
    await this.#faults.delay();
    for (const inode of this.#journal.synced(path, sequence)) {
      rmSync(join(this.#trash, String(inode)), { force: true });
    }
  }

  async open(path: string): Promise<DiskFile> {
    const inner = await this.#inner.open(path);
    return new FaultyFile(inner, path, this.#journal, this.#faults);
  }

  #changed(directory: string, names: Parameters<SyncJournal["changed"]>[1]): void {
    for (const [, , after] of names) if (after !== null) this.#keepInode(directory, names, after);
    this.#journal.changed(directory, names);
  }

  /** A new file may be wanted back under a name that a lost change took from it. */
  #keepInode(directory: string, names: Parameters<SyncJournal["changed"]>[1], inode: number): void {
    const name = names.find(([, , after]) => after === inode)?.[0];
    if (name !== undefined) this.#link(join(directory, name), inode);
  }

  #keep(path: string): number | null {
    const inode = inodeOf(path);
    if (inode !== null) this.#link(path, inode);
    return inode;
  }

  #link(path: string, inode: number): void {
    const kept = join(this.#trash, String(inode));
    if (inodeOf(kept) === inode) return;
    rmSync(kept, { force: true });
    linkSync(path, kept);
  }
}

class FaultyFile implements DiskFile {
  readonly #inner: DiskFile;
  readonly #journal: SyncJournal;
  readonly #faults: Faults;
  /** Of its own, to read what a write replaces. */
  readonly #descriptor: number;
  readonly #inode: number;

  constructor(inner: DiskFile, path: string, journal: SyncJournal, faults: Faults) {
    this.#inner = inner;
    this.#journal = journal;
    this.#faults = faults;
    this.#descriptor = openSync(path, "r");
    this.#inode = fstatSync(this.#descriptor).ino;
  }

  async writeDurably(buffers: readonly Uint8Array[], position: number): Promise<void> {
    const bytes = buffers.reduce((sum, buffer) => sum + buffer.length, 0);
    const first = Math.floor(position / SECTOR_BYTES);
    const end = Math.ceil((position + bytes) / SECTOR_BYTES);
    const old = Buffer.alloc((end - first) * SECTOR_BYTES);
    const read = readSync(this.#descriptor, old, 0, old.length, first * SECTOR_BYTES);
    const id = this.#journal.willWrite(this.#inode, first, old.subarray(0, read));
    await this.#inner.writeDurably(buffers, position);
    if (this.#faults.lying) {
      setTimeout(() => this.#journal.isDurable(id), LIE_MS);
      return;
    }
    await this.#faults.delay();
    this.#faults.failIfAsked("log");
    this.#journal.isDurable(id);
  }

  async close(): Promise<void> {
    closeSync(this.#descriptor);
    await this.#inner.close();
  }
}

function inodeOf(path: string): number | null {
  return lstatSync(path, { throwIfNoEntry: false })?.ino ?? null;
}
