import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { createNodeDisk } from "./node-disk.ts";
import { appended, at, entry, hardState, openOn, seededRandom, shape } from "./testing/fixture.ts";
import type { Wal } from "./types.ts";

describe("the real disk", () => {
  let folder = "";
  const disk = createNodeDisk();

  beforeEach(() => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), "lockstep-wal-"));
  });

  afterEach(() => fs.rmSync(folder, { recursive: true, force: true }));

  it("keeps what the contract says about files and directories", async () => {
    const directory = path.join(folder, "a", "b");
    assert.equal(await disk.list(directory), undefined);
    await disk.makeDirectory(directory);
    await disk.makeDirectory(directory);
    const file = path.join(directory, "two");
    assert.equal(await disk.read(file), undefined);
    await disk.createZeroed(file, 3_000_000);
    assert.deepEqual(await disk.read(file), Buffer.alloc(3_000_000));
    await disk.rename(file, path.join(directory, "one"));
    await disk.syncDirectory(directory);
    assert.deepEqual(await disk.list(directory), ["one"]);
    await disk.remove(path.join(directory, "one"));
    await disk.remove(path.join(directory, "one"));
    assert.deepEqual(await disk.list(directory), []);
    assert.ok((await disk.freeBytes(directory)) > 0);
    assert.ok((await disk.volumeBytes(directory)) >= (await disk.freeBytes(directory)));
  });

  it("makes a directory whose path is relative", { timeout: 5000 }, async () => {
    const before = process.cwd();
    process.chdir(folder);
    try {
      await disk.makeDirectory("d");
      await disk.makeDirectory(path.join("..", path.basename(folder), "e", "f"));
    } finally {
      process.chdir(before);
    }
    assert.deepEqual(await disk.list(folder), ["d", "e"]);
  });

  it("writes pieces at their position, more of them than one writev takes, and leaves the rest alone", async () => {
    const name = path.join(folder, "file");
    await disk.createZeroed(name, 10_000);
    const file = await disk.open(name);
    const pieces = Array.from({ length: 2500 }, (_, i) => Buffer.from([i % 251, 1]));
    await file.writeDurably(pieces, 100);
    await file.writeDurably([Buffer.from("end")], 9_997);
    await file.close();
    const wanted = Buffer.concat([Buffer.alloc(100), ...pieces, Buffer.alloc(4_897), Buffer.from("end")]);
    assert.deepEqual(await disk.read(name), wanted);
  });

  it("a log with cuts, a release and a snapshot comes back after each", async () => {
    const directory = path.join(folder, "wal");
    const random = seededRandom(5);
    const options = { directory, segmentBytesMax: 64 * 1024 };
    let { wal } = await openOn(disk, options);
    let index = 0;
    const grow = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        const data = Buffer.alloc(Math.floor(random() * 9000), i);
        await appended(wal, { hardState: hardState(1, 7, index), entries: [entry(++index, 1, data)] });
      }
    };
    const reopen = async (): Promise<Awaited<ReturnType<typeof openOn>>["recovery"]> => {
      await wal.close();
      const opened: { wal: Wal; recovery: Awaited<ReturnType<typeof openOn>>["recovery"] } = await openOn(
        disk,
        options,
      );
      wal = opened.wal;
      return opened.recovery;
    };
    await grow(60);
    const whole = await reopen();
    assert.equal(whole.entries.length, 60);
    assert.deepEqual(whole.hardState, hardState(1, 7, 59));

    wal.release(at(50, 1).index, at(50, 1).term);
    await grow(5);
    const released = await reopen();
    assert.deepEqual(released.logStart, at(50, 1));
    assert.equal(released.entries.length, 15);
    assert.equal((await disk.list(directory))?.includes("0000000000000001.wal"), false);

    await appended(wal, { hardState: hardState(2, 0, 200), snapshot: at(200, 2), entries: [entry(201, 2)] });
    const restarted = await reopen();
    assert.deepEqual(restarted.logStart, at(200, 2));
    assert.deepEqual(shape(restarted.entries), ["2/201"]);
    await wal.close();
  });
});
