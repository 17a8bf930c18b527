import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Entry } from "../raft/types.ts";
import { WalError } from "./error.ts";
import { BatchEncoder } from "./batch-encoder.ts";
import { endOfData, headBytes, seedAt, segmentName, segmentSeeds } from "./format.ts";
import { openWal } from "./open.ts";
import { readSegment } from "./segment-reader.ts";
import {
  appended,
  at,
  DIRECTORY,
  entry,
  hardState,
  IDENTITY,
  openOn,
  optionsOn,
  seededRandom,
  settled,
  shape,
} from "./testing/fixture.ts";
import { MemoryDisk } from "./testing/memory-disk.ts";
import type { WalIdentity } from "./types.ts";

function pathOf(segment: number): string {
  return `${DIRECTORY}/${segmentName(segment)}`;
}

/** A log of several segments, each entry a group of its own, closed. */
async function written(count: number): Promise<MemoryDisk> {
  const disk = new MemoryDisk({ random: seededRandom(1) });
  const { wal } = await openOn(disk.mount());
  await appended(wal, { hardState: hardState(1, 7, 0), entries: [] });
  for (let index = 1; index <= count; index++) {
    await appended(wal, { entries: [entry(index, 1, `value ${index} ${"x".repeat(index % 30)}`)] });
  }
  await wal.close();
  await settled();
  return disk;
}

/** The last segment with data. */
function tailOf(disk: MemoryDisk): { segment: number; path: string; content: Buffer } {
  const used = disk.names(DIRECTORY).filter((name) => endOfData(disk.peek(`${DIRECTORY}/${name}`), 0) > 0);
  const path = pathOf(used.length);
  return { segment: used.length, path, content: disk.peek(path) };
}

async function refusal(disk: MemoryDisk, identity: WalIdentity = IDENTITY): Promise<string> {
  try {
    await openWal(optionsOn(disk.mount(), { identity }));
  } catch (error) {
    if (error instanceof WalError) return error.code;
    throw error;
  }
  return "opened";
}

/** A copy of the files, durable. */
async function copyOf(disk: MemoryDisk): Promise<MemoryDisk> {
  const copy = new MemoryDisk({ random: seededRandom(2) });
  const mounted = copy.mount();
  await mounted.makeDirectory(DIRECTORY);
  for (const name of disk.names(DIRECTORY)) {
    await mounted.createZeroed(`${DIRECTORY}/${name}`, 0);
    copy.poke(`${DIRECTORY}/${name}`, disk.peek(`${DIRECTORY}/${name}`));
  }
  await mounted.syncDirectory(DIRECTORY);
  return copy;
}

describe("recovery of the log", () => {
  it("a fresh log is empty, and what was written comes back byte for byte", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const first = await openOn(disk.mount());
    assert.deepEqual(first.recovery, { logStart: at(0, 0), entries: [] });
    const entries: Entry[] = [entry(1, 1, ""), entry(2, 1, Buffer.alloc(300)), entry(3, 2, "ü")];
    await appended(first.wal, { hardState: hardState(2, 7, 1), entries });
    await first.wal.close();
    const { recovery } = await openOn(disk.mount());
    assert.deepEqual(recovery.hardState, hardState(2, 7, 1));
    assert.deepEqual(recovery.logStart, at(0, 0));
    assert.deepEqual(
      recovery.entries.map((found) => ({ ...found, data: Buffer.from(found.data) })),
      entries.map((wanted) => ({ ...wanted, data: Buffer.from(wanted.data) })),
    );
    assert.equal(recovery.repaired, undefined);
  });

  it("W2: the last file truncated at every byte offset opens with exactly the whole groups before it", async () => {
    const count = 17;
    const disk = await written(count);
    const { segment, path, content } = tailOf(disk);
    assert.ok(segment >= 2, "several segments");
    const { batches } = readSegment(content, { segment, expected: IDENTITY });
    const entriesIn = (batch: (typeof batches)[number]): number =>
      batch.records.filter(({ kind }) => kind === "entry").length;
    const inTail = batches.reduce((sum, batch) => sum + entriesIn(batch), 0);
    const dataEnd = endOfData(content, 0);
    for (let size = 0; size <= dataEnd; size++) {
      const copy = await copyOf(disk);
      copy.poke(path, content.subarray(0, size));
      const { wal, recovery } = await openOn(copy.mount());
      const whole = batches.filter(({ offset, bytes }) => offset + bytes <= size);
      const kept = count - inTail + whole.reduce((sum, batch) => sum + entriesIn(batch), 0);
      assert.equal(recovery.entries.length, kept, `truncated at ${size}`);
      // The log goes on after it, and the result is whole.
      await appended(wal, { entries: [entry(kept + 1, 1, "after the repair")] });
      await wal.close();
      const again = await openOn(copy.mount());
      assert.equal(again.recovery.entries.length, kept + 1, `truncated at ${size}, reopened`);
      assert.equal(again.recovery.repaired, undefined);
      await again.wal.close();
    }
  });

  it("W2: any flipped bit in a segment that is not the last refuses to start", async () => {
    const disk = await written(26);
    const { segment } = tailOf(disk);
    assert.ok(segment >= 3, "there is a segment in the middle");
    const middle = pathOf(2);
    for (let bit = 0; bit < disk.peek(middle).length * 8; bit++) {
      disk.flipBit(middle, bit);
      const code = await refusal(disk);
      if (code !== "corrupt") assert.fail(`bit ${bit}: ${code}`);
      disk.flipBit(middle, bit);
    }
    assert.equal(await refusal(disk), "opened");
  });

  it("W2: any flipped bit in an acknowledged group at the very end refuses to start", async () => {
    const disk = await written(13);
    const { path, content } = tailOf(disk);
    const dataEnd = endOfData(content, 0);
    for (let bit = 0; bit < dataEnd * 8; bit++) {
      disk.flipBit(path, bit);
      const code = await refusal(disk);
      if (code !== "corrupt") assert.fail(`bit ${bit}: ${code}`);
      disk.flipBit(path, bit);
    }
    assert.equal(await refusal(disk), "opened");
  });

  it("W2: a flipped bit in an acknowledged group whose payload has whole sectors of zeros refuses to start", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount(), { segmentBytesMax: 8192 });
    const data = Buffer.alloc(4096);
    data[4095] = 1;
    await appended(wal, { entries: [entry(1, 1, data)] });
    await wal.close();
    const dataEnd = endOfData(disk.peek(pathOf(1)), 0);
    for (let byte = 0; byte < dataEnd; byte += 7) {
      disk.flipBit(pathOf(1), byte * 8 + (byte % 8));
      assert.equal(await refusal(disk), "corrupt", `byte ${byte}`);
      disk.flipBit(pathOf(1), byte * 8 + (byte % 8));
    }
  });

  it("W2: a lost sector is a torn write at the very end, and corruption when a later group follows", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount(), { segmentBytesMax: 16384 });
    const offsets: number[] = [];
    for (let index = 1; index <= 3; index++) {
      offsets.push(endOfData(disk.peek(pathOf(1)), 0));
      await appended(wal, { entries: [entry(index, 1, Buffer.alloc(2000, index))] });
    }
    await wal.close();
    const content = disk.peek(pathOf(1));
    for (const [i, start] of offsets.entries()) {
      for (let sector = Math.ceil(start / 512); sector * 512 < start + 1500; sector++) {
        const damaged = Buffer.from(content);
        damaged.fill(0, sector * 512, (sector + 1) * 512);
        const copy = await copyOf(disk);
        copy.poke(pathOf(1), damaged);
        if (i < 2) {
          assert.equal(await refusal(copy), "corrupt", `group ${i + 1}, sector ${sector}`);
          continue;
        }
        const { recovery } = await openOn(copy.mount(), { segmentBytesMax: 16384 });
        assert.deepEqual(shape(recovery.entries), ["1/1", "1/2"]);
        assert.equal(recovery.repaired?.segment, segmentName(1));
        const broken = copy.peek(`${pathOf(1)}.broken`);
        const { offset, bytes } = recovery.repaired;
        assert.deepEqual(broken, damaged.subarray(offset, offset + bytes), "the cut bytes are kept");
        assert.equal(endOfData(copy.peek(pathOf(1)), offset), offset, "W3: the rest is zeros");
      }
    }
  });

  it("W2: the lost head of a segment is corruption when the segment was used after it", async () => {
    const disk = await written(16);
    const { path, content } = tailOf(disk);
    const headless = Buffer.from(content);
    headless.fill(0, 0, 512);
    const { batches } = readSegment(content, { segment: 2, expected: IDENTITY });
    assert.ok(
      batches.some(({ offset }) => offset >= 512),
      "a group begins after that sector",
    );
    disk.poke(path, headless);
    assert.equal(await refusal(disk), "corrupt");
  });

  it("W2: a torn end of one segment and a torn start of the next cannot both be the last write", async () => {
    const disk = await written(16);
    const { path, segment, content } = tailOf(disk);
    const { batches } = readSegment(content, { segment, expected: IDENTITY });
    const last = batches.at(-1);
    assert.ok(last !== undefined && last.offset > 0);
    disk.poke(path, content.subarray(0, last.offset + 12));
    const next = disk.peek(pathOf(segment + 1));
    next.fill(1, 600, 700);
    disk.poke(pathOf(segment + 1), next);
    assert.equal(await refusal(disk), "corrupt");
    disk.poke(path, content);
    const { wal, recovery } = await openOn(disk.mount());
    assert.deepEqual(recovery.repaired, { segment: segmentName(segment + 1), offset: 0, bytes: 700 });
    await wal.close();
  });

  it("W1: a log of another cell, member or disk is refused", async () => {
    const disk = await written(3);
    for (const other of [{ cellId: "cell-b" }, { memberId: 8 }, { incarnation: "another" }]) {
      assert.equal(await refusal(disk, { ...IDENTITY, ...other }), "foreign-identity");
    }
  });

  it("W1: a segment of another log in the middle is refused", async () => {
    const disk = await written(26);
    const other = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(other.mount());
    for (let index = 1; index <= 14; index++)
      await appended(wal, { entries: [entry(index, 1, "elsewhere")] });
    await wal.close();
    disk.poke(pathOf(2), other.peek(pathOf(2)));
    assert.equal(await refusal(disk), "corrupt");
  });

  it("a missing segment, first or middle, and an emptied directory are refused", async () => {
    const names = (await written(34)).names(DIRECTORY);
    assert.ok(names.length >= 5);
    const middle = await written(34);
    middle.unlink(pathOf(2));
    assert.equal(await refusal(middle), "missing");
    const first = await written(34);
    first.unlink(pathOf(1));
    assert.equal(await refusal(first), "missing");
    const empty = await written(1);
    for (const name of empty.names(DIRECTORY)) empty.unlink(`${DIRECTORY}/${name}`);
    assert.equal(await refusal(empty), "missing");
  });

  it("W6: later entries supersede everything from their index on", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    await appended(wal, { entries: [entry(1, 1), entry(2, 1), entry(3, 1), entry(4, 1)] });
    await appended(wal, { entries: [entry(2, 2)] });
    await appended(wal, { entries: [entry(3, 3), entry(4, 3)] });
    await appended(wal, { entries: [entry(4, 4)] });
    await wal.close();
    const { recovery } = await openOn(disk.mount());
    assert.deepEqual(shape(recovery.entries), ["1/1", "2/2", "3/3", "4/4"]);
  });

  it("W6: a log that starts right behind the entry before its first segment starts in that entry's term", async () => {
    for (const [term, expected] of [
      [3, "opened"],
      [4, "gap"],
    ] as const) {
      const encoder = new BatchEncoder();
      encoder.begin(headBytes(IDENTITY));
      encoder.head({ identity: IDENTITY, segment: 1, last: at(9, 3), logStart: at(9, term) });
      const batch = encoder.finish({ offset: 0, seed: seedAt(segmentSeeds(1, IDENTITY), 0), chain: 0 });
      const disk = await written(1);
      disk.unlink(pathOf(2));
      disk.poke(pathOf(1), Buffer.concat([...batch.buffers, Buffer.alloc(512)]));
      assert.equal(await refusal(disk), expected);
    }
  });

  it("left-overs of an interrupted preparation are removed", async () => {
    const disk = await written(2);
    const mounted = disk.mount();
    await mounted.createZeroed(`${DIRECTORY}/${segmentName(9)}.tmp`, 100);
    await mounted.syncDirectory(DIRECTORY);
    await (await openOn(disk.mount())).wal.close();
    assert.ok(disk.names(DIRECTORY).every((name) => name.endsWith(".wal")));
  });
});
