import type { Disk, DiskFile } from "../types.ts";
import { type CrashMode, type FileNode, MemoryVolume } from "./memory-volume.ts";

/** One call of a {@link Disk} or {@link DiskFile}, as the hooks see it. */
export interface DiskOperation {
  readonly kind: keyof Disk | keyof DiskFile;
  readonly path: string;
  /** Of `writeDurably` and `createZeroed`; 0 otherwise. */
  readonly bytes: number;
}

export interface MemoryDiskOptions {
  /** Seeded uniform generator in [0, 1): decides what a torn crash leaves behind. */
  readonly random: () => number;
  /** Size of the volume. Default: no limit. */
  readonly capacityBytes?: number;
  /**
   * Decides when an operation completes, by calling `complete` then. Default: at the end of the turn. Completions that
   * come after a crash do nothing.
   */
  readonly onOperation?: (operation: DiskOperation, complete: () => void) => void;
  /** See {@link MemoryDisk.fault}. */
  readonly fault?: (operation: DiskOperation) => Error | undefined;
}

/**
 * A disk in memory that forgets: what was written and not synced when it crashes is lost, wholly or by sector, and so are
 * directory entries that were not synced. It has no clock and no randomness of its own, so a history is a function of
 * its seed.
 */
export class MemoryDisk {
  /**
   * Asked when an operation completes; an error makes it fail. A failed `writeDurably` leaves its bytes readable but not
   * durable, as a page cache does after a failed sync; other failed operations have no effect. May be changed at any time.
   */
  fault: ((operation: DiskOperation) => Error | undefined) | undefined;
  readonly #random: () => number;
  readonly #onOperation: (operation: DiskOperation, complete: () => void) => void;
  readonly #volume: MemoryVolume;
  /** Counts the runs of the process; operations of earlier runs never complete. */
  #run = 0;

  constructor(options: MemoryDiskOptions) {
    this.#random = options.random;
    this.#onOperation = options.onOperation ?? ((_, complete) => queueMicrotask(complete));
    this.fault = options.fault;
    this.#volume = new MemoryVolume(options.capacityBytes ?? Number.POSITIVE_INFINITY);
  }

  /** Bytes of all files. */
  get usedBytes(): number {
    return this.#volume.usedBytes;
  }

  /** A volume may grow, or be filled by others. */
  set capacityBytes(bytes: number) {
    this.#volume.capacityBytes = bytes;
  }

  get capacityBytes(): number {
    return this.#volume.capacityBytes;
  }

  /**
   * The disk as one run of a process sees it. After {@link crash} or {@link kill} every call on it, and on files opened
   * through it, stays pending for ever: that process is dead.
   */
  mount(): Disk {
    const volume = this.#volume;
    const perform = this.#performer();
    return {
      makeDirectory: (path) => perform("makeDirectory", path, () => volume.makeDirectory(path)),
      list: (path) => perform("list", path, () => volume.list(path)),
      read: (path) => perform("read", path, () => volume.read(path)),
      createZeroed: (path, bytes) =>
        perform("createZeroed", path, () => volume.createZeroed(path, bytes), { bytes }),
      open: (path) => perform("open", path, () => new MemoryFile(perform, volume, path)),
      rename: (from, to) => perform("rename", to, () => volume.rename(from, to)),
      remove: (path) => perform("remove", path, () => volume.remove(path)),
      removeTree: (path) => perform("removeTree", path, () => volume.removeTree(path)),
      syncDirectory: (path) => perform("syncDirectory", path, () => volume.syncDirectory(path)),
      freeBytes: (path) => perform("freeBytes", path, () => volume.capacityBytes - volume.usedBytes),
      volumeBytes: (path) => perform("volumeBytes", path, () => volume.capacityBytes),
    };
  }

  /** Power off. Everything mounted before is dead; mount again for the next run. */
  crash(mode: CrashMode): void {
    this.#run++;
    this.#volume.crash(() => mode === "keep" || (mode === "tear" && this.#random() < 0.5));
  }

  /** The process is gone, the page cache is not: what was not durable can still be read, and still be lost. */
  kill(): void {
    this.#run++;
  }

  /** Sorted names of a directory now. */
  names(directory: string): string[] {
    return this.#volume.list(directory) ?? [];
  }

  /** Content of a file now. */
  peek(path: string): Buffer {
    const content = this.#volume.read(path);
    if (content === undefined) throw new TypeError(`no file ${path}`);
    return content;
  }

  /** Replaces the content (and so the size) of a file, durably, behind everybody's back. */
  poke(path: string, content: Uint8Array): void {
    this.#volume.replace(path, content);
  }

  /** Deletes a file, durably, behind everybody's back. */
  unlink(path: string): void {
    this.#volume.remove(path);
    this.#volume.syncDirectory(path.slice(0, path.lastIndexOf("/")));
  }

  /** @param bit counted from the start of the file, the low bit of a byte first */
  flipBit(path: string, bit: number): void {
    const content = this.peek(path);
    const byte = Math.floor(bit / 8);
    content.writeUInt8(content.readUInt8(byte) ^ (1 << (bit % 8)), byte);
    this.poke(path, content);
  }

  #performer(): Perform {
    const run = this.#run;
    return (kind, path, effect, options = {}) =>
      new Promise((resolve, reject) => {
        if (run !== this.#run) return;
        const operation: DiskOperation = { kind, path, bytes: options.bytes ?? 0 };
        options.begin?.();
        this.#onOperation(operation, () => {
          if (run !== this.#run) return;
          try {
            const fault = this.fault?.(operation);
            if (fault !== undefined) throw fault;
            resolve(effect());
          } catch (error) {
            reject(error instanceof Error ? error : new Error(String(error)));
          }
        });
      });
  }
}

/** Runs one operation of one run of the process: `begin` at once, `effect` when it completes. */
type Perform = <T>(
  kind: DiskOperation["kind"],
  path: string,
  effect: () => T,
  options?: { readonly bytes?: number; readonly begin?: () => void },
) => Promise<T>;

class MemoryFile implements DiskFile {
  readonly #perform: Perform;
  readonly #volume: MemoryVolume;
  readonly #path: string;
  readonly #node: FileNode;

  constructor(perform: Perform, volume: MemoryVolume, path: string) {
    this.#perform = perform;
    this.#volume = volume;
    this.#path = path;
    this.#node = volume.open(path);
  }

  /** On its way the content is readable but not durable. The caller's buffers are read now, once. */
  writeDurably(buffers: readonly Uint8Array[], position: number): Promise<void> {
    const content = Buffer.concat(buffers);
    const bytes = content.length;
    const settle = (): void => this.#volume.settle(this.#node, position, bytes);
    const begin = (): void => this.#volume.write(this.#node, content, position);
    return this.#perform("writeDurably", this.#path, settle, { bytes, begin });
  }

  close(): Promise<void> {
    return this.#perform("close", this.#path, () => undefined);
  }
}
