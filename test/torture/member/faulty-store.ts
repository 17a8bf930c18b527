import type {
  GenerationFiles,
  Generations,
  Keyspace,
  Row,
  ScanOptions,
  Store,
  StoreStatistics,
  StoreView,
  WriteBatch,
} from "../../../cell/src/store/index.ts";
import {
  nodeGenerationFiles,
  openGenerations,
  openRocksStore,
  writeBack,
} from "../../../cell/src/store/index.ts";
import type { Faults } from "./faults.ts";

/** The stores that are open now. */
export class FaultyStores {
  readonly #open = new Set<FaultyStore>();
  readonly #faults: Faults;
  #publishing: Promise<void> = Promise.resolve();

  constructor(faults: Faults) {
    this.#faults = faults;
  }

  /** As the production platform opens them, with faults on command. */
  openGenerations(directory: string, now: () => number): Promise<Generations> {
    return openGenerations(directory, {
      openStore: async (path) => {
        const store = new FaultyStore(await openRocksStore(path, { now }), this.#faults, () =>
          this.#open.delete(store),
        );
        this.#open.add(store);
        return writeBack(store);
      },
      files: this.#files(),
    });
  }

  /**
   * Fixes all that is written. From its end on no barrier completes and no generation is swapped: a folder that goes
   * back to this moment has lost nothing that anybody was promised.
   */
  async lastBarrier(): Promise<void> {
    this.#faults.holdBarriers();
    await this.#publishing.catch(() => undefined);
    await Promise.all([...this.#open].map((store) => store.inner.barrier()));
  }

  #files(): GenerationFiles {
    return {
      ...nodeGenerationFiles,
      rename: async (from, to) => {
        await this.#faults.unlessHeld();
        this.#publishing = nodeGenerationFiles.rename(from, to);
        await this.#publishing;
      },
    };
  }
}

class FaultyStore implements Store {
  readonly inner: Store;
  readonly #faults: Faults;
  readonly #onClose: () => void;

  constructor(inner: Store, faults: Faults, onClose: () => void) {
    this.inner = inner;
    this.#faults = faults;
    this.#onClose = onClose;
  }

  async barrier(): Promise<void> {
    await this.inner.barrier();
    await this.#faults.delay();
    this.#faults.failIfAsked("store");
    await this.#faults.unlessHeld();
  }

  get(keyspace: Keyspace, key: Uint8Array): Uint8Array | undefined {
    return this.inner.get(keyspace, key);
  }

  getMany(keyspace: Keyspace, keys: readonly Uint8Array[]): (Uint8Array | undefined)[] {
    return this.inner.getMany(keyspace, keys);
  }

  scan(keyspace: Keyspace, options: ScanOptions): Row[] {
    return this.inner.scan(keyspace, options);
  }

  write(fill: (batch: WriteBatch) => void, isLasting?: boolean): void {
    this.inner.write(fill, isLasting);
  }

  view(): StoreView {
    return this.inner.view();
  }

  statistics(): StoreStatistics {
    return this.inner.statistics();
  }

  close(): Promise<void> {
    this.#onClose();
    return this.inner.close();
  }
}
