/** Damage to bytes: what a disk, a broken peer or somebody with a purpose makes of a valid encoding. */
import type { Input } from "../contract.ts";
import type { Dice } from "./dice.ts";

/** Inputs are small: a decoder's mistakes show in a few hundred bytes. Now and then one is not. */
const RANDOM_BYTES_MAX = 400;
/** The largest input: more would take time and show nothing that this does not. */
export const INPUT_BYTES_MAX: number = 64 * 1024;

/** Values at which lengths, signs and number formats turn over. */
const BOUNDARIES: readonly bigint[] = [
  0n,
  1n,
  0x7fn,
  0x80n,
  0xffn,
  0xffffn,
  0x7fffffffn,
  0x80000000n,
  0xffffffffn,
  1n << 32n,
  1n << 40n,
  (1n << 53n) - 1n,
  1n << 53n,
  (1n << 63n) - 1n,
  (1n << 64n) - 1n,
];

/** Base-128, low group first; `extra` more groups than it needs, all empty. */
export function varint(value: bigint, extra = 0): Buffer {
  const groups: number[] = [];
  let rest = value;
  do {
    groups.push(Number(rest & 0x7fn));
    rest >>= 7n;
  } while (rest > 0n);
  for (let i = 0; i < extra; i++) groups.push(0);
  return Buffer.from(groups.map((group, i) => (i === groups.length - 1 ? group : group | 0x80)));
}

/** A boundary value as a varint, overlong now and then: up to more bytes than any decoder takes. */
export function boundaryVarint(dice: Dice): Buffer {
  return varint(dice.pick(BOUNDARIES), dice.once(4) ? dice.between(1, 12) : 0);
}

function splice(bytes: Buffer, at: number, removed: number, inserted: Buffer): Buffer {
  return Buffer.concat([bytes.subarray(0, at), inserted, bytes.subarray(at + removed)]);
}

function varintLength(bytes: Buffer, at: number): number {
  let end = at;
  while (end < bytes.length && end - at < 9 && (bytes[end] ?? 0) >= 0x80) end++;
  return end - at + 1;
}

function fixedWidth(dice: Dice, bytes: Buffer): Buffer {
  const width = dice.pick([1, 2, 4, 6, 8]);
  if (bytes.length < width) return bytes;
  const at = dice.below(bytes.length - width + 1);
  const value = dice.pick(BOUNDARIES) & ((1n << BigInt(width * 8)) - 1n);
  const changed = Buffer.from(bytes);
  const bigEndian = dice.once(2);
  for (let i = 0; i < width; i++) {
    const place = bigEndian ? width - 1 - i : i;
    changed[at + place] = Number((value >> BigInt(8 * i)) & 0xffn);
  }
  return changed;
}

function repeat(dice: Dice, bytes: Buffer): Buffer {
  const from = dice.below(bytes.length);
  const piece = bytes.subarray(from, from + 1 + dice.length(bytes.length - from - 1));
  const room = Math.max(1, Math.floor((INPUT_BYTES_MAX - bytes.length) / piece.length));
  const times = dice.once(40) ? dice.between(1, Math.min(2_000, room)) : dice.between(1, Math.min(4, room));
  return splice(bytes, from, 0, Buffer.concat(new Array<Buffer>(times).fill(piece)));
}

/** One kind of damage. The input stays as it is. */
export function damage(dice: Dice, bytes: Buffer, other: () => Buffer): Buffer {
  if (bytes.length === 0) return dice.bytes(dice.length(40));
  const at = dice.below(bytes.length);
  switch (dice.below(10)) {
    case 0: {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ (1 << dice.below(8));
      return changed;
    }
    case 1: {
      const changed = Buffer.from(bytes);
      for (let i = at; i < Math.min(bytes.length, at + dice.between(1, 8)); i++) changed[i] = dice.below(256);
      return changed;
    }
    case 2:
      return bytes.subarray(0, at);
    case 3:
      return splice(bytes, at, 1 + dice.length(bytes.length - at - 1), Buffer.alloc(0));
    case 4:
      return splice(bytes, at, 0, dice.bytes(dice.between(1, 9)));
    case 5: {
      const second = other();
      return Buffer.concat([bytes.subarray(0, at), second.subarray(dice.below(second.length + 1))]);
    }
    case 6:
      return splice(bytes, at, varintLength(bytes, at), boundaryVarint(dice));
    case 7:
      return fixedWidth(dice, bytes);
    case 8:
      return repeat(dice, bytes);
    default:
      return Buffer.concat([bytes, dice.once(2) ? dice.bytes(dice.between(1, 9)) : other()]);
  }
}

export interface MutateOptions {
  /** Damage that knows the format; takes the place of {@link damage} half of the time. */
  readonly structured?: (dice: Dice, bytes: Buffer) => Buffer;
  /** Makes checksums right again, so that the damage is seen by what is behind them. */
  readonly reseal?: (bytes: Buffer) => Buffer;
}

/**
 * The input of a case: one in eight is valid, one in sixteen is noise, the others are a valid encoding with one to
 * four kinds of damage, three in four of them with their checksums made right again.
 */
export function input(dice: Dice, valid: (dice: Dice) => Buffer, options: MutateOptions = {}): Input {
  const kind = dice.below(16);
  if (kind === 0) return { bytes: dice.bytes(dice.below(RANDOM_BYTES_MAX)), valid: false };
  const original = valid(dice);
  if (kind < 3) return { bytes: original, valid: true };
  let bytes = original;
  for (let times = dice.pick([1, 1, 1, 2, 3, 4]); times > 0; times--) {
    const { structured } = options;
    bytes =
      structured !== undefined && dice.once(2)
        ? structured(dice, bytes)
        : damage(dice, bytes, () => valid(dice));
  }
  bytes = bytes.subarray(0, INPUT_BYTES_MAX);
  if (options.reseal !== undefined && !dice.once(4)) bytes = options.reseal(bytes);
  return { bytes, valid: false };
}
