/** Damage that knows protobuf: fields repeated, dropped, moved, given other wire types, nested into themselves. */
import { boundaryVarint, INPUT_BYTES_MAX, varint } from "./mutate.ts";
import type { Dice } from "./dice.ts";

interface Field {
  readonly tag: number;
  /** What follows the tag, a length included. */
  readonly content: Buffer;
  /** Of a length-delimited field. */
  readonly payload: Buffer | undefined;
}

function readVarint(bytes: Buffer, at: number): { readonly value: number; readonly end: number } | undefined {
  let value = 0;
  let scale = 1;
  for (let i = at; i < bytes.length && i < at + 10; i++) {
    const byte = bytes[i] ?? 0;
    value += (byte & 0x7f) * scale;
    if (byte < 0x80) return { value, end: i + 1 };
    scale *= 128;
  }
  return undefined;
}

function readField(bytes: Buffer, at: number): { readonly field: Field; readonly end: number } | undefined {
  const tag = readVarint(bytes, at);
  if (tag === undefined || tag.value > 0xffff || tag.value < 8) return undefined;
  const { end: start } = tag;
  const wire = tag.value & 7;
  if (wire === 0 || wire === 2) {
    const number = readVarint(bytes, start);
    if (number === undefined) return undefined;
    const end = number.end + (wire === 2 ? number.value : 0);
    if (end > bytes.length) return undefined;
    const payload = wire === 2 ? bytes.subarray(number.end, end) : undefined;
    return { field: { tag: tag.value, content: bytes.subarray(start, end), payload }, end };
  }
  const width = wire === 1 ? 8 : wire === 5 ? 4 : -1;
  if (width < 0 || start + width > bytes.length) return undefined;
  const content = bytes.subarray(start, start + width);
  return { field: { tag: tag.value, content, payload: undefined }, end: start + width };
}

/** undefined: this is no message. */
function readFields(bytes: Buffer): Field[] | undefined {
  const fields: Field[] = [];
  for (let at = 0; at < bytes.length;) {
    const read = readField(bytes, at);
    if (read === undefined) return undefined;
    fields.push(read.field);
    at = read.end;
  }
  return fields;
}

function writeField({ tag, content }: Field): Buffer {
  return Buffer.concat([varint(BigInt(tag)), content]);
}

function delimited(tag: number, payload: Buffer): Field {
  return { tag, content: Buffer.concat([varint(BigInt(payload.length)), payload]), payload };
}

function unknownField(dice: Dice): Field {
  const number = dice.pick([1, 2, 15, 16, 99, 2047, 2 ** 20, 2 ** 28]) * 8;
  switch (dice.below(5)) {
    case 0:
      return { tag: number, content: boundaryVarint(dice), payload: undefined };
    case 1:
      return { tag: number + 1, content: dice.bytes(8), payload: undefined };
    case 2:
      return { tag: number + 5, content: dice.bytes(4), payload: undefined };
    case 3:
      // A group, opened only: the oldest way to make a decoder recurse.
      return {
        tag: number + 3,
        content: Buffer.alloc(dice.pick([0, 1, 1, 1, 300, 20_000]), 0x0b),
        payload: undefined,
      };
    default:
      return delimited(number + 2, dice.bytes(dice.length(60)));
  }
}

function nested(dice: Dice, field: Field): Field {
  let inner = field;
  for (let depth = dice.pick([1, 1, 3, 3, 20, 120]); depth > 0; depth--)
    inner = delimited(field.tag, writeField(inner));
  return inner;
}

function changed(dice: Dice, field: Field): Field {
  const { tag, payload } = field;
  switch (dice.below(5)) {
    case 0:
      return { ...field, tag: (tag & ~7) | dice.below(8) };
    case 1:
      return { ...field, tag: Math.max(8, tag + dice.pick([-8, 8])) };
    case 2:
      return payload === undefined
        ? { ...field, content: boundaryVarint(dice) }
        : { ...field, content: Buffer.concat([boundaryVarint(dice), payload]) };
    case 3:
      return nested(dice, field);
    default:
      return payload === undefined ? field : delimited(tag, damageMessage(dice, payload));
  }
}

/** One kind of damage, at any depth. Bytes that are no message come back with a field appended. */
export function damageMessage(dice: Dice, bytes: Buffer): Buffer {
  const fields = readFields(bytes);
  if (fields === undefined || fields.length === 0)
    return Buffer.concat([bytes, writeField(unknownField(dice))]);
  const at = dice.below(fields.length);
  const field = fields[at];
  if (field === undefined) return bytes;
  switch (dice.below(7)) {
    case 0:
      fields.splice(at, 1);
      break;
    case 1: {
      const room = Math.floor(INPUT_BYTES_MAX / (field.content.length + 2));
      const times = dice.once(40) ? Math.min(dice.between(100, 5_000), room) : dice.between(1, 3);
      fields.splice(at, 0, ...new Array<Field>(times).fill(field));
      break;
    }
    case 2:
      fields.splice(dice.below(fields.length), 0, ...fields.splice(at, 1));
      break;
    case 3:
      fields.splice(at, 0, unknownField(dice));
      break;
    default:
      fields[at] = changed(dice, field);
  }
  return Buffer.concat(fields.map(writeField));
}
