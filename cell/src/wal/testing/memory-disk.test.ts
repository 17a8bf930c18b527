import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { seededRandom, settled } from "./fixture.ts";
import { MemoryDisk } from "./memory-disk.ts";
import { diskFault } from "./memory-volume.ts";

async function withFile(disk: MemoryDisk, bytes = 4096): Promise<ReturnType<MemoryDisk["mount"]>> {
  const mounted = disk.mount();
  await mounted.makeDirectory("/d");
  await mounted.createZeroed("/d/file", bytes);
  await mounted.syncDirectory("/d");
  return mounted;
}

describe("the disk in memory", () => {
  it("keeps what was written durably", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const file = await (await withFile(disk)).open("/d/file");
    await file.writeDurably([Buffer.from("abc"), Buffer.from("def")], 510);
    disk.crash("lose");
    assert.equal(disk.peek("/d/file").toString("latin1", 509, 517), "\0abcdef\0");
  });

  it("loses, keeps or tears by sector what was on its way", async () => {
    const seen = new Set<string>();
    for (let seed = 0; seed < 40; seed++) {
      const disk = new MemoryDisk({
        random: seededRandom(seed),
        onOperation: ({ kind }, complete) => {
          if (kind !== "writeDurably") queueMicrotask(complete);
        },
      });
      const file = await (await withFile(disk)).open("/d/file");
      let done = false;
      void file.writeDurably([Buffer.alloc(1536, 1)], 0).then(() => (done = true));
      await settled();
      disk.crash(seed === 0 ? "lose" : seed === 1 ? "keep" : "tear");
      await settled();
      assert.equal(done, false);
      const content = disk.peek("/d/file");
      const sectors = [0, 512, 1024].map((at) => content[at]).join("");
      for (const at of [0, 512, 1024])
        assert.deepEqual(content.subarray(at, at + 512), Buffer.alloc(512, content[at]));
      if (seed === 0) assert.equal(sectors, "000");
      else if (seed === 1) assert.equal(sectors, "111");
      else seen.add(sectors);
    }
    assert.equal(seen.size, 8, "every order of sectors happens");
  });

  it("loses creations, renames and removals that were not synced, each whole", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const mounted = await withFile(disk);
    await mounted.createZeroed("/d/other", 10);
    await mounted.rename("/d/file", "/d/renamed");
    assert.deepEqual(disk.names("/d"), ["other", "renamed"]);
    disk.crash("lose");
    assert.deepEqual(disk.names("/d"), ["file"]);
    const again = disk.mount();
    await again.remove("/d/file");
    disk.crash("lose");
    assert.deepEqual(disk.names("/d"), ["file"]);
    const last = disk.mount();
    await last.rename("/d/file", "/d/renamed");
    await last.syncDirectory("/d");
    disk.crash("lose");
    assert.deepEqual(disk.names("/d"), ["renamed"]);
  });

  it("a dead process gets no answers and changes nothing", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const mounted = await withFile(disk);
    const file = await mounted.open("/d/file");
    disk.kill();
    let answers = 0;
    void file.writeDurably([Buffer.from("x")], 0).then(() => answers++);
    void mounted.remove("/d/file").then(() => answers++);
    await settled();
    assert.equal(answers, 0);
    assert.deepEqual(disk.peek("/d/file"), Buffer.alloc(4096));
  });

  it("a failed write stays readable after a kill and is lost with the power", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const file = await (await withFile(disk)).open("/d/file");
    disk.fault = ({ kind, path }) => (kind === "writeDurably" ? diskFault("EIO", path) : undefined);
    await assert.rejects(file.writeDurably([Buffer.from("x")], 0), { code: "EIO" });
    disk.kill();
    assert.equal(disk.peek("/d/file")[0], 0x78);
    disk.crash("lose");
    assert.equal(disk.peek("/d/file")[0], 0);
  });

  it("is full at its capacity", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1), capacityBytes: 5000 });
    const mounted = await withFile(disk);
    assert.equal(await mounted.freeBytes("/d"), 904);
    await assert.rejects(mounted.createZeroed("/d/more", 905), { code: "ENOSPC" });
    await mounted.createZeroed("/d/more", 904);
    const file = await mounted.open("/d/more");
    await assert.rejects(file.writeDurably([Buffer.from("xy")], 903), { code: "ENOSPC" });
    await file.writeDurably([Buffer.from("x")], 903);
    await mounted.remove("/d/more");
    assert.equal(await mounted.freeBytes("/d"), 904);
  });

  it("the same seed leaves the same bytes", async () => {
    const run = async (seed: number): Promise<Buffer> => {
      const disk = new MemoryDisk({
        random: seededRandom(seed),
        onOperation: ({ kind }, complete) => {
          if (kind !== "writeDurably") queueMicrotask(complete);
        },
      });
      const file = await (await withFile(disk, 65536)).open("/d/file");
      void file.writeDurably([Buffer.alloc(60_000, 7)], 100);
      disk.crash("tear");
      return disk.peek("/d/file");
    };
    assert.deepEqual(await run(9), await run(9));
    assert.notDeepEqual(await run(9), await run(10));
  });
});
