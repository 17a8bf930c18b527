import type { Client } from "../client.ts";
import type { CallOptions } from "../types.ts";
import { acquiring, orUndefined, type Wait } from "./acquiring.ts";
import { whileHeld } from "./claim.ts";
import { Lock, type LockOptions } from "./exclusive-lock.ts";
import { checkName, keysOf, ROOTS } from "./names.ts";
import { lockState, type LockState } from "./owner.ts";
import { Queue, type Place } from "./queue.ts";

/** How many of each kind {@link ReadWriteLock.inspect} tells of. */
const INSPECT_MAX = 1_000;

/** A held share of a read-write lock, or all of it. */
export class ReadWriteHold extends Lock {
  /** `read`: with others who read. `write`: alone. */
  readonly mode: "read" | "write";

  /**
   * Made by the lock.
   * @internal
   */
  constructor(
    client: Client,
    wait: Wait,
    fields: Place & { readonly name: string; readonly mode: "read" | "write" },
  ) {
    super(client, wait, fields);
    this.mode = fields.mode;
  }
}

/** A read-write lock as others see it. */
export interface ReadWriteState {
  readonly readers: readonly LockState[];
  readonly writer: LockState | undefined;
  /** Readers and writers that wait, in the order of asking. */
  readonly waiting: readonly (LockState & { readonly mode: "read" | "write" })[];
}

/**
 * Many who read, or one who writes. In the order of asking: who reads waits for the writers that asked before, who
 * writes for everybody that asked before, so a stream of readers does not starve a writer. A resource that checks the
 * tokens keeps two marks: a writer's token must not be smaller than the larger of the highest reader's and the highest
 * writer's, a reader's not smaller than the highest writer's.
 */
export class ReadWriteLock {
  readonly name: string;
  readonly #client: Client;
  readonly #queues: { readonly read: Queue; readonly write: Queue };

  constructor(client: Client, name: string) {
    checkName("a read-write lock", name);
    this.#client = client;
    this.name = name;
    const prefix = keysOf(ROOTS.readWriteLock, name);
    const read = `${prefix}read/`;
    const write = `${prefix}write/`;
    this.#queues = {
      read: new Queue(client, { own: read, ahead: [write] }),
      write: new Queue(client, { own: write, ahead: [write, read] }),
    };
  }

  /**
   * Takes a share; waits for the writers that asked before. Fails as {@link write} does.
   */
  read(options: LockOptions): Promise<ReadWriteHold> {
    return this.#acquire("read", options);
  }

  /**
   * Takes all of it; waits for everybody that asked before. Whatever way it fails, no key of this attempt stays.
   * @throws LockstepError `lock-timeout` after `waitMs`, `cancelled` by the signal, `session-lost`, and `not-held` when
   *   somebody deleted the place in the queue.
   */
  write(options: LockOptions): Promise<ReadWriteHold> {
    return this.#acquire("write", options);
  }

  /** Takes a share if no writer holds it or waits; undefined: one does. */
  tryRead(options: Omit<LockOptions, "waitMs">): Promise<ReadWriteHold | undefined> {
    return orUndefined(this.read({ ...options, waitMs: 0 }));
  }

  /** Takes all of it if nobody holds any of it or waits; undefined: somebody does. */
  tryWrite(options: Omit<LockOptions, "waitMs">): Promise<ReadWriteHold | undefined> {
    return orUndefined(this.write({ ...options, waitMs: 0 }));
  }

  /** Runs `work` while holding a share. Rejects with `not-held` if it did not last until the work's end. */
  async withRead<T>(options: LockOptions, work: (hold: ReadWriteHold) => Promise<T> | T): Promise<T> {
    return whileHeld(await this.read(options), work);
  }

  /** Runs `work` while holding all of it. Rejects with `not-held` if it did not last until the work's end. */
  async withWrite<T>(options: LockOptions, work: (hold: ReadWriteHold) => Promise<T> | T): Promise<T> {
    return whileHeld(await this.write(options), work);
  }

  /** Who holds it and who waits; of each kind at most the first 1,000. */
  async inspect(options: CallOptions = {}): Promise<ReadWriteState> {
    const limit = { ...options, limit: INSPECT_MAX };
    const [reads, writes] = await Promise.all([
      this.#queues.read.list(limit),
      this.#queues.write.list(limit),
    ]);
    const all = [
      ...reads.map((kv) => ({ ...lockState(kv), mode: "read" as const })),
      ...writes.map((kv) => ({ ...lockState(kv), mode: "write" as const })),
    ].sort((a, b) => a.token - b.token);
    const [first] = all;
    if (first?.mode === "write") {
      return { readers: [], writer: first, waiting: all.slice(1) };
    }
    const firstWriter = all.findIndex(({ mode }) => mode === "write");
    const readers = firstWriter < 0 ? all : all.slice(0, firstWriter);
    return { readers, writer: undefined, waiting: all.slice(readers.length) };
  }

  #acquire(mode: "read" | "write", options: LockOptions): Promise<ReadWriteHold> {
    const queue = this.#queues[mode];
    const what = `the read-write lock "${this.name}" to ${mode}`;
    return acquiring(this.#client, { recipe: `${mode}-lock`, what }, options, async (wait) => {
      const place = await queue.takeTurn(wait);
      return new ReadWriteHold(this.#client, wait, { ...place, name: this.name, mode });
    });
  }
}
