import { diskError, type WalError } from "./error.ts";
import type { Disk, DiskFile } from "./types.ts";

/** A segment that is no longer written. */
export interface FullSegment {
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
  /** Highest index of an entry in it that may still count. */
  indexMax: number;
}

interface RemovalOptions {
  readonly disk: Disk;
  readonly directory: string;
  /** Oldest first. */
  readonly older: readonly FullSegment[];
  readonly onFatal: (error: WalError) => void;
  /** Called after segments vanished. */
  readonly onFreed: () => void;
}

/** What is appended to a segment's path for the bytes that a repair cut off. */
export const BROKEN_SUFFIX = ".broken";

/** The segments before the current one, and their removal in the background: whole ones, oldest first. */
export class SegmentRemoval {
  readonly #options: RemovalOptions;
  #older: FullSegment[];
  #bytes = 0;
  /** Entries up to here are released, and the log says so durably. */
  #released = 0;
  #running: Promise<void> | undefined;
  #closing: Promise<void> = Promise.resolve();

  constructor(options: RemovalOptions) {
    this.#options = options;
    this.#older = [...options.older];
    for (const { bytes } of options.older) this.#bytes += bytes;
  }

  /** Bytes of the segments that are still there. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The head of the segment after this one is durable. */
  add(segment: FullSegment): void {
    this.#older.push(segment);
    this.#bytes += segment.bytes;
  }

  /** A snapshot replaced the log: no entry of these segments counts. */
  voidAll(): void {
    for (const segment of this.#older) segment.indexMax = 0;
  }

  /** Would a segment go if everything up to `index` were released? */
  frees(index: number): boolean {
    const oldest = this.#older[0];
    return oldest !== undefined && oldest.indexMax <= index;
  }

  /** @param released the newest log start that a durable record states */
  run(released: number): void {
    if (released > this.#released) this.#released = released;
    if (this.#running !== undefined || !this.frees(this.#released)) return;
    this.#running = this.#removeReleased().then(
      () => {
        this.#running = undefined;
        this.#options.onFreed();
      },
      (error: unknown) => {
        this.#options.onFatal(diskError("Removing old segments", error));
      },
    );
  }

  /** Closes the file of a full segment in the background. */
  closeFile(file: DiskFile): void {
    this.#closing = Promise.all([this.#closing, file.close()]).then(
      () => undefined,
      (error: unknown) => this.#options.onFatal(diskError("Closing a full segment", error)),
    );
  }

  async close(): Promise<void> {
    await this.#running;
    await this.#closing;
  }

  async #removeReleased(): Promise<void> {
    const { disk, directory } = this.#options;
    for (
      let oldest = this.#older[0];
      oldest !== undefined && this.frees(this.#released);
      oldest = this.#older[0]
    ) {
      await disk.remove(`${oldest.path}${BROKEN_SUFFIX}`);
      await disk.remove(oldest.path);
      // One at a time, so that a crash never leaves a hole between segments.
      await disk.syncDirectory(directory);
      this.#older.shift();
      this.#bytes -= oldest.bytes;
    }
  }
}
