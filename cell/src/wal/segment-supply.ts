import { diskError, isNoSpace, type WalError } from "./error.ts";
import { segmentName } from "./format.ts";
import type { Disk, DiskFile } from "./types.ts";

/** An open segment file of zeros, or one being written. */
export interface OpenSegment {
  readonly segment: number;
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
  readonly file: DiskFile;
}

interface SupplyOptions {
  readonly disk: Disk;
  readonly directory: string;
  readonly segmentBytes: number;
  /** Number of the segment after the current one. */
  readonly nextSegment: number;
  readonly onFatal: (error: WalError) => void;
}

/**
 * Keeps the next segment ready: zeros, durable, named and open, so that cutting a segment is one write like any other and
 * the hard state of a member on a full volume still has a place (W5, W8).
 */
export class SegmentSupply {
  readonly #options: SupplyOptions;
  #nextSegment: number;
  #ready: OpenSegment | undefined;
  #making: Promise<void> | undefined;
  /** Set while the writer waits: at least so many bytes, then call. */
  #demand: { readonly bytes: number; readonly onReady: () => void } | undefined;

  constructor(options: SupplyOptions) {
    this.#options = options;
    this.#nextSegment = options.nextSegment;
  }

  /** Bytes of the segment that is ready. */
  get readyBytes(): number {
    return this.#ready?.bytes ?? 0;
  }

  /** A segment found whole and unused when the log was opened. */
  adopt(segment: OpenSegment): void {
    this.#ready = segment;
  }

  /** The next segment when it is ready and holds `bytes`; otherwise `onReady` is called once it is. */
  take(bytes: number, onReady: () => void): OpenSegment | undefined {
    const ready = this.#ready;
    if (ready !== undefined && ready.bytes >= bytes) {
      this.#ready = undefined;
      this.#nextSegment++;
      this.#make(this.#options.segmentBytes);
      return ready;
    }
    this.#demand = { bytes, onReady };
    this.#make(Math.max(bytes, this.#options.segmentBytes));
    return undefined;
  }

  /** Starts making the next segment unless there is one. Resolves when that is done, well or not. */
  async fill(): Promise<void> {
    if (this.#ready === undefined) this.#make(this.#options.segmentBytes);
    await this.#making;
  }

  async close(): Promise<void> {
    await this.#making;
    await this.#ready?.file.close();
    this.#ready = undefined;
  }

  #make(bytes: number): void {
    this.#making ??= this.#prepare(bytes).then(
      (segment) => {
        this.#making = undefined;
        this.#ready = segment;
        this.#answerDemand();
      },
      (error: unknown) => {
        this.#making = undefined;
        // A full volume is fatal only once the segment is needed; until then a release may free some space. Nothing of
        // the log was in the failed file, so this is not the retry that W7 forbids.
        if (isNoSpace(error) && this.#demand === undefined) return;
        this.#options.onFatal(diskError(`Creating segment ${segmentName(this.#nextSegment)}`, error));
      },
    );
  }

  #answerDemand(): void {
    const demand = this.#demand;
    if (demand === undefined) return;
    if (this.readyBytes < demand.bytes) {
      this.#make(demand.bytes);
      return;
    }
    this.#demand = undefined;
    demand.onReady();
  }

  async #prepare(bytes: number): Promise<OpenSegment> {
    const { disk, directory } = this.#options;
    // A write larger than a segment: the one that is ready gives way to a bigger one of the same name.
    const smaller = this.#ready;
    this.#ready = undefined;
    await smaller?.file.close();
    return createSegment({ disk, directory, segment: this.#nextSegment, bytes });
  }
}

/** Makes a segment of zeros under a temporary name, then gives it its own: it is there whole or not at all (W5). */
export async function createSegment(options: {
  readonly disk: Disk;
  readonly directory: string;
  readonly segment: number;
  readonly bytes: number;
}): Promise<OpenSegment> {
  const { disk, directory, segment, bytes } = options;
  const name = segmentName(segment);
  const path = `${directory}/${name}`;
  const temporary = `${path}.tmp`;
  try {
    await disk.createZeroed(temporary, bytes);
  } catch (error) {
    // What was allocated of it would keep the volume full.
    await disk.remove(temporary).catch(() => undefined);
    throw error;
  }
  await disk.rename(temporary, path);
  await disk.syncDirectory(directory);
  return { segment, name, path, bytes, file: await disk.open(path) };
}
