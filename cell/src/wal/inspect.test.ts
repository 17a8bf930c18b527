import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { segmentName } from "./format.ts";
import { inspectWal, verifyWal, type WalInspection } from "./inspect.ts";
import {
  appended,
  at,
  DIRECTORY,
  entry,
  hardState,
  IDENTITY,
  openOn,
  seededRandom,
} from "./testing/fixture.ts";
import { MemoryDisk } from "./testing/memory-disk.ts";

async function written(): Promise<MemoryDisk> {
  const disk = new MemoryDisk({ random: seededRandom(1) });
  const { wal } = await openOn(disk.mount());
  await appended(wal, { hardState: hardState(1, 7, 0), entries: [] });
  for (let index = 1; index <= 26; index++) await appended(wal, { entries: [entry(index, 1)] });
  await wal.close();
  return disk;
}

async function itemsOf(disk: MemoryDisk): Promise<WalInspection[]> {
  const items: WalInspection[] = [];
  for await (const item of inspectWal(disk.mount(), DIRECTORY)) items.push(item);
  return items;
}

function describeItems(items: readonly WalInspection[]): string[] {
  return items.map((item) => (item.kind === "problem" ? item.code : item.record.kind));
}

describe("the inspection of a log", () => {
  it("walks every record in disk order with its place, and changes nothing", async () => {
    const disk = await written();
    const before = disk.names(DIRECTORY).map((name) => disk.peek(`${DIRECTORY}/${name}`));
    const items = await itemsOf(disk);
    const records = items.filter((item) => item.kind === "record");
    assert.equal(records.length, items.length);
    const entries = records.filter(({ record }) => record.kind === "entry");
    assert.deepEqual(
      entries.map(({ position }) => position),
      Array.from({ length: 26 }, (_, i) => at(i + 1, 1)),
    );
    for (const { segment, offset, record } of entries) {
      assert.ok(record.kind === "entry");
      const file = disk.peek(`${DIRECTORY}/${segment}`);
      const data = file.subarray(offset + 24, offset + 24 + record.entry.data.length);
      assert.deepEqual(data, Buffer.from(record.entry.data));
    }
    assert.deepEqual(
      disk.names(DIRECTORY).map((name) => disk.peek(`${DIRECTORY}/${name}`)),
      before,
    );
  });

  it("reports the figures of a sound log", async () => {
    const report = await verifyWal((await written()).mount(), DIRECTORY);
    assert.deepEqual(report.problems, []);
    assert.deepEqual(report.identity, IDENTITY);
    assert.deepEqual(report.log, { hardState: hardState(1, 7, 0), logStart: at(0, 0), lastIndex: 26 });
    assert.equal(report.bytes, report.segments * 1024);
  });

  it("names the place of a flipped bit and goes on with the records behind it", async () => {
    const disk = await written();
    const sound = await itemsOf(disk);
    const victim = sound.find((item) => item.kind === "record" && item.position?.index === 13);
    assert.ok(victim?.kind === "record");
    disk.flipBit(`${DIRECTORY}/${victim.segment}`, (victim.offset + 24) * 8);
    const items = await itemsOf(disk);
    const problems = items.filter((item) => item.kind === "problem");
    assert.equal(problems.length, 1);
    assert.deepEqual(
      [problems[0]?.code, problems[0]?.segment, problems[0]?.offset],
      ["corrupt", victim.segment, victim.batch],
    );
    const wanted = describeItems(sound);
    wanted[sound.indexOf(victim)] = "corrupt";
    assert.deepEqual(describeItems(items), wanted);
    assert.equal((await verifyWal(disk.mount(), DIRECTORY)).log, undefined);
  });

  it("a torn end is reported, and is not fatal", async () => {
    const disk = await written();
    const last = (await itemsOf(disk)).at(-1);
    assert.ok(last?.kind === "record");
    const path = `${DIRECTORY}/${last.segment}`;
    disk.poke(path, disk.peek(path).subarray(0, last.offset + 3));
    const report = await verifyWal(disk.mount(), DIRECTORY);
    assert.deepEqual(
      report.problems.map(({ code, segment, offset }) => [code, segment, offset]),
      [["torn", last.segment, last.batch]],
    );
    assert.equal(report.log?.lastIndex, 25);
  });

  it("a missing segment and an absent log are reported", async () => {
    const disk = await written();
    disk.unlink(`${DIRECTORY}/${segmentName(2)}`);
    const report = await verifyWal(disk.mount(), DIRECTORY);
    assert.equal(report.problems[0]?.code, "missing");
    const nothing = new MemoryDisk({ random: seededRandom(1) });
    assert.equal((await verifyWal(nothing.mount(), DIRECTORY)).problems[0]?.code, "missing");
  });

  it("an oldest segment that is nothing but zeros is a lost beginning, as it is for a member's start", async () => {
    const disk = await written();
    const first = `${DIRECTORY}/${segmentName(1)}`;
    disk.poke(first, Buffer.alloc(disk.peek(first).length));
    const report = await verifyWal(disk.mount(), DIRECTORY);
    assert.deepEqual(
      report.problems.map(({ code, segment }) => [code, segment]),
      [["corrupt", segmentName(1)]],
    );
    assert.equal(report.log, undefined);
    await assert.rejects(openOn(disk.mount()), { code: "corrupt" });
  });
});
