import { openGenerations, openMemoryStore, writeBack } from "../../../cell/src/store/index.ts";
import type { GenerationFiles, Generations, MemoryStore, Store } from "../../../cell/src/store/index.ts";
import type { Disk } from "../../../cell/src/wal/types.ts";

/** A file in a store's folder stands for what RocksDB keeps there. */
const STAND_IN = "ROWS";
const STAND_IN_BYTES = 16;
/** Few, so that rows are handed down in the middle of what happens and not only at barriers. */
const WAITING_ROWS_MAX = 16;
/** Random enough to keep every write. */
export const KEEP_ALL: () => number = () => 1 - Number.EPSILON;

/**
 * The stores of one host: production's generations over the simulated disk, each generation a store in memory that
 * forgets what no barrier has fixed, behind production's table of rows that wait, which a process takes with it. They outlive the processes that open them.
 */
export class HostStores {
  readonly #stores = new Map<string, MemoryStore>();
  /** Of the process that has them open. */
  #sync: () => Promise<void> = () => Promise.resolve();

  /**
   * @param sync what a barrier waits for
   */
  async open(directory: string, disk: Disk, sync: () => Promise<void>): Promise<Generations> {
    this.#sync = sync;
    const openStore = async (path: string): Promise<Store> => {
      const standIn = `${path}/${STAND_IN}`;
      const isThere = (await disk.read(standIn)) !== undefined;
      const known = this.#stores.get(path);
      if (isThere && known !== undefined) {
        // Opens it again, whatever closed it.
        known.crash(KEEP_ALL);
        return writeBack(known, { rowsMax: WAITING_ROWS_MAX });
      }
      await disk.createZeroed(standIn, STAND_IN_BYTES);
      await disk.syncDirectory(path);
      const store = openMemoryStore({ sync: () => this.#sync() });
      this.#stores.set(path, store);
      return writeBack(store, { rowsMax: WAITING_ROWS_MAX });
    };
    return openGenerations(directory, { openStore, files: generationFiles(disk) });
  }

  /** The process is gone; a power cut also takes what no barrier has fixed, as `random` has it. */
  crash(random: () => number): void {
    for (const store of this.#stores.values()) store.crash(random);
  }

  wipe(): void {
    this.#stores.clear();
  }
}

function generationFiles(disk: Disk): GenerationFiles {
  return {
    makeDirectory: (path) => disk.makeDirectory(path),
    list: async (directory) => (await disk.list(directory)) ?? [],
    read: async (path) => (await disk.read(path))?.toString("utf8"),
    writeDurably: async (path, text) => {
      const content = Buffer.from(text);
      await disk.createZeroed(path, content.length);
      const file = await disk.open(path);
      await file.writeDurably([content], 0);
      await file.close();
    },
    rename: (from, to) => disk.rename(from, to),
    syncDirectory: (path) => disk.syncDirectory(path),
    removeTree: (path) => disk.removeTree(path),
  };
}
