/** State streams into a fresh store, the header that announces them, and the file that names the generation. */
import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import { decodeCurrent, encodeCurrent } from "../../../cell/src/store/current-file.ts";
import type { Current } from "../../../cell/src/store/current-file.ts";
import { StoreError } from "../../../cell/src/store/errors.ts";
import { openMemoryStore } from "../../../cell/src/store/memory-store.ts";
import type { Row, Store } from "../../../cell/src/store/types.ts";
import { ChunkWriter, HASH_BYTES, STREAM_KEYSPACES } from "../../../cell/src/store/snapshot-format.ts";
import { createSnapshotSink, createSnapshotSource } from "../../../cell/src/store/snapshot-stream.ts";
import type { StateSummary } from "../../../cell/src/store/snapshot-stream.ts";
import { encodeConfiguration } from "../../../cell/src/raft/index.ts";
import type { MemberId } from "../../../cell/src/raft/types.ts";
import { decodeHeader } from "../../../cell/src/replica/snapshots.ts";
import type { Target } from "../contract.ts";
import type { Dice } from "../generate/dice.ts";
import { input } from "../generate/mutate.ts";
import * as values from "../generate/values.ts";
import { assertLaw, assertRoundTrip } from "./laws.ts";

const CHUNKS_MAX = 8;
const LENGTH_BYTES = 4;
const NO_PAUSE = async (): Promise<void> => Promise.resolve();

function sorted(dice: Dice): Row[] {
  const rows = new Map<string, Row>();
  for (let left = dice.length(20); left > 0; left--) {
    const key = values.key(dice);
    rows.set(key.toString("latin1"), { key, value: dice.once(40) ? dice.bytes(4_000) : values.bytes(dice) });
  }
  return [...rows.values()].sort((a, b) => Buffer.compare(a.key, b.key));
}

/** Chunks with a length before each: what the transport tells a receiver beside them. */
function join(chunks: readonly Buffer[]): Buffer {
  return Buffer.concat(
    chunks.flatMap((chunk) => {
      const length = Buffer.alloc(LENGTH_BYTES);
      length.writeUInt32BE(chunk.length);
      return [length, chunk];
    }),
  );
}

function split(bytes: Buffer): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at + LENGTH_BYTES <= bytes.length && chunks.length < CHUNKS_MAX;) {
    const length = Math.min(bytes.readUInt32BE(at), bytes.length - at - LENGTH_BYTES);
    chunks.push(bytes.subarray(at + LENGTH_BYTES, at + LENGTH_BYTES + length));
    at += LENGTH_BYTES + length;
  }
  return chunks;
}

function stream(dice: Dice): Buffer {
  const chunks: Buffer[] = [];
  const counts = STREAM_KEYSPACES.map(() => 0);
  let writer = new ChunkWriter("rows", 0, 256);
  let rowsInChunk = 0;
  const close = (): void => {
    if (rowsInChunk > 0) chunks.push(writer.bytes());
    writer = new ChunkWriter("rows", chunks.length, 256);
    rowsInChunk = 0;
  };
  for (const [i, [, number]] of STREAM_KEYSPACES.entries()) {
    const rows = dice.once(3) ? [] : sorted(dice);
    if (rows.length === 0) continue;
    writer.beginSection(number);
    for (const row of rows) writer.addRow(row);
    rowsInChunk += rows.length;
    counts[i] = rows.length;
    if (chunks.length < CHUNKS_MAX - 2 && dice.once(2)) close();
  }
  close();
  const end = new ChunkWriter("end", chunks.length, 256);
  for (const [i, [, number]] of STREAM_KEYSPACES.entries()) end.addCount(number, counts[i] ?? 0);
  const hash = createHash("sha256");
  for (const chunk of chunks) hash.update(chunk);
  end.addHash(hash.update(end.bytes()).digest());
  return join([...chunks, end.bytes()]);
}

/** Makes the hash at the end right. */
function resealStream(bytes: Buffer): Buffer {
  const sealed = Buffer.from(bytes);
  const chunks = split(sealed);
  const end = chunks.at(-1);
  if (end === undefined || end.length < HASH_BYTES) return sealed;
  const hash = createHash("sha256");
  for (const chunk of chunks.slice(0, -1)) hash.update(chunk);
  hash
    .update(end.subarray(0, -HASH_BYTES))
    .digest()
    .copy(end, end.length - HASH_BYTES);
  return sealed;
}

interface Received {
  readonly store: Store;
  readonly summary: StateSummary;
}

const STREAM: Target = {
  name: "state-stream",
  about: "a snapshot on its way into a fresh store (cell/store/snapshot-stream); refused with StoreError",
  weight: 0.7,
  generate: (dice) => input(dice, stream, { reseal: resealStream }),
  decode: async (bytes): Promise<Received> => {
    const store = openMemoryStore();
    const sink = createSnapshotSink(store, { pause: NO_PAUSE });
    for (const chunk of split(bytes)) await sink.chunk(chunk);
    return { store, summary: sink.finish() };
  },
  refused: (error) => error instanceof StoreError && error.code === "snapshot-invalid",
  check: async (value) => {
    const { store, summary } = value as Received;
    const source = createSnapshotSource(store.view(), { pause: NO_PAUSE, chunkBytes: 500 });
    const again = createSnapshotSink(openMemoryStore(), { pause: NO_PAUSE });
    for (let number = 0; ; number++) {
      const chunk = await source.chunk(number);
      if (chunk === undefined) break;
      await again.chunk(chunk);
    }
    source.close();
    const { rows } = again.finish();
    assertLaw(
      JSON.stringify(rows) === JSON.stringify(summary.rows),
      "the rows received are the rows sent on",
    );
  },
};

const NO_HEADER = new Error("no header");

const HEADER: Target = {
  name: "snapshot-header",
  about:
    "what announces a snapshot, and the note beside one (cell/replica/snapshots); refused by returning undefined",
  weight: 0.5,
  generate: (dice) =>
    input(dice, (inner) => {
      const voters = [1, 2, 3 + inner.below(1_000_000)] as MemberId[];
      const learners = inner.once(2) ? [] : ([2_000_000] as MemberId[]);
      const configuration = { voters, outgoing: [], learners, learnersNext: [], autoLeave: false };
      return Buffer.concat([inner.bytes(18), encodeConfiguration(configuration)]);
    }),
  decode: (bytes) => {
    const header = decodeHeader(bytes);
    if (header === undefined) throw NO_HEADER;
    return header;
  },
  refused: (error) => error === NO_HEADER,
};

const LAST_LINE_BYTES = "crc32 01234567\n".length;

/** Makes the checksum in the last line right. */
function resealCurrent(bytes: Buffer): Buffer {
  if (bytes.length < LAST_LINE_BYTES) return bytes;
  const body = bytes.subarray(0, -LAST_LINE_BYTES);
  return Buffer.concat([body, Buffer.from(`crc32 ${crc32(body).toString(16).padStart(8, "0")}\n`)]);
}

const CURRENT: Target = {
  name: "current-file",
  about: "the file CURRENT of a folder of generations (cell/store/current-file); refused with StoreError",
  weight: 0.5,
  generate: (dice) =>
    input(
      dice,
      (inner) => {
        const number = 1 + (inner.once(8) ? inner.below(2 ** 31) * 400_000 : inner.below(2_000_000));
        return Buffer.from(encodeCurrent({ number, note: values.bytes(inner, 300) }));
      },
      { reseal: resealCurrent },
    ),
  // As the file is read: in UTF-8.
  decode: (bytes) => decodeCurrent(bytes.toString("utf8")),
  refused: (error) => error instanceof StoreError && error.code === "generation-invalid",
  check: (value) => {
    assertRoundTrip(
      value as Current,
      (current) => Buffer.from(encodeCurrent(current)),
      (bytes) => decodeCurrent(bytes.toString("utf8")),
    );
  },
};

export const SNAPSHOT_TARGETS: readonly Target[] = [STREAM, HEADER, CURRENT];
