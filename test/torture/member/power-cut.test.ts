import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { createNodeDisk } from "../../../cell/src/wal/index.ts";
import type { Disk } from "../../../cell/src/wal/index.ts";
import { Dice } from "../dice.ts";
import { FaultyDisk } from "./faulty-disk.ts";
import { Faults } from "./faults.ts";
import { cutPower, trashOf } from "./power-cut.ts";
import type { PowerCut } from "./power-cut.ts";
import { SyncJournal } from "./sync-journal.ts";

const SECTOR = 512;

/** A member's folder on the real disk, with the memory of what is not synced. */
class Folder {
  readonly scratch: string = mkdtempSync(join(tmpdir(), "lockstep-power-cut-"));
  readonly directory: string = join(this.scratch, "member");
  readonly journal: string = join(this.scratch, "journal");
  readonly faults: Faults = new Faults(() => undefined);

  constructor() {
    mkdirSync(this.directory);
  }

  /** As the next life of the process opens it. */
  open(): Disk {
    return new FaultyDisk({
      disk: createNodeDisk(),
      journal: new SyncJournal(this.journal),
      faults: this.faults,
      trash: trashOf(this.directory),
    });
  }

  path(name: string): string {
    return join(this.directory, name);
  }

  cut(seed: number): PowerCut {
    return cutPower(this.directory, this.journal, new Dice(`cut ${String(seed)}`), "tear");
  }
}

describe("a power cut", () => {
  const folders: Folder[] = [];
  const fresh = (): Folder => {
    const folder = new Folder();
    folders.push(folder);
    return folder;
  };
  after(() => {
    for (const { scratch } of folders) rmSync(scratch, { recursive: true, force: true });
  });

  it("leaves what was durable, and loses, keeps or tears by sector what was under way", async () => {
    const outcomes = new Set<string>();
    for (let seed = 0; seed < 40; seed += 1) {
      const folder = fresh();
      const disk = folder.open();
      await disk.createZeroed(folder.path("log"), 8 * SECTOR);
      await disk.syncDirectory(folder.directory);
      const file = await disk.open(folder.path("log"));
      await file.writeDurably([Buffer.alloc(SECTOR + 100, "a")], 0);
      folder.faults.failNext("log");
      // Two sectors: the second half of one that holds durable bytes too, and one more.
      await assert.rejects(file.writeDurably([Buffer.alloc(2 * SECTOR - 100, "b")], SECTOR + 100), /EIO/);
      await file.close();
      folder.cut(seed);
      const content = readFileSync(folder.path("log"), "latin1");
      assert.equal(
        content.slice(0, SECTOR + 100),
        "a".repeat(SECTOR + 100),
        "durable bytes stay, also in a torn sector",
      );
      outcomes.add(`${String(content[SECTOR + 100])}${String(content[2 * SECTOR])}`);
    }
    assert.deepEqual([...outcomes].sort(), ["\0\0", "\0b", "b\0", "bb"], "every order of sectors happens");
  });

  it("remembers over a kill -9 without a power cut what is still not synced", async () => {
    let lost = 0;
    for (let seed = 0; seed < 20; seed += 1) {
      const folder = fresh();
      const disk = folder.open();
      await disk.createZeroed(folder.path("log"), SECTOR);
      await disk.syncDirectory(folder.directory);
      folder.faults.failNext("log");
      await assert.rejects((await disk.open(folder.path("log"))).writeDurably([Buffer.from("x")], 0), /EIO/);
      folder.open();
      lost += folder.cut(seed).sectorsLost;
    }
    assert.ok(lost > 0);
  });

  it("a write that is repeated until it is durable cannot be lost any more", async () => {
    for (let seed = 0; seed < 20; seed += 1) {
      const folder = fresh();
      const disk = folder.open();
      await disk.createZeroed(folder.path("log"), SECTOR);
      await disk.syncDirectory(folder.directory);
      folder.faults.failNext("log");
      await assert.rejects((await disk.open(folder.path("log"))).writeDurably([Buffer.from("x")], 0), /EIO/);
      await (await folder.open().open(folder.path("log"))).writeDurably([Buffer.from("x")], 0);
      assert.equal(folder.cut(seed).sectorsLost, 0);
      assert.equal(readFileSync(folder.path("log"), "latin1")[0], "x");
    }
  });

  it("takes back creations, renames and removals that were not synced, and brings removed files back", async () => {
    const seen = new Set<string>();
    for (let seed = 0; seed < 40; seed += 1) {
      const folder = fresh();
      const disk = folder.open();
      for (const name of ["kept", "removed", "renamed"]) await disk.createZeroed(folder.path(name), SECTOR);
      await (await disk.open(folder.path("removed"))).writeDurably([Buffer.from("content")], 0);
      await disk.syncDirectory(folder.directory);
      await disk.remove(folder.path("removed"));
      await disk.rename(folder.path("renamed"), folder.path("newname"));
      await disk.createZeroed(folder.path("created"), SECTOR);
      folder.cut(seed);
      const there = ["kept", "removed", "renamed", "newname", "created"].filter((name) =>
        existsSync(folder.path(name)),
      );
      assert.ok(there.includes("kept"));
      assert.ok(
        there.includes("renamed") !== there.includes("newname"),
        "a rename happens whole or not at all",
      );
      if (there.includes("removed")) {
        assert.equal(readFileSync(folder.path("removed"), "latin1").slice(0, 7), "content");
      }
      seen.add(there.join(" "));
    }
    assert.equal(seen.size, 8, "each change is lost or kept by itself");
  });

  it("takes nothing back once the directory is synced", async () => {
    for (let seed = 0; seed < 10; seed += 1) {
      const folder = fresh();
      const disk = folder.open();
      await disk.createZeroed(folder.path("a.tmp"), SECTOR);
      await disk.rename(folder.path("a.tmp"), folder.path("a"));
      await disk.syncDirectory(folder.directory);
      assert.equal(folder.cut(seed).changesLost, 0);
      assert.ok(existsSync(folder.path("a")) && !existsSync(folder.path("a.tmp")));
    }
  });
});
