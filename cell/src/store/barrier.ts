/**
 * Durability barriers over RocksDB's files. A synced write through the binding blocks its caller for the fsync; here
 * the live `.log` files are fdatasynced through node:fs, on its thread pool, while writes go on (architecture,
 * section 5). That is enough because RocksDB hands every write to the kernel before `write` returns, syncs tables and
 * manifest itself before it drops a log they replace, and syncs closed logs before it flushes one column of many.
 */
import { open, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { StoreError } from "./errors.ts";

/** What a barrier does to the file system; replaced in tests that inject faults. */
export interface BarrierFiles {
  /** Names of all files in the store's folder. */
  list(directory: string): Promise<string[]>;
  /** fdatasync. `false`: the file is gone (RocksDB replaced this log by tables that it synced). */
  syncFile(path: string): Promise<boolean>;
  syncDirectory(path: string): Promise<void>;
  /** 0 when the file is gone. */
  size(path: string): Promise<number>;
}

export const nodeBarrierFiles: BarrierFiles = {
  list: async (directory) => await readdir(directory),
  async syncFile(path) {
    try {
      await using file = await open(path, "r");
      await file.datasync();
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  },
  async syncDirectory(path) {
    await using directory = await open(path, "r");
    await directory.sync();
  },
  async size(path) {
    try {
      return (await stat(path)).size;
    } catch (error) {
      if (isMissing(error)) return 0;
      throw error;
    }
  },
};

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

/** One barrier. @returns the bytes of all files in the folder. */
export async function syncStoreFiles(directory: string, files: BarrierFiles): Promise<number> {
  // Listed after every write that the barrier covers: a log that appears later holds only later writes.
  const names = await files.list(directory);
  for (const name of names.sort()) {
    if (name.endsWith(".log")) await files.syncFile(join(directory, name));
  }
  // A new log's name is durable only with its folder.
  await files.syncDirectory(directory);
  const sizes = await Promise.all(names.map((name) => files.size(join(directory, name))));
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

/**
 * Runs one barrier at a time; all calls made during one share the next. After a failure every later call fails too:
 * a second fsync that succeeds proves nothing about the pages of the first (W7).
 */
export class BarrierQueue {
  readonly #run: () => Promise<void>;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  #failure: StoreError | undefined;

  constructor(run: () => Promise<void>) {
    this.#run = run;
  }

  get failure(): StoreError | undefined {
    return this.#failure;
  }

  barrier(): Promise<void> {
    if (this.#running === undefined) return this.#start();
    this.#next ??= this.#running.then(
      () => this.#startNext(),
      () => this.#startNext(),
    );
    return this.#next;
  }

  /** Resolves when no barrier runs any more, whatever became of it. */
  async idle(): Promise<void> {
    while (this.#running !== undefined) await (this.#next ?? this.#running).catch(() => undefined);
  }

  #startNext(): Promise<void> {
    this.#next = undefined;
    return this.#start();
  }

  #start(): Promise<void> {
    this.#running = this.#once().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #once(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    try {
      await this.#run();
    } catch (error) {
      this.#failure =
        error instanceof StoreError
          ? error
          : new StoreError("failed", "a sync of the store failed: the member must stop", error);
      throw this.#failure;
    }
  }
}
