import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { LogIndex, Term } from "../raft/types.ts";
import { WalError } from "./error.ts";
import { segmentName } from "./format.ts";
import {
  appended,
  at,
  DIRECTORY,
  entry,
  hardState,
  openOn,
  seededRandom,
  settled,
  shape,
} from "./testing/fixture.ts";
import { type DiskOperation, MemoryDisk } from "./testing/memory-disk.ts";
import { diskFault } from "./testing/memory-volume.ts";
import type { Wal } from "./types.ts";

function release(wal: Wal, index: number, term: number): void {
  wal.release(index as LogIndex, term as Term);
}

/** A disk whose durable writes wait until the test lets them go. */
class HeldDisk {
  readonly disk: MemoryDisk;
  readonly held: { readonly operation: DiskOperation; readonly complete: () => void }[] = [];
  holding = false;

  constructor() {
    this.disk = new MemoryDisk({
      random: seededRandom(1),
      onOperation: (operation, complete) => {
        if (this.holding && operation.kind === "writeDurably") this.held.push({ operation, complete });
        else queueMicrotask(complete);
      },
    });
  }

  async letGo(): Promise<void> {
    const next = this.held.shift();
    assert.ok(next, "a write is on its way");
    next.complete();
    await settled();
  }
}

describe("group commit", () => {
  it("writes of one turn share a group; those that come during it share the next", async () => {
    const held = new HeldDisk();
    const groups: number[] = [];
    const { wal } = await openOn(held.disk.mount(), {
      segmentBytesMax: 65536,
      onSync: (_, writes) => groups.push(writes),
    });
    held.holding = true;
    const done: number[] = [];
    for (const index of [1, 2, 3]) wal.append({ entries: [entry(index, 1)] }, () => done.push(index));
    await settled();
    for (const index of [4, 5]) wal.append({ entries: [entry(index, 1)] }, () => done.push(index));
    await settled();
    assert.equal(held.held.length, 1, "one write at a time");
    assert.deepEqual(done, []);
    await held.letGo();
    assert.deepEqual(done, [1, 2, 3]);
    await held.letGo();
    assert.deepEqual(done, [1, 2, 3, 4, 5]);
    assert.deepEqual(groups, [3, 2]);
  });

  it("callbacks of a group run in order and without a turn in between", async () => {
    const { wal } = await openOn(new MemoryDisk({ random: seededRandom(1) }).mount());
    const order: string[] = [];
    wal.append({ entries: [entry(1, 1)] }, () => {
      order.push("first");
      queueMicrotask(() => order.push("a microtask of the first"));
    });
    wal.append({ entries: [entry(2, 1)] }, () => order.push("second"));
    await settled();
    assert.deepEqual(order, ["first", "second", "a microtask of the first"]);
  });

  it("a write appended by a callback is durable before its own callback", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    await appended(wal, { entries: [entry(1, 1)] });
    await new Promise<void>((resolve) => {
      wal.append({ entries: [entry(2, 1)] }, () => wal.append({ entries: [entry(3, 1)] }, resolve));
    });
    disk.crash("lose");
    const { recovery } = await openOn(disk.mount());
    assert.deepEqual(shape(recovery.entries), ["1/1", "1/2", "1/3"]);
  });

  it("close waits for everything queued, and appending after it is a bug", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    let done = 0;
    for (let index = 1; index <= 40; index++) wal.append({ entries: [entry(index, 1)] }, () => done++);
    await wal.close();
    assert.equal(done, 40);
    assert.throws(() => wal.append({ entries: [] }, () => undefined), /no append after close/);
    disk.crash("lose");
    const { recovery } = await openOn(disk.mount());
    assert.equal(recovery.entries.length, 40);
  });

  it("W6: a caller that breaks the index rules is stopped before the disk", async () => {
    const { wal } = await openOn(new MemoryDisk({ random: seededRandom(1) }).mount());
    const nothing = (): void => undefined;
    await appended(wal, { hardState: hardState(2, 7, 2), entries: [entry(1, 1), entry(2, 2), entry(3, 2)] });
    assert.throws(() => wal.append({ entries: [entry(5, 2)] }, nothing), /no gap/);
    assert.throws(() => wal.append({ entries: [entry(4, 1)] }, nothing), /terms ascend/);
    assert.throws(() => wal.append({ entries: [entry(4, 2), entry(6, 2)] }, nothing), /contiguous/);
    assert.throws(() => wal.append({ entries: [entry(4, 3)] }, nothing), /last entry's term/);
    assert.throws(
      () => wal.append({ hardState: hardState(1, 7, 2), entries: [] }, nothing),
      /never goes back/,
    );
    assert.throws(
      () => wal.append({ hardState: hardState(2, 6, 2), entries: [] }, nothing),
      /never goes back/,
    );
    assert.throws(
      () => wal.append({ hardState: hardState(2, 7, 4), entries: [] }, nothing),
      /commit <= last/,
    );
    assert.throws(() => release(wal, 4, 2), /released <= last/);
  });
});

describe("segments", () => {
  it("W8: a cut finds the next segment ready: its first group is the only write it costs", async () => {
    const operations: string[] = [];
    let record = false;
    const disk = new MemoryDisk({
      random: seededRandom(1),
      onOperation: ({ kind, path }, complete) => {
        if (record) operations.push(`${kind} ${path.slice(DIRECTORY.length + 1)}`);
        queueMicrotask(complete);
      },
    });
    const { wal } = await openOn(disk.mount());
    await appended(wal, { entries: [entry(1, 1, Buffer.alloc(700, 1))] });
    await settled();
    record = true;
    await appended(wal, { entries: [entry(2, 1, Buffer.alloc(700, 2))] });
    const before = operations.slice(0, operations.indexOf(`writeDurably ${segmentName(2)}`));
    assert.ok(
      before.every((text) => !text.startsWith("syncDirectory") && !text.startsWith("rename")),
      before.join(),
    );
    await settled();
    assert.ok(disk.names(DIRECTORY).includes(segmentName(3)), "the one after is there again");
    assert.equal(wal.bytes, 3 * 1024);
  });

  it("a write larger than a segment gets a bigger segment, and the log goes on in normal ones", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    await appended(wal, { hardState: hardState(1, 7, 0), entries: [entry(1, 1)] });
    await appended(wal, { entries: [entry(2, 1, Buffer.alloc(50_000, 2))] });
    await appended(wal, { entries: [entry(3, 1, Buffer.alloc(5_000, 3)), entry(4, 1)] });
    await appended(wal, { entries: [entry(5, 1)] });
    await wal.close();
    const { recovery } = await openOn(disk.mount());
    assert.deepEqual(
      recovery.entries.map(({ data }) => data.length),
      [7, 50_000, 5_000, 7, 7],
    );
    assert.deepEqual(recovery.hardState, hardState(1, 7, 0));
  });

  it("release removes whole segments below, after the log's start is durable, and recovery starts there", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    for (let index = 1; index <= 60; index++) {
      await appended(wal, { hardState: hardState(1, 7, index - 1), entries: [entry(index, 1)] });
    }
    const before = disk.names(DIRECTORY).length;
    release(wal, 40, 1);
    await settled();
    const names = disk.names(DIRECTORY);
    assert.ok(names.length < before - 2, "segments are gone");
    assert.ok(!names.includes(segmentName(1)));
    assert.equal(wal.bytes, names.length * 1024);
    disk.crash("lose");
    const { wal: again, recovery } = await openOn(disk.mount());
    assert.deepEqual(recovery.logStart, at(40, 1));
    assert.equal(recovery.entries[0]?.index, 41);
    assert.equal(recovery.entries.at(-1)?.index, 60);
    assert.deepEqual(recovery.hardState, hardState(1, 7, 59));
    assert.equal(again.bytes, disk.names(DIRECTORY).length * 1024);
  });

  it("W5: no segment vanishes before the record that makes it superfluous is durable", async () => {
    const held = new HeldDisk();
    const { wal } = await openOn(held.disk.mount());
    for (let index = 1; index <= 40; index++) await appended(wal, { entries: [entry(index, 1)] });
    await settled();
    held.holding = true;
    release(wal, 40, 1);
    await settled();
    assert.ok(held.disk.names(DIRECTORY).includes(segmentName(1)), "the marker is on its way");
    await held.letGo();
    assert.ok(!held.disk.names(DIRECTORY).includes(segmentName(1)));
  });

  it("W5: a segment that was just left stays until the head of the next one is durable, whatever is released", async () => {
    let holdRemovals = false;
    const removals: (() => void)[] = [];
    const writes: (() => void)[] = [];
    let holdWrites = false;
    const disk = new MemoryDisk({
      random: seededRandom(1),
      onOperation: ({ kind }, complete) => {
        if (holdRemovals && kind === "remove") removals.push(complete);
        else if (holdWrites && kind === "writeDurably") writes.push(complete);
        else queueMicrotask(complete);
      },
    });
    const { wal } = await openOn(disk.mount());
    await appended(wal, { entries: [entry(1, 1, Buffer.alloc(700, 1))] });
    await appended(wal, { entries: [entry(2, 1, Buffer.alloc(700, 2))] });
    await settled();
    holdRemovals = true;
    release(wal, 2, 1);
    await settled();
    assert.equal(
      removals.length,
      1,
      "segment 1 is being removed; the log's start says that segment 2 may go, too",
    );
    holdWrites = true;
    const third = appended(wal, { entries: [entry(3, 1, Buffer.alloc(700, 3))] });
    await settled();
    assert.equal(writes.length, 1, "the head of segment 3 is on its way");
    holdRemovals = false;
    for (const complete of removals) complete();
    await settled();
    assert.ok(!disk.names(DIRECTORY).includes(segmentName(1)));
    assert.ok(disk.names(DIRECTORY).includes(segmentName(2)));
    for (const complete of writes) complete();
    await third;
    await settled();
    assert.ok(!disk.names(DIRECTORY).includes(segmentName(2)));
  });

  it("W15: after a snapshot the log restarts behind it, and all older segments go", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    for (let index = 1; index <= 40; index++) await appended(wal, { entries: [entry(index, 1)] });
    await appended(wal, {
      hardState: hardState(3, 0, 100),
      snapshot: at(100, 2),
      entries: [entry(101, 3), entry(102, 3)],
    });
    await settled();
    assert.ok(disk.names(DIRECTORY).length <= 3, disk.names(DIRECTORY).join());
    assert.throws(() => wal.append({ entries: [entry(100, 3)] }, () => undefined), /after the log's start/);
    await appended(wal, { entries: [entry(103, 3)] });
    disk.crash("lose");
    const { recovery } = await openOn(disk.mount());
    assert.deepEqual(recovery.logStart, at(100, 2));
    assert.deepEqual(shape(recovery.entries), ["3/101", "3/102", "3/103"]);
    assert.deepEqual(recovery.hardState, hardState(3, 0, 100));
  });

  it("W15: entries behind a snapshot's index that it voids do not keep their segments", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    for (let index = 1; index <= 40; index++) await appended(wal, { entries: [entry(index, 1)] });
    await appended(wal, { hardState: hardState(3, 0, 5), snapshot: at(5, 2), entries: [entry(6, 3)] });
    await settled();
    assert.ok(disk.names(DIRECTORY).length <= 3, disk.names(DIRECTORY).join());
    disk.crash("lose");
    const { recovery } = await openOn(disk.mount());
    assert.deepEqual(recovery.logStart, at(5, 2));
    assert.deepEqual(shape(recovery.entries), ["3/6"]);
  });

  it("W15: a snapshot without entries is the end of the log", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    await appended(wal, { entries: [entry(1, 1)] });
    await appended(wal, { hardState: hardState(2, 0, 9), snapshot: at(9, 2), entries: [] });
    await wal.close();
    const { wal: again, recovery } = await openOn(disk.mount());
    assert.deepEqual(recovery, { hardState: hardState(2, 0, 9), logStart: at(9, 2), entries: [] });
    await appended(again, { entries: [entry(10, 2)] });
  });
});

describe("a failing disk", () => {
  for (const kind of ["writeDurably", "createZeroed", "rename", "syncDirectory", "remove"] as const) {
    it(`W7: a failed ${kind} is fatal once, and nothing is done after it`, async () => {
      const disk = new MemoryDisk({ random: seededRandom(1) });
      const fatal: Error[] = [];
      const { wal } = await openOn(disk.mount(), { onFatal: (error) => fatal.push(error) });
      for (let index = 1; index <= 30; index++) await appended(wal, { entries: [entry(index, 1)] });
      await settled();
      disk.fault = (operation) => (operation.kind === kind ? diskFault("EIO", operation.path) : undefined);
      release(wal, 30, 1);
      let doneAfter = 0;
      for (let index = 31; index <= 60; index++) {
        wal.append({ entries: [entry(index, 1)] }, () => (doneAfter += fatal.length));
        await settled();
      }
      assert.equal(fatal.length, 1);
      assert.ok(fatal[0] instanceof WalError && fatal[0].code === "disk-failed");
      disk.fault = undefined;
      wal.append({ entries: [entry(61, 1)] }, () => doneAfter++);
      await settled();
      assert.equal(doneAfter, 0);
      await assert.rejects(wal.close(), WalError);
    });
  }

  it("W7: the group whose sync failed and everything behind it is never done", async () => {
    const held = new HeldDisk();
    const fatal: Error[] = [];
    const { wal } = await openOn(held.disk.mount(), { onFatal: (error) => fatal.push(error) });
    held.holding = true;
    const done: number[] = [];
    wal.append({ entries: [entry(1, 1)] }, () => done.push(1));
    await settled();
    wal.append({ entries: [entry(2, 1)] }, () => done.push(2));
    held.disk.fault = (operation) => diskFault("EIO", operation.path);
    await held.letGo();
    held.disk.fault = undefined;
    held.holding = false;
    wal.append({ entries: [entry(3, 1)] }, () => done.push(3));
    await settled();
    assert.deepEqual(done, []);
    assert.equal(fatal.length, 1);
  });

  it("W8: on a full volume the log goes on in the segments it has, and a release lets it go further", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const fatal: Error[] = [];
    const { wal } = await openOn(disk.mount(), { onFatal: (error) => fatal.push(error) });
    disk.capacityBytes = disk.usedBytes;
    let index = 0;
    while (!disk.peek(`${DIRECTORY}/${segmentName(2)}`).some((byte) => byte !== 0)) {
      await appended(wal, { entries: [entry(++index, 1)] });
    }
    await settled();
    assert.deepEqual(fatal, []);
    assert.deepEqual(
      disk.names(DIRECTORY),
      [segmentName(1), segmentName(2)],
      "no third one, nothing half made",
    );
    release(wal, index - 1, 1);
    await settled();
    assert.deepEqual(disk.names(DIRECTORY), [segmentName(2), segmentName(3)]);
    await appended(wal, { entries: [entry(index + 1, 1)] });
  });

  it("W8: a full volume is fatal with its own code once a segment is needed and cannot be had", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const fatal: Error[] = [];
    const { wal } = await openOn(disk.mount(), { onFatal: (error) => fatal.push(error) });
    disk.capacityBytes = disk.usedBytes;
    let done = 0;
    for (let index = 1; index <= 40; index++) {
      wal.append({ entries: [entry(index, 1)] }, () => done++);
      await settled();
    }
    assert.equal(fatal.length, 1);
    assert.ok(fatal[0] instanceof WalError && fatal[0].code === "no-space");
    disk.crash("lose");
    disk.capacityBytes = Number.POSITIVE_INFINITY;
    const { recovery } = await openOn(disk.mount());
    assert.equal(recovery.entries.length, done);
  });

  it("W8: a member on a full volume still starts", async () => {
    const disk = new MemoryDisk({ random: seededRandom(1) });
    const { wal } = await openOn(disk.mount());
    await appended(wal, { entries: [entry(1, 1)] });
    await wal.close();
    disk.unlink(`${DIRECTORY}/${segmentName(2)}`);
    disk.capacityBytes = disk.usedBytes;
    const { wal: again } = await openOn(disk.mount());
    await appended(again, { entries: [entry(2, 1)] });
  });
});
