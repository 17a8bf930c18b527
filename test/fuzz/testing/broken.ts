/** Decoders with one mistake each, to see that the harness notices it. Every input begins with a length. */
import { BrokenLaw, type Target } from "../contract.ts";
import type { Dice } from "../generate/dice.ts";
import { input } from "../generate/mutate.ts";

const LENGTH_BYTES = 4;

const TOO_SHORT = new Error("too short");

function encode(content: Buffer): Buffer {
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(content.length);
  return Buffer.concat([length, content]);
}

function lengthOf(bytes: Buffer): number {
  if (bytes.length < LENGTH_BYTES) throw TOO_SHORT;
  return bytes.readUInt32BE(0);
}

/** As it should be. */
function decode(bytes: Buffer): Buffer {
  const length = lengthOf(bytes);
  if (length > bytes.length - LENGTH_BYTES) throw TOO_SHORT;
  return bytes.subarray(LENGTH_BYTES, LENGTH_BYTES + length);
}

/** The length is more than there is: where each of the mistakes is made. */
const lies = (bytes: Buffer): boolean => lengthOf(bytes) > bytes.length - LENGTH_BYTES;

function target(name: string, mistaken: Partial<Target>): Target {
  return {
    name,
    about: "wrong on purpose",
    weight: 1,
    generate: (dice: Dice) => input(dice, (inner) => encode(inner.bytes(inner.length(40)))),
    decode,
    refused: (error) => error === TOO_SHORT,
    ...mistaken,
  };
}

/** Of this thread's own time, however busy the machine is. */
function spin(ms: number): void {
  const before = process.threadCpuUsage();
  while (process.threadCpuUsage(before).user < ms * 1000);
}

export const TARGETS: readonly Target[] = [
  target("broken-crash", {
    decode: (bytes) => {
      if (lies(bytes)) throw new TypeError("Cannot read properties of undefined");
      return decode(bytes);
    },
  }),
  target("broken-rejection", {
    decode: async (bytes) => {
      await Promise.resolve();
      if (lies(bytes)) throw new RangeError("out of range, a turn later");
      return decode(bytes);
    },
  }),
  target("broken-slow", {
    bounds: { ms: 5 },
    decode: (bytes) => {
      if (lies(bytes)) spin(20);
      return decode(bytes);
    },
  }),
  target("broken-hang", {
    decode: (bytes) => {
      while (lies(bytes));
      return decode(bytes);
    },
  }),
  target("broken-silence", {
    decode: async (bytes) => {
      if (lies(bytes)) await new Promise(() => undefined);
      return decode(bytes);
    },
  }),
  target("broken-memory", {
    decode: (bytes) => {
      const copy = Buffer.alloc(Math.min(lengthOf(bytes), 64 * 1024 * 1024));
      decode(bytes).copy(copy);
      return copy;
    },
  }),
  target("broken-heap", {
    decode: (bytes) => {
      const items: number[][] = [];
      while (lies(bytes)) items.push(new Array<number>(100_000).fill(items.length));
      return decode(bytes);
    },
  }),
  target("broken-law", {
    check: (value) => {
      if ((value as Buffer).length > 8) throw new BrokenLaw("encoded and decoded again it is shorter");
    },
  }),
  target("broken-refusal", {
    decode: (bytes) => {
      if (lengthOf(bytes) === 7) throw TOO_SHORT;
      return decode(bytes);
    },
  }),
  target("sound", {}),
];
