import type { HardState, LogIndex } from "../raft/types.ts";
import { WalError, type WalErrorCode } from "./error.ts";
import { segmentName, segmentNumber, type WalRecord } from "./format.ts";
import { Replay } from "./replay.ts";
import { type Batch, readSegment, type SegmentContent } from "./segment-reader.ts";
import type { Disk, LogPosition, WalIdentity } from "./types.ts";

/** One record of the log, or one trouble with it, in disk order. */
export type WalInspection =
  | {
      readonly kind: "record";
      readonly segment: string;
      readonly offset: number;
      /** Header, payload and padding. */
      readonly bytes: number;
      /** Offset of the group commit it belongs to. */
      readonly batch: number;
      /** Of entries, snapshots and releases. */
      readonly position: LogPosition | undefined;
      readonly record: WalRecord;
    }
  | WalProblem;

export interface WalProblem {
  readonly kind: "problem";
  /** `torn`: a write at the very end that was never acknowledged; the next start cuts it off. Everything else is fatal. */
  readonly code: WalErrorCode | "torn";
  readonly segment: string;
  readonly offset: number;
  readonly message: string;
}

/** The figures of a whole log. */
export interface WalReport {
  readonly identity: WalIdentity | undefined;
  readonly segments: number;
  readonly bytes: number;
  readonly records: number;
  /** What a recovery would return; absent when the log has fatal problems. */
  readonly log:
    | {
        readonly hardState: HardState | undefined;
        readonly logStart: LogPosition;
        readonly lastIndex: LogIndex;
      }
    | undefined;
  readonly problems: readonly WalProblem[];
}

/**
 * Walks a log that no member has open, without changing it: every record that verifies, and every trouble where it is.
 * After damage it goes on with the next batch that verifies. Never throws for what is on the disk, only when reading fails.
 */
export async function* inspectWal(disk: Disk, directory: string): AsyncGenerator<WalInspection, void, void> {
  yield* new Inspector().walk(disk, directory);
}

/** Reads the whole log and says whether a member could start from it. Changes nothing. */
export async function verifyWal(disk: Disk, directory: string): Promise<WalReport> {
  const inspector = new Inspector();
  const problems: WalProblem[] = [];
  let records = 0;
  for await (const item of inspector.walk(disk, directory)) {
    if (item.kind === "problem") problems.push(item);
    else records++;
  }
  const { identity, segments, bytes } = inspector;
  return { identity, segments, bytes, records, log: inspector.log, problems };
}

class Inspector {
  identity: WalIdentity | undefined;
  segments = 0;
  bytes = 0;
  log: WalReport["log"];
  /** Held to the index rules until the first fatal problem; after it they would only repeat it. */
  #replay: Replay | undefined;
  #sound = true;
  /** The last segment with batches, its chain and its torn end, if any. */
  #previous: { readonly segment: number; readonly chain: number } | undefined;
  #torn: WalProblem | undefined;

  async *walk(disk: Disk, directory: string): AsyncGenerator<WalInspection, void, void> {
    const names = (await disk.list(directory)) ?? [];
    for (const name of names) {
      const segment = segmentNumber(name);
      if (segment === undefined) continue;
      const bytes = await disk.read(`${directory}/${name}`);
      if (bytes !== undefined) yield* this.#segment(bytes, segment);
    }
    if (this.#previous === undefined) {
      yield this.#problem(
        "missing",
        { segment: directory, offset: 0 },
        "there is no segment with a readable head",
      );
    }
    if (this.#torn !== undefined) yield this.#torn;
    yield* this.#finish();
  }

  *#segment(bytes: Buffer, segment: number): Generator<WalInspection, void, void> {
    this.segments++;
    this.bytes += bytes.length;
    let content = this.#read(bytes, segment, 0);
    if ("kind" in content) return yield content;
    yield* this.#arrows(segment, content);
    for (;;) {
      for (const batch of content.batches) yield* this.#batch(segment, batch);
      const { end } = content;
      const at = { segment: segmentName(segment), offset: end.offset };
      if (end.kind === "torn") this.#torn = { kind: "problem", code: "torn", ...at, message: end.reason };
      if (end.kind === "corrupt") yield this.#problem("corrupt", at, end.reason);
      if (end.resume === undefined) return;
      content = this.#read(bytes, segment, end.resume);
      if ("kind" in content) return yield content;
    }
  }

  #read(bytes: Buffer, segment: number, from: number): SegmentContent | WalProblem {
    try {
      return readSegment(bytes, { segment, expected: this.identity, from });
    } catch (error) {
      return this.#problemOf(error);
    }
  }

  /** How the segment fits the ones before it. */
  *#arrows(segment: number, content: SegmentContent): Generator<WalProblem, void, void> {
    const name = segmentName(segment);
    const start = { segment: name, offset: 0 };
    if (this.#torn !== undefined && content.dataEnd > 0) {
      const { segment: torn, offset, message } = this.#torn;
      this.#torn = undefined;
      yield this.#problem(
        "corrupt",
        { segment: torn, offset },
        `${message}, yet segment ${name} was written`,
      );
    }
    if (content.batches.length === 0) {
      // Only behind a segment that was written may one be unused: before all others it is the log's lost beginning.
      if (this.#previous === undefined && content.end.kind !== "corrupt") {
        yield this.#problem("corrupt", start, "the oldest segment has no head");
      }
      return;
    }
    this.identity ??= content.head?.identity;
    const previous = this.#previous;
    if (previous !== undefined && segment !== previous.segment + 1) {
      yield this.#problem("missing", start, `the segment after ${segmentName(previous.segment)} is missing`);
    } else if (previous !== undefined && previous.chain !== content.continues && this.#sound) {
      yield this.#problem("corrupt", start, `the segment does not continue ${segmentName(previous.segment)}`);
    }
    this.#previous = { segment, chain: content.chain };
  }

  *#batch(segment: number, batch: Batch): Generator<WalInspection, void, void> {
    const name = segmentName(segment);
    for (const record of batch.records) {
      const { offset, bytes } = record;
      const position = positionOf(record);
      yield { kind: "record", segment: name, offset, bytes, batch: batch.offset, position, record };
    }
    if (!this.#sound || this.identity === undefined) return;
    this.#replay ??= new Replay(this.identity);
    try {
      this.#replay.batch(segment, batch);
    } catch (error) {
      yield this.#problemOf(error);
    }
  }

  *#finish(): Generator<WalProblem, void, void> {
    if (!this.#sound || this.#replay === undefined) return;
    try {
      const { hardState, logStart, last } = this.#replay.finish();
      this.log = { hardState, logStart, lastIndex: last.index };
    } catch (error) {
      yield this.#problemOf(error);
    }
  }

  #problemOf(error: unknown): WalProblem {
    if (!(error instanceof WalError)) throw error;
    return this.#problem(error.code, error.position ?? { segment: "", offset: 0 }, error.message);
  }

  #problem(code: WalErrorCode, at: { segment: string; offset: number }, message: string): WalProblem {
    this.#sound = false;
    return { kind: "problem", code, segment: at.segment, offset: at.offset, message };
  }
}

function positionOf(record: WalRecord): LogPosition | undefined {
  switch (record.kind) {
    case "entry":
      return { index: record.entry.index, term: record.entry.term };
    case "snapshot":
    case "release":
      return record.at;
    case "head":
    case "hard-state":
      return undefined;
  }
}
