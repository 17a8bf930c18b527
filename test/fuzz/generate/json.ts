/** Damage that knows JSON: values of other types, names that objects inherit, numbers beyond 2^53, deep nesting. */
import type { Dice } from "./dice.ts";

const NAMES: readonly string[] = [
  "__proto__",
  "constructor",
  "toString",
  "hasOwnProperty",
  "length",
  "kind",
  "key",
  "value",
  "keyBase64",
  "",
];

/** Texts for JSON as such: what `JSON.stringify` would not write is here too. */
const LITERALS: readonly string[] = [
  "null",
  "true",
  "0",
  "-0",
  "-1",
  "0.5",
  "1e400",
  "9007199254740992",
  "18446744073709551616",
  '""',
  '"\\ud800"',
  '"constructor"',
  '"__proto__"',
  "[]",
  "{}",
  "[[[[[[[[]]]]]]]]",
  '{"__proto__":{"kind":"put"}}',
];

/** Goes out as it is. */
class Raw {
  readonly json: string;

  constructor(json: string) {
    this.json = json;
  }
}

function literal(dice: Dice): Raw {
  if (!dice.once(40)) return new Raw(dice.pick(LITERALS));
  const depth = dice.pick([100, 2_000, 20_000]);
  return new Raw(dice.once(2) ? "[".repeat(depth) + "]".repeat(depth) : "[".repeat(depth));
}

function damageValue(dice: Dice, value: unknown): unknown {
  if (Array.isArray(value) && value.length > 0 && !dice.once(4)) {
    const items = [...(value as unknown[])];
    const at = dice.below(items.length);
    if (dice.once(4)) items.splice(at, 0, ...new Array<unknown>(dice.pick([1, 2, 300])).fill(items[at]));
    else items[at] = damageValue(dice, items[at]);
    return items;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value) || dice.once(6))
    return literal(dice);
  const entries: [string, unknown][] = Object.entries(value);
  if (entries.length === 0 || dice.once(6)) entries.push([dice.pick(NAMES), literal(dice)]);
  else {
    const at = dice.below(entries.length);
    const [name, inner]: readonly [string, unknown] = entries[at] ?? ["", null];
    if (dice.once(5)) entries.splice(at, 1);
    else if (dice.once(5)) entries[at] = [dice.pick(NAMES), inner];
    else entries[at] = [name, damageValue(dice, inner)];
  }
  return new Map(entries);
}

/** Maps are objects that may have any name; raw texts go out as they are. */
function write(value: unknown): string {
  if (value instanceof Raw) return value.json;
  if (value instanceof Map) {
    return `{${[...(value as Map<string, unknown>)].map(([name, inner]) => `${JSON.stringify(name)}:${write(inner)}`).join(",")}}`;
  }
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  if (typeof value === "object" && value !== null) return write(new Map(Object.entries(value)));
  return JSON.stringify(value);
}

/** Deeper texts are left to the decoders: walking them here would depend on the stack of the thread. */
const DEPTH_MAX = 100;

export function depthOf(bytes: Buffer): number {
  let depth = 0;
  let deepest = 0;
  for (const byte of bytes) {
    if (byte === 0x5b || byte === 0x7b) deepest = Math.max(deepest, ++depth);
    else if (byte === 0x5d || byte === 0x7d) depth--;
  }
  return deepest;
}

/** One kind of damage to a JSON text; what is no JSON, or too deep, becomes another one. */
export function damageJson(dice: Dice, bytes: Buffer): Buffer {
  let value: unknown;
  if (depthOf(bytes) > DEPTH_MAX) return Buffer.from(literal(dice).json);
  try {
    value = JSON.parse(bytes.toString("utf8"));
  } catch {
    return Buffer.from(literal(dice).json);
  }
  return Buffer.from(write(damageValue(dice, value)));
}
