import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { Entry } from "../raft/types.ts";
import { BatchEncoder, COPIED_BYTES_MAX, scratchBytes } from "./batch-encoder.ts";
import {
  BATCH_OVERHEAD_BYTES,
  countZeroSectors,
  endOfData,
  getInteger,
  headBytes,
  putInteger,
  seedAt,
  segmentName,
  segmentNumber,
  segmentSeeds,
  type WalRecord,
  writeBytes,
} from "./format.ts";
import { readSegment } from "./segment-reader.ts";
import { at, entry, hardState, IDENTITY } from "./testing/fixture.ts";
import type { WalWrite } from "./types.ts";

const anyInteger = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
const anyData = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  fc.uint8Array({ minLength: 1000, maxLength: 1200 }),
  fc.integer({ min: COPIED_BYTES_MAX - 9, max: COPIED_BYTES_MAX + 9 }).map((bytes) => new Uint8Array(bytes)),
);
const anyWrite: fc.Arbitrary<WalWrite> = fc
  .tuple(fc.boolean(), fc.boolean(), fc.array(fc.tuple(anyInteger, anyInteger, anyData), { maxLength: 5 }))
  .map(([withHardState, withSnapshot, entries]) => ({
    ...(withHardState ? { hardState: hardState(2 ** 53 - 1, 3, 2 ** 40) } : {}),
    ...(withSnapshot ? { snapshot: at(2 ** 33 + 1, 5) } : {}),
    entries: entries.map(([index, term, data]) => entry(index, term, data)),
  }));

function plain(found: Entry): Entry {
  return { ...found, data: Buffer.from(found.data) };
}

/** The records a write turns into. */
function recordsOf(write: WalWrite): unknown[] {
  return [
    ...(write.snapshot === undefined ? [] : [write.snapshot]),
    ...write.entries.map(plain),
    ...(write.hardState === undefined ? [] : [write.hardState]),
  ];
}

function contentOf(record: WalRecord): unknown {
  if (record.kind === "entry") return plain(record.entry);
  if (record.kind === "hard-state") return record.hardState;
  return record.kind === "head" ? record.head : record.at;
}

describe("the format of a segment", () => {
  it("groups of any writes read back as the same records, and the sizes are what was announced", () => {
    const encoder = new BatchEncoder();
    fc.assert(
      fc.property(
        fc.array(fc.array(anyWrite, { minLength: 1, maxLength: 3 }), { maxLength: 4 }),
        (groups) => {
          const seeds = segmentSeeds(3, IDENTITY);
          const head = { identity: IDENTITY, segment: 3, last: at(9, 2), logStart: at(4, 1) };
          encoder.begin(headBytes(IDENTITY));
          encoder.head(head);
          let batch = encoder.finish({ offset: 0, seed: seedAt(seeds, 0), chain: 77 });
          assert.equal(batch.bytes, headBytes(IDENTITY) + BATCH_OVERHEAD_BYTES);
          const pieces = batch.buffers.map((piece) => Buffer.from(piece));
          let offset = batch.bytes;
          for (const group of groups) {
            encoder.begin(group.reduce((sum, write) => sum + scratchBytes(write), 0));
            for (const write of group) encoder.write(write);
            batch = encoder.finish({ offset, seed: seedAt(seeds, offset), chain: batch.chain });
            const announced = group.reduce((sum, write) => sum + writeBytes(write), BATCH_OVERHEAD_BYTES);
            assert.equal(batch.bytes, announced);
            pieces.push(...batch.buffers.map((piece) => Buffer.from(piece)));
            offset += batch.bytes;
          }
          const file = Buffer.concat([...pieces, Buffer.alloc(700)]);
          assert.equal(file.length, offset + 700);
          const content = readSegment(file, { segment: 3, expected: undefined });
          assert.deepEqual([content.end.kind, content.end.offset], ["clean", offset], content.end.reason);
          assert.equal(content.continues, 77);
          assert.equal(content.chain, batch.chain);
          const found = content.batches.map(({ records }) => records.map(contentOf));
          assert.deepEqual(found, [[head], ...groups.map((group) => group.flatMap(recordsOf))]);
        },
      ),
      { numRuns: 150 },
    );
  });

  it("a batch verifies only in its segment, at its offset, for its identity", () => {
    const seeds = segmentSeeds(1, IDENTITY);
    const others = [
      seedAt(segmentSeeds(2, IDENTITY), 512),
      seedAt(segmentSeeds(1, { ...IDENTITY, memberId: 8 }), 512),
      seedAt(segmentSeeds(1, { ...IDENTITY, incarnation: "x" }), 512),
      seedAt(seeds, 520),
      seedAt(seeds, 0),
    ];
    assert.ok(!others.includes(seedAt(seeds, 512)));
  });

  it("counts the all-zero sectors of a region like a count byte by byte, however it is cut into pieces", () => {
    const anyPiece = fc.tuple(
      fc.integer({ min: 1, max: 1400 }),
      fc.boolean(),
      fc.integer({ min: 0, max: 1399 }),
    );
    fc.assert(
      fc.property(fc.array(anyPiece, { maxLength: 6 }), fc.integer({ min: 0, max: 3000 }), (cuts, offset) => {
        const pieces = cuts.map(([bytes, zeros, at]) => {
          const piece = Buffer.alloc(bytes);
          if (!zeros) piece[at % bytes] = 1;
          return piece;
        });
        const whole = Buffer.concat(pieces);
        const sectors = new Map<number, boolean>();
        for (const [i, byte] of whole.entries()) {
          const sector = Math.floor((offset + i) / 512);
          sectors.set(sector, (sectors.get(sector) ?? true) && byte === 0);
        }
        assert.equal(countZeroSectors(pieces, offset), [...sectors.values()].filter(Boolean).length);
      }),
    );
  });

  it("integers up to 2^53 - 1 survive", () => {
    const view = new DataView(new ArrayBuffer(8));
    fc.assert(
      fc.property(anyInteger, (value) => {
        putInteger(view, 0, value);
        assert.equal(getInteger(view, 0), value);
        assert.equal(view.getBigUint64(0, true), BigInt(value));
      }),
    );
  });

  it("finds the end of the data in a file of zeros, in any of its blocks", () => {
    const bytes = Buffer.alloc(200_000);
    assert.equal(endOfData(bytes, 0), 0);
    for (const last of [0, 1, 65_535, 65_536, 134_463, 134_464, 199_999]) {
      bytes.fill(0);
      bytes[last] = 1;
      assert.equal(endOfData(bytes, 0), last + 1);
      assert.equal(endOfData(bytes, last + 1), last + 1);
    }
  });

  it("segment names sort as their numbers, and nothing else passes for one", () => {
    assert.equal(segmentName(255), "00000000000000ff.wal");
    assert.equal(segmentNumber("00000000000000ff.wal"), 255);
    for (const other of ["00000000000000ff.wal.tmp", "00000000000000ff.wal.broken", "ff.wal", "lost+found"]) {
      assert.equal(segmentNumber(other), undefined);
    }
  });
});
