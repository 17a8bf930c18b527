/** Generations in memory, for the simulator: {@link Generations} whose swap a crash can cut through. */
import { assert } from "../invariant.ts";
import { StoreError } from "./errors.ts";
import type { Generations, PendingGeneration } from "./generations.ts";
import { openMemoryStore, type MemoryStore, type MemoryStoreOptions } from "./memory-store.ts";
import type { Store } from "./types.ts";

interface Live {
  readonly store: MemoryStore;
  readonly number: number;
  readonly note: Uint8Array;
}

export interface MemoryGenerations extends Generations {
  readonly current: MemoryStore;
  /**
   * Power cut and restart: the live store crashes as {@link MemoryStore.crash} has it, a pending generation is gone.
   * A commit that was under way rejects; the swap has happened or not, by `random`.
   */
  crash(random: () => number): void;
}

/** @param options of every store; `sync` also stands between a swap's rename and its being durable */
export function openMemoryGenerations(options: MemoryStoreOptions = {}): MemoryGenerations {
  return new MemoryGenerationsTwin(options);
}

class MemoryGenerationsTwin implements MemoryGenerations {
  readonly #options: MemoryStoreOptions;
  #live: Live;
  #pending: MemoryStore | undefined;
  /** Renamed and not yet synced: a crash may keep it or not. */
  #renamed: Live | undefined;
  /** Everything begun before a crash belongs to an earlier life. */
  #life = 0;

  constructor(options: MemoryStoreOptions) {
    this.#options = options;
    this.#live = { store: openMemoryStore(options), number: 1, note: new Uint8Array(0) };
  }

  get current(): MemoryStore {
    return this.#live.store;
  }

  get number(): number {
    return this.#live.number;
  }

  get note(): Uint8Array {
    return this.#live.note;
  }

  begin(): Promise<PendingGeneration> {
    assert(this.#pending === undefined, "one generation is pending at a time");
    const store = openMemoryStore(this.#options);
    this.#pending = store;
    return Promise.resolve({
      store,
      commit: (note = new Uint8Array(0), swap = () => undefined): Promise<Store> =>
        this.#commit(store, note, swap),
      abort: async (): Promise<void> => {
        if (this.#pending === store) this.#pending = undefined;
        await store.close();
      },
    });
  }

  async close(): Promise<void> {
    await this.#pending?.close();
    this.#pending = undefined;
    await this.#live.store.close();
  }

  crash(random: () => number): void {
    this.#life += 1;
    if (this.#renamed !== undefined && random() < 0.5) this.#live = this.#renamed;
    this.#renamed = undefined;
    this.#pending = undefined;
    this.#live.store.crash(random);
  }

  async #commit(store: MemoryStore, note: Uint8Array, swap: (store: Store) => void): Promise<Store> {
    assert(this.#pending === store, "a generation is committed or aborted once");
    const life = this.#life;
    await store.barrier();
    this.#mustBe(life);
    this.#renamed = { store, number: this.#live.number + 1, note: Uint8Array.from(note) };
    await this.#options.sync?.();
    this.#mustBe(life);
    const old = this.#live;
    this.#live = this.#renamed;
    this.#renamed = undefined;
    this.#pending = undefined;
    swap(store);
    await old.store.close();
    return store;
  }

  #mustBe(life: number): void {
    if (life !== this.#life) throw new StoreError("closed", "the member crashed during the swap");
  }
}
