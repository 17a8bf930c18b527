import { assert } from "../../invariant.ts";

const SECTOR_BYTES = 512;
const PAGE_BYTES = 4096;

/**
 * What happens to writes and to changes of directories that were not yet durable when the power went:
 *
 * - `lose`: all of it is gone.
 * - `keep`: all of it happens to be there.
 * - `tear`: each 512-byte sector and each change of a directory by the toss of a coin, so in any order.
 */
export type CrashMode = "lose" | "keep" | "tear";

/** A file: what a reader sees now, and how to go back to what is durable. */
export interface FileNode {
  readonly kind: "file";
  size: number;
  durableSize: number;
  /** Pages that are not all zeros. */
  readonly pages: Map<number, Buffer>;
  /** Durable bytes of the sectors that were written and not synced. */
  readonly undo: Map<number, Buffer>;
}

interface DirectoryNode {
  readonly kind: "directory";
  readonly names: Map<string, FsNode>;
  durable: Map<string, FsNode>;
  /** Changes since the last sync, oldest first. */
  changes: Change[];
}

type FsNode = FileNode | DirectoryNode;

/** One atomic change of a directory: names to set or (undefined) to remove. */
type Change = readonly (readonly [name: string, node: FsNode | undefined])[];

/** The tree behind a {@link MemoryDisk}: synchronous, no hooks, no faults of its own but a full volume. */
export class MemoryVolume {
  readonly #root: DirectoryNode = newDirectory();
  capacityBytes: number;

  constructor(capacityBytes: number) {
    this.capacityBytes = capacityBytes;
  }

  /** Bytes of all files. */
  get usedBytes(): number {
    return usedBytesOf(this.#root);
  }

  /** Sorted names; `undefined` when there is no such directory. */
  list(path: string): string[] | undefined {
    const node = this.#find(path);
    return node?.kind === "directory" ? [...node.names.keys()].sort() : undefined;
  }

  read(path: string): Buffer | undefined {
    const node = this.#find(path);
    return node?.kind === "file" ? readBytes(node, 0, node.size) : undefined;
  }

  makeDirectory(path: string): void {
    let node = this.#root;
    for (const name of split(path)) {
      const next = node.names.get(name) ?? newDirectory();
      if (next.kind === "file") throw diskFault("EEXIST", path);
      node.names.set(name, next);
      node.durable.set(name, next);
      node = next;
    }
  }

  /** A full volume leaves an empty file behind. */
  createZeroed(path: string, bytes: number): void {
    const { directory, name } = this.#parent(path);
    const file: FileNode = { kind: "file", size: 0, durableSize: 0, pages: new Map(), undo: new Map() };
    change(directory, [[name, file]]);
    this.#allocate(path, bytes);
    file.size = bytes;
    file.durableSize = bytes;
  }

  open(path: string): FileNode {
    const node = this.#find(path);
    if (node?.kind !== "file") throw diskFault("ENOENT", path);
    return node;
  }

  /** Atomic within a directory. */
  rename(from: string, to: string): void {
    const source = this.#parent(from);
    const target = this.#parent(to);
    const node = source.directory.names.get(source.name);
    if (node === undefined) throw diskFault("ENOENT", from);
    assert(source.directory === target.directory, "renames stay within a directory");
    change(source.directory, [
      [source.name, undefined],
      [target.name, node],
    ]);
  }

  remove(path: string): void {
    const { directory, name } = this.#parent(path);
    const node = directory.names.get(name);
    if (node === undefined) return;
    if (node.kind === "directory") throw diskFault("EISDIR", path);
    change(directory, [[name, undefined]]);
  }

  /** Nothing happens when it does not exist. */
  removeTree(path: string): void {
    const { directory, name } = this.#parent(path);
    if (directory.names.has(name)) change(directory, [[name, undefined]]);
  }

  syncDirectory(path: string): void {
    const node = this.#find(path);
    if (node?.kind !== "directory") throw diskFault("ENOENT", path);
    node.changes = [];
    node.durable = new Map(node.names);
  }

  /** Visible at once, durable after {@link settle}. */
  write(file: FileNode, content: Uint8Array, position: number): void {
    const end = position + content.length;
    if (end > file.size) this.#allocate("a file", end - file.size);
    for (const sector of sectors(position, content.length)) {
      if (file.undo.has(sector)) continue;
      file.undo.set(sector, readBytes(file, sector * SECTOR_BYTES, SECTOR_BYTES));
    }
    writeBytes(file, content, position);
    file.size = Math.max(file.size, end);
  }

  /** What was written there is durable. */
  settle(file: FileNode, position: number, bytes: number): void {
    for (const sector of sectors(position, bytes)) file.undo.delete(sector);
    file.durableSize = Math.max(file.durableSize, position + bytes);
  }

  /** Replaces the content of a file, durably. */
  replace(path: string, content: Uint8Array): void {
    const file = this.open(path);
    file.pages.clear();
    file.undo.clear();
    writeBytes(file, content, 0);
    file.size = content.length;
    file.durableSize = content.length;
  }

  /** @param survives asked for each sector and each change of a directory that is not durable */
  crash(survives: () => boolean): void {
    crashDirectory(this.#root, survives);
  }

  #allocate(path: string, bytes: number): void {
    if (this.usedBytes + bytes > this.capacityBytes) throw diskFault("ENOSPC", path);
  }

  #find(path: string): FsNode | undefined {
    let node: FsNode | undefined = this.#root;
    for (const name of split(path)) node = node?.kind === "directory" ? node.names.get(name) : undefined;
    return node;
  }

  #parent(path: string): { directory: DirectoryNode; name: string } {
    const names = split(path);
    const name = names.pop();
    const directory = this.#find(names.join("/"));
    if (name === undefined || directory?.kind !== "directory") throw diskFault("ENOENT", path);
    return { directory, name };
  }
}

function crashDirectory(directory: DirectoryNode, survives: () => boolean): void {
  const names = new Map(directory.durable);
  for (const step of directory.changes) {
    if (survives()) apply(names, step);
  }
  directory.names.clear();
  for (const [name, node] of names) directory.names.set(name, node);
  directory.durable = names;
  directory.changes = [];
  for (const node of names.values()) {
    if (node.kind === "directory") crashDirectory(node, survives);
    else crashFile(node, survives);
  }
}

function crashFile(file: FileNode, survives: () => boolean): void {
  for (const [sector, durable] of file.undo) {
    if (!survives()) writeBytes(file, durable, sector * SECTOR_BYTES);
  }
  file.undo.clear();
  if (file.size !== file.durableSize && !survives()) file.size = file.durableSize;
  file.durableSize = file.size;
}

function newDirectory(): DirectoryNode {
  return { kind: "directory", names: new Map(), durable: new Map(), changes: [] };
}

function change(directory: DirectoryNode, step: Change): void {
  directory.changes.push(step);
  apply(directory.names, step);
}

function apply(names: Map<string, FsNode>, step: Change): void {
  for (const [name, node] of step) {
    if (node === undefined) names.delete(name);
    else names.set(name, node);
  }
}

function* sectors(position: number, bytes: number): Iterable<number> {
  const end = position + bytes;
  for (let sector = Math.floor(position / SECTOR_BYTES); sector * SECTOR_BYTES < end; sector++) yield sector;
}

function readBytes(file: FileNode, from: number, bytes: number): Buffer {
  const content = Buffer.alloc(bytes);
  for (let at = 0; at < bytes;) {
    const inPage = (from + at) % PAGE_BYTES;
    const length = Math.min(bytes - at, PAGE_BYTES - inPage);
    const page = file.pages.get(Math.floor((from + at) / PAGE_BYTES));
    page?.copy(content, at, inPage, inPage + length);
    at += length;
  }
  return content;
}

function writeBytes(file: FileNode, content: Uint8Array, position: number): void {
  for (let at = 0; at < content.length;) {
    const page = Math.floor((position + at) / PAGE_BYTES);
    const inPage = (position + at) % PAGE_BYTES;
    const length = Math.min(content.length - at, PAGE_BYTES - inPage);
    const data = file.pages.get(page) ?? Buffer.alloc(PAGE_BYTES);
    data.set(content.subarray(at, at + length), inPage);
    file.pages.set(page, data);
    at += length;
  }
}

function usedBytesOf(node: FsNode): number {
  if (node.kind === "file") return node.size;
  let bytes = 0;
  for (const child of node.names.values()) bytes += usedBytesOf(child);
  return bytes;
}

function split(path: string): string[] {
  return path.split("/").filter((name) => name !== "");
}

/** An error as `node:fs` throws it. */
export function diskFault(code: string, path: string): Error {
  return Object.assign(new Error(`${code}: simulated, '${path}'`), { code });
}
