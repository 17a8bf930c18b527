/**
 * Generations of a member's store. `store/` holds one live RocksDB and, while a snapshot is received, a second one
 * that nobody reads. `CURRENT` names the live one; replacing that file by rename is the moment of the swap (W14), so
 * a crash leaves the old state or the new one, never neither.
 */
import { join, dirname } from "node:path";
import { assert } from "../invariant.ts";
import { decodeCurrent, encodeCurrent, folderName, folderNumber, type Current } from "./current-file.ts";
import { StoreError } from "./errors.ts";
import { nodeGenerationFiles, type GenerationFiles } from "./generation-files.ts";
import { KEYSPACES, type Store } from "./types.ts";

const CURRENT = "CURRENT";
const CURRENT_TMP = "CURRENT.tmp";

export interface GenerationsOptions {
  /** Opens or creates the store of one generation. */
  readonly openStore: (directory: string) => Promise<Store>;
  /** Default: node:fs. */
  readonly files?: GenerationFiles;
}

export interface PendingGeneration {
  /** Fresh and empty. */
  readonly store: Store;
  /**
   * Makes the new store durable and live, then closes and removes the old one: whoever holds it or a view of it must
   * be done. When it rejects with code `failed` it is unknown which one is live, and the member must stop; with
   * any other code the old one still is, and this generation must be aborted.
   *
   * @param note kept beside the name of the live generation, at most 64 KiB: what the caller needs at the next start
   * to finish what belongs to this swap (the snapshot's metadata, for the marker in the write-ahead log)
   * @param swap runs once the new store is live and before the old one is closed: readers move over in it
   */
  commit(note?: Uint8Array, swap?: (store: Store) => void): Promise<Store>;
  /** Closes and removes it. */
  abort(): Promise<void>;
}

export interface Generations {
  /** The live store. Replaced by a commit. */
  readonly current: Store;
  /** From 1. */
  readonly number: number;
  /** Of the commit that made this generation live; empty for the first one. */
  readonly note: Uint8Array;
  /** One at a time. */
  begin(): Promise<PendingGeneration>;
  /** Closes the live store and aborts a pending generation. */
  close(): Promise<void>;
}

/**
 * Opens the live generation, creates the first one in an empty folder, and removes what a crash left over.
 *
 * @throws {@link StoreError} `generation-invalid` when `CURRENT` is damaged, names a folder that is gone, or is
 * missing beside a store that holds rows; whatever `openStore` throws
 */
export async function openGenerations(directory: string, options: GenerationsOptions): Promise<Generations> {
  const files = options.files ?? nodeGenerationFiles;
  await files.makeDirectory(directory);
  await files.syncDirectory(dirname(directory));
  const names = await files.list(directory);
  const text = await files.read(join(directory, CURRENT));
  const folder = new GenerationFolder(directory, files, options.openStore);
  if (text === undefined) return await openFirst(folder, names);
  const current = decodeCurrent(text);
  const live = folderName(current.number);
  if (!names.includes(live))
    throw new StoreError("generation-invalid", `CURRENT names ${live}, which is gone`);
  await folder.removeLeftovers(names, live);
  return new LiveGenerations(folder, current, await folder.open(current.number));
}

/** No `CURRENT`: nothing was ever live here, unless the file was lost, and then no row may be thrown away. */
async function openFirst(folder: GenerationFolder, names: readonly string[]): Promise<Generations> {
  const found = names.filter((name) => folderNumber(name) !== undefined);
  const first = folderName(1);
  if (found.some((name) => name !== first)) {
    throw new StoreError("generation-invalid", `CURRENT is missing beside ${found.join(", ")}`);
  }
  const store = await folder.open(1);
  try {
    if (found.length > 0) assertEmpty(store);
    await store.barrier();
    const current = { number: 1, note: new Uint8Array(0) };
    await folder.prepare(current);
    await folder.publish();
    return new LiveGenerations(folder, current, store);
  } catch (error) {
    await store.close();
    throw error;
  }
}

function assertEmpty(store: Store): void {
  for (const keyspace of KEYSPACES) {
    const rows = store.scan(keyspace, { from: new Uint8Array(0), limit: 1, keysOnly: true });
    if (rows.length > 0) {
      throw new StoreError(
        "generation-invalid",
        `CURRENT is missing beside a store with rows in ${keyspace}`,
      );
    }
  }
}

/** The steps on disk, one by one. */
class GenerationFolder {
  readonly #directory: string;
  readonly #files: GenerationFiles;
  readonly #openStore: (directory: string) => Promise<Store>;

  constructor(directory: string, files: GenerationFiles, openStore: (directory: string) => Promise<Store>) {
    this.#directory = directory;
    this.#files = files;
    this.#openStore = openStore;
  }

  async open(number: number): Promise<Store> {
    const path = join(this.#directory, folderName(number));
    await this.#files.makeDirectory(path);
    // The folder's own name must be durable before `CURRENT` may say it.
    await this.#files.syncDirectory(this.#directory);
    return await this.#openStore(path);
  }

  async remove(number: number): Promise<void> {
    await this.#files.removeTree(join(this.#directory, folderName(number)));
    await this.#files.syncDirectory(this.#directory);
  }

  /** Nothing is live yet after this. */
  async prepare(current: Current): Promise<void> {
    await this.#files.writeDurably(join(this.#directory, CURRENT_TMP), encodeCurrent(current));
  }

  /** The swap: after the rename a crash may show either, after the sync only the new one. */
  async publish(): Promise<void> {
    try {
      await this.#files.rename(join(this.#directory, CURRENT_TMP), join(this.#directory, CURRENT));
      await this.#files.syncDirectory(this.#directory);
    } catch (error) {
      throw new StoreError("failed", "unknown which generation is live: the member must stop", error);
    }
  }

  async removeLeftovers(names: readonly string[], live: string): Promise<void> {
    const leftovers = names.filter(
      (name) => name === CURRENT_TMP || (folderNumber(name) !== undefined && name !== live),
    );
    for (const name of leftovers) await this.#files.removeTree(join(this.#directory, name));
    if (leftovers.length > 0) await this.#files.syncDirectory(this.#directory);
  }
}

class LiveGenerations implements Generations {
  readonly #folder: GenerationFolder;
  #live: Current;
  #store: Store;
  #pending: Pending | undefined;
  #beginning = false;

  constructor(folder: GenerationFolder, live: Current, store: Store) {
    this.#folder = folder;
    this.#live = live;
    this.#store = store;
  }

  get current(): Store {
    return this.#store;
  }

  get number(): number {
    return this.#live.number;
  }

  get note(): Uint8Array {
    return this.#live.note;
  }

  async begin(): Promise<PendingGeneration> {
    assert(this.#pending === undefined && !this.#beginning, "one generation is pending at a time");
    this.#beginning = true;
    try {
      const number = this.#live.number + 1;
      // Left over from an abort that could not finish.
      await this.#folder.remove(number);
      const store = await this.#folder.open(number);
      this.#pending = new Pending(store, {
        commit: (note, swap) => this.#commit(store, { number, note }, swap),
        abort: () => this.#abort(store, number),
      });
      return this.#pending;
    } finally {
      this.#beginning = false;
    }
  }

  async close(): Promise<void> {
    await this.#pending?.end();
    await this.#store.close();
  }

  async #commit(store: Store, next: Current, swap: (store: Store) => void): Promise<Store> {
    await store.barrier();
    await this.#folder.prepare(next);
    await this.#folder.publish();
    const old = { store: this.#store, number: this.#live.number };
    this.#store = store;
    this.#live = next;
    this.#pending = undefined;
    swap(store);
    await old.store.close();
    // Only space is at stake: what cannot be removed now is removed when the folder is opened next.
    await this.#folder.remove(old.number).catch(() => undefined);
    return store;
  }

  async #abort(store: Store, number: number): Promise<void> {
    this.#pending = undefined;
    await store.close();
    await this.#folder.remove(number);
  }
}

interface PendingSteps {
  readonly commit: (note: Uint8Array, swap: (store: Store) => void) => Promise<Store>;
  readonly abort: () => Promise<void>;
}

class Pending implements PendingGeneration {
  readonly store: Store;
  readonly #steps: PendingSteps;
  #committing: Promise<Store> | undefined;
  #aborting: Promise<void> | undefined;

  constructor(store: Store, steps: PendingSteps) {
    this.store = store;
    this.#steps = steps;
  }

  async commit(
    note: Uint8Array = new Uint8Array(0),
    swap: (store: Store) => void = () => undefined,
  ): Promise<Store> {
    const fresh = this.#committing === undefined && this.#aborting === undefined;
    assert(fresh, "a generation is committed or aborted once");
    this.#committing = this.#steps.commit(note, swap);
    try {
      return await this.#committing;
    } catch (error) {
      // The swap itself failing leaves both possible: then not even an abort may touch this generation.
      if (!isFailed(error)) this.#committing = undefined;
      throw error;
    }
  }

  async abort(): Promise<void> {
    assert(this.#committing === undefined, "a committed generation is not aborted");
    this.#aborting ??= this.#steps.abort();
    await this.#aborting;
  }

  /** Waits for a commit under way; aborts what was not committed. */
  async end(): Promise<void> {
    await this.#committing?.catch(() => undefined);
    if (this.#committing === undefined) await this.abort();
    else await this.store.close();
  }
}

function isFailed(error: unknown): boolean {
  return error instanceof StoreError && error.code === "failed";
}
