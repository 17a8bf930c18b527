import { diskError, isNoSpace, WalError } from "./error.ts";
import { ALIGNMENT_BYTES, segmentName, segmentNumber } from "./format.ts";
import { Replay } from "./replay.ts";
import { readSegment, type SegmentContent } from "./segment-reader.ts";
import { BROKEN_SUFFIX, type FullSegment } from "./segment-removal.ts";
import type { Disk, WalOptions, WalRecovery } from "./types.ts";
import { SEGMENT_BYTES_DEFAULT, type WriterStart } from "./write-ahead-log.ts";

/** Zeros are written back in pieces of this size. */
const ZEROS: Buffer = Buffer.alloc(256 * 1024);

/** A segment as found. */
interface FoundSegment {
  readonly segment: number;
  readonly name: string;
  readonly path: string;
  readonly bytes: Buffer;
  readonly content: SegmentContent;
}

/** Reads, verifies and, where a write was torn, repairs the log in `directory`. */
export async function recover(
  options: WalOptions,
  names: readonly string[],
): Promise<{ start: WriterStart; recovery: WalRecovery }> {
  const { disk, directory, identity } = options;
  const replay = new Replay(identity);
  const used: FoundSegment[] = [];
  const unused: FoundSegment[] = [];
  for (const segment of segmentNumbers(names)) {
    const found = await readFound(options, segment);
    if (!isUnused(found, used)) {
      checkContinues(found, used.at(-1), unused[0]);
      for (const batch of found.content.batches) replay.batch(segment, batch);
      used.push(found);
    } else {
      checkUnused(found, used.at(-1), unused);
      unused.push(found);
    }
  }
  const current = used.at(-1);
  if (current === undefined) throw missingLog(directory);
  const { hardState, logStart, entries, last } = replay.finish();

  const torn = findTorn(current, unused[0]);
  if (torn !== undefined) await keepCutBytes(disk, directory, torn);
  const sealed = await sealTail(disk, current);
  const next = await settleUnused(options, unused, current.segment + 1);
  await disk.syncDirectory(directory);

  const older = used.slice(0, -1).map((found): FullSegment => {
    const { segment, name, path, bytes } = found;
    return { name, path, bytes: bytes.length, indexMax: replay.indexMaxOf(segment) };
  });
  const start: WriterStart = {
    current: { segment: current.segment, name: current.name, path: current.path, ...sealed },
    offset: current.content.end.offset,
    chain: current.content.chain,
    indexMax: replay.indexMaxOf(current.segment),
    older,
    next,
    hardState,
    logStart,
    last,
  };
  const recovery: WalRecovery = {
    ...(hardState === undefined ? {} : { hardState }),
    logStart,
    entries,
    ...(torn === undefined ? {} : { repaired: repairOf(torn) }),
  };
  return { start, recovery };
}

/** Numbers of all segment files, ascending. */
export function segmentNumbers(names: readonly string[]): number[] {
  return names
    .map(segmentNumber)
    .filter((segment) => segment !== undefined)
    .sort((a, b) => a - b);
}

async function readFound(options: WalOptions, segment: number): Promise<FoundSegment> {
  const { disk, directory, identity } = options;
  const name = segmentName(segment);
  const path = `${directory}/${name}`;
  const bytes = await disk.read(path);
  if (bytes === undefined) throw new WalError("missing", `Segment ${name} vanished while it was read`);
  return { segment, name, path, bytes, content: readSegment(bytes, { segment, expected: identity }) };
}

/** Never written, or its very first write was torn: then nothing in it was acknowledged. */
function isUnused(found: FoundSegment, used: readonly FoundSegment[]): boolean {
  const { batches, end } = found.content;
  return used.length > 0 && batches.length === 0 && end.kind !== "corrupt";
}

/** W1, W2: a segment is written only once all before it are whole; only the last may end in a torn write. */
function checkContinues(
  found: FoundSegment,
  before: FoundSegment | undefined,
  unusedBefore: FoundSegment | undefined,
): void {
  const { name, content } = found;
  const { end } = content;
  if (end.kind === "corrupt") throw corrupt(name, end.offset, end.reason);
  if (before === undefined && content.batches.length === 0) {
    throw corrupt(name, 0, "the oldest segment has no head");
  }
  if (unusedBefore !== undefined) {
    throw corrupt(
      unusedBefore.name,
      0,
      `the segment is not readable, yet segment ${name} was written after it`,
    );
  }
  if (before === undefined) return;
  if (found.segment !== before.segment + 1) {
    throw new WalError("missing", `Segment ${segmentName(before.segment + 1)} is missing before ${name}`);
  }
  requireClean(before, name);
  if (content.continues !== before.content.chain) {
    throw corrupt(before.name, before.content.end.offset, `segment ${name} does not continue it`);
  }
}

function checkUnused(
  found: FoundSegment,
  before: FoundSegment | undefined,
  unused: readonly FoundSegment[],
): void {
  const expected = (before?.segment ?? 0) + unused.length + 1;
  if (found.segment !== expected) {
    throw new WalError("missing", `Segment ${segmentName(expected)} is missing before ${found.name}`);
  }
  if (found.content.dataEnd === 0) return;
  // Something was written here, so everything before was durable.
  const notLast = unused.find(({ content }) => content.dataEnd > 0);
  if (notLast !== undefined) throw corrupt(notLast.name, 0, `segment ${found.name} was written after it`);
  if (before !== undefined) requireClean(before, found.name);
}

function requireClean(found: FoundSegment, after: string): void {
  const { end } = found.content;
  if (end.kind === "clean") return;
  throw corrupt(found.name, end.offset, `${end.reason}, yet segment ${after} was written after it`);
}

function corrupt(segment: string, offset: number, problem: string): WalError {
  const sentence = problem.charAt(0).toUpperCase() + problem.slice(1);
  return new WalError("corrupt", sentence, { position: { segment, offset } });
}

/** The directory is there but no log: somebody emptied it, and this member may have voted (W17). */
export function missingLog(directory: string): WalError {
  return new WalError("missing", `The directory ${directory} holds no write-ahead log`);
}

/** The torn write at the end of the log: in the current segment, or the very first one of the segment after it. */
function findTorn(current: FoundSegment, next: FoundSegment | undefined): FoundSegment | undefined {
  if (current.content.end.kind === "torn") return current;
  return next !== undefined && next.content.dataEnd > 0 ? next : undefined;
}

function repairOf(torn: FoundSegment): { segment: string; offset: number; bytes: number } {
  const { end, dataEnd } = torn.content;
  return { segment: torn.name, offset: end.offset, bytes: dataEnd - end.offset };
}

/**
 * What a repair cuts off stays beside the segment until the segment itself goes, for whoever investigates. On a full
 * volume it does not: starting matters more.
 */
async function keepCutBytes(disk: Disk, directory: string, torn: FoundSegment): Promise<void> {
  const { offset, bytes } = repairOf(torn);
  const path = `${torn.path}${BROKEN_SUFFIX}`;
  try {
    await disk.createZeroed(path, bytes);
  } catch (error) {
    if (!isNoSpace(error)) throw error;
    return disk.remove(path);
  }
  const file = await disk.open(path);
  await file.writeDurably([torn.bytes.subarray(offset, offset + bytes)], 0);
  await file.close();
  await disk.syncDirectory(directory);
}

/**
 * Makes what was just read what is on the disk. The last batch is written once more: after a process that was killed, or
 * a sync that failed, it may be in the page cache only, and reading it back proves nothing (W7). Then zeros to the
 * end of the segment: stale bytes behind a new, shorter tail could pass for its continuation later (W3).
 */
async function sealTail(
  disk: Disk,
  current: FoundSegment,
): Promise<{ file: Awaited<ReturnType<Disk["open"]>>; bytes: number }> {
  const { bytes, content, path } = current;
  const file = await disk.open(path);
  const lastBatch = content.batches.at(-1);
  if (lastBatch !== undefined) {
    const { offset } = lastBatch;
    await file.writeDurably([bytes.subarray(offset, offset + lastBatch.bytes)], offset);
  }
  const { offset } = content.end;
  if (content.end.kind === "torn") {
    const end = content.dataEnd;
    for (let at = offset; at < end; at += ZEROS.length) {
      await file.writeDurably([ZEROS.subarray(0, Math.min(ZEROS.length, end - at))], at);
    }
  }
  return { file, bytes: bytes.length - (bytes.length % ALIGNMENT_BYTES) };
}

/** Keeps the next segment when it is usable; removes the others, the newest first, so that no hole appears. */
async function settleUnused(
  options: WalOptions,
  unused: readonly FoundSegment[],
  nextSegment: number,
): Promise<WriterStart["next"]> {
  const { disk, directory, segmentBytesMax = SEGMENT_BYTES_DEFAULT } = options;
  for (const { path } of unused.slice(1).reverse()) {
    await disk.remove(path);
    await disk.syncDirectory(directory);
  }
  const next = unused[0];
  if (next === undefined) return undefined;
  if (next.content.dataEnd === 0 && next.bytes.length === segmentBytesMax) {
    const { name, path } = next;
    return { segment: nextSegment, name, path, bytes: segmentBytesMax, file: await disk.open(path) };
  }
  await disk.remove(next.path);
  await disk.syncDirectory(directory);
  return undefined;
}

/** Wraps what a disk threw; lets everything else pass. */
export async function onDisk<T>(doing: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw diskError(doing, error);
  }
}
