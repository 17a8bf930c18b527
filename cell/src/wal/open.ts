import { WalError } from "./error.ts";
import { type LogIndex, type Term } from "../raft/types.ts";
import { BatchEncoder } from "./batch-encoder.ts";
import { headBytes, seedAt, segmentName, segmentSeeds } from "./format.ts";
import { missingLog, onDisk, recover } from "./recover.ts";
import { createSegment, type OpenSegment } from "./segment-supply.ts";
import type { LogPosition, Wal, WalOptions, WalRecovery } from "./types.ts";
import { SEGMENT_BYTES_DEFAULT, WriteAheadLog, type WriterStart } from "./write-ahead-log.ts";

const START: LogPosition = { index: 0 as LogIndex, term: 0 as Term };
const FIRST_SEGMENT = 1;
/** Suffix of the directory in which a fresh log is built. */
const BUILDING_SUFFIX = ".tmp";

/**
 * Opens the log of a member: creates a fresh one when the directory does not exist, recovers the one in it otherwise.
 * Whether a member may start with a fresh log at all is the caller's to know (W17).
 *
 * @throws {WalError} with a stable `code` when the log must not be used
 */
export async function openWal(options: WalOptions): Promise<{ wal: Wal; recovery: WalRecovery }> {
  return onDisk(`Opening the write-ahead log in ${options.directory}`, openUnwrapped(options));
}

async function openUnwrapped(options: WalOptions): Promise<{ wal: Wal; recovery: WalRecovery }> {
  const { disk, directory } = options;
  const names = await disk.list(directory);
  const { start, recovery } = names === undefined ? await createFresh(options) : await reopen(options, names);
  const wal = new WriteAheadLog(options, start);
  // The next segment is there before the first write is taken (W8).
  await wal.fill();
  return { wal, recovery };
}

async function reopen(
  options: WalOptions,
  names: readonly string[],
): Promise<{ start: WriterStart; recovery: WalRecovery }> {
  const { disk, directory } = options;
  if (names.length === 0) throw missingLog(directory);
  const opened = await recover(options, names);
  for (const name of names) if (name.endsWith(".tmp")) await disk.remove(`${directory}/${name}`);
  return opened;
}

/** Built beside its place and then renamed, so that a crash leaves a whole log or none (W5). */
async function createFresh(options: WalOptions): Promise<{ start: WriterStart; recovery: WalRecovery }> {
  const { disk, directory, segmentBytesMax = SEGMENT_BYTES_DEFAULT } = options;
  const building = `${directory}${BUILDING_SUFFIX}`;
  await disk.makeDirectory(building);
  for (const name of (await disk.list(building)) ?? []) await disk.remove(`${building}/${name}`);
  const made = await createSegment({
    disk,
    directory: building,
    segment: FIRST_SEGMENT,
    bytes: segmentBytesMax,
  });
  const { offset, chain } = await writeFirstHead(options, made);
  await disk.rename(building, directory);
  await disk.syncDirectory(parentOf(directory));
  const name = segmentName(FIRST_SEGMENT);
  const start: WriterStart = {
    current: { ...made, name, path: `${directory}/${name}` },
    offset,
    chain,
    indexMax: 0,
    older: [],
    next: undefined,
    hardState: undefined,
    logStart: START,
    last: START,
  };
  return { start, recovery: { logStart: START, entries: [] } };
}

async function writeFirstHead(
  options: WalOptions,
  made: OpenSegment,
): Promise<{ offset: number; chain: number }> {
  const { identity } = options;
  const encoder = new BatchEncoder();
  encoder.begin(headBytes(identity));
  encoder.head({ identity, segment: FIRST_SEGMENT, last: START, logStart: START });
  const seed = seedAt(segmentSeeds(FIRST_SEGMENT, identity), 0);
  const batch = encoder.finish({ offset: 0, seed, chain: 0 });
  if (batch.bytes > made.bytes) throw new WalError("gap", "The identity is larger than a segment");
  await made.file.writeDurably(batch.buffers, 0);
  return { offset: batch.bytes, chain: batch.chain };
}

function parentOf(path: string): string {
  const slash = path.lastIndexOf("/");
  if (slash === -1) return ".";
  return slash === 0 ? "/" : path.slice(0, slash);
}
