/** The write-ahead log: one segment, a member's start from a folder of them, and the tool that inspects it. */
import { isDeepStrictEqual } from "node:util";
import { WalError } from "../../../cell/src/wal/error.ts";
import { segmentName } from "../../../cell/src/wal/format.ts";
import { verifyWal } from "../../../cell/src/wal/inspect.ts";
import type { WalReport } from "../../../cell/src/wal/inspect.ts";
import { readSegment } from "../../../cell/src/wal/segment-reader.ts";
import { MemoryDisk } from "../../../cell/src/wal/testing/index.ts";
import { DIRECTORY, IDENTITY, openOn } from "../../../cell/src/wal/testing/fixture.ts";
import type { Wal, WalRecovery } from "../../../cell/src/wal/types.ts";
import { BrokenLaw } from "../contract.ts";
import type { Target } from "../contract.ts";
import { damageDisk, log, resealLog, SEGMENT_BYTES } from "../generate/log.ts";
import { input } from "../generate/mutate.ts";
import { assertLaw, show } from "./laws.ts";

/** A folder may hold more segments than a log of ours is long; noise does not become a thousand files. */
const SEGMENTS_MAX = 6;
const DAMAGE = { structured: damageDisk, reseal: resealLog };

const CORRUPT = new Error("ends in corruption");

const SEGMENT: Target = {
  name: "wal-segment",
  about: "one segment of the log (cell/wal/segment-reader); refused by ending as corrupt, or with WalError",
  weight: 2,
  generate: (dice) => input(dice, (inner) => log(inner).subarray(0, SEGMENT_BYTES), DAMAGE),
  decode: (bytes) => {
    const content = readSegment(bytes, { segment: 1, expected: IDENTITY });
    if (content.end.kind === "corrupt") throw CORRUPT;
    return content;
  },
  refused: (error) =>
    error === CORRUPT || (error instanceof WalError && error.code === "unsupported-version"),
};

/** The folder that the bytes stand for: a file per {@link SEGMENT_BYTES}, the last one shorter perhaps. */
async function folderOf(bytes: Buffer): Promise<MemoryDisk> {
  const disk = new MemoryDisk({ random: () => 0 });
  const mounted = disk.mount();
  await mounted.makeDirectory(DIRECTORY);
  for (let i = 0; i < SEGMENTS_MAX && i * SEGMENT_BYTES < bytes.length; i++) {
    const path = `${DIRECTORY}/${segmentName(i + 1)}`;
    const content = bytes.subarray(i * SEGMENT_BYTES, (i + 1) * SEGMENT_BYTES);
    await mounted.createZeroed(path, content.length);
    disk.poke(path, content);
  }
  return disk;
}

interface Opened {
  readonly disk: MemoryDisk;
  readonly wal: Wal;
  readonly recovery: WalRecovery;
}

async function open(disk: MemoryDisk): Promise<{ wal: Wal; recovery: WalRecovery }> {
  return openOn(disk.mount(), { segmentBytesMax: SEGMENT_BYTES });
}

function assertWhole({ logStart, entries, hardState }: WalRecovery): void {
  let before = logStart;
  for (const { index, term } of entries) {
    assertLaw(index === before.index + 1, "entries are contiguous from the start of the log");
    assertLaw(term >= before.term, "terms do not fall");
    before = { index, term };
  }
  if (hardState === undefined) return;
  assertLaw(
    hardState.commit <= before.index && hardState.commit >= logStart.index,
    "the commit lies in the log",
  );
}

const fatalOf = ({ problems }: WalReport): string | undefined =>
  problems.find(({ code }) => code !== "torn")?.message;

const RECOVER: Target = {
  name: "wal-recover",
  about: "a member's start from a folder of segments (cell/wal/recover); refused with WalError",
  weight: 0.5,
  generate: (dice) => input(dice, log, DAMAGE),
  decode: async (bytes): Promise<Opened> => {
    const disk = await folderOf(bytes);
    return { disk, ...(await open(disk)) };
  },
  refused: (error) => error instanceof WalError,
  check: async (value, { bytes, valid }) => {
    const { disk, wal, recovery } = value as Opened;
    assertWhole(recovery);
    assertLaw(!valid || recovery.repaired === undefined, "a log that is whole is not repaired");
    const problem = fatalOf(await verifyWal((await folderOf(bytes)).mount(), DIRECTORY));
    if (problem !== undefined)
      throw new BrokenLaw(`a member starts from it, yet its inspection says: ${problem}`);
    await wal.close();
    const { repaired, ...first } = recovery;
    const again = await open(disk);
    if (!isDeepStrictEqual(again.recovery, first)) {
      const cut = repaired === undefined ? "" : ", after a repair";
      throw new BrokenLaw(`a second start sees another log${cut}:\n${show(first)}\n${show(again.recovery)}`);
    }
    await again.wal.close();
  },
};

const UNSOUND = new Error("no member could start from it");

const INSPECT: Target = {
  name: "wal-inspect",
  about:
    "the inspection of a folder of segments (cell/wal/inspect); refused by naming a problem, never by throwing",
  weight: 0.3,
  generate: (dice) => input(dice, log, DAMAGE),
  decode: async (bytes) => {
    const report = await verifyWal((await folderOf(bytes)).mount(), DIRECTORY);
    if (fatalOf(report) !== undefined) throw UNSOUND;
    return report;
  },
  refused: (error) => error === UNSOUND,
  check: async (value, { bytes }) => {
    const { identity } = value as WalReport;
    if (!isDeepStrictEqual(identity, IDENTITY)) return;
    try {
      const { wal } = await open(await folderOf(bytes));
      await wal.close();
    } catch (error) {
      throw new BrokenLaw(`sound by its inspection, yet no member starts from it: ${String(error)}`);
    }
  },
};

export const WAL_TARGETS: readonly Target[] = [SEGMENT, RECOVER, INSPECT];
