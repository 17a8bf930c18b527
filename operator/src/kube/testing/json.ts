import { isDeepStrictEqual } from "node:util";

export type Json = Record<string, unknown>;

export function isMap(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function omit(value: object, ...keys: readonly string[]): Json {
  return Object.fromEntries(Object.entries(value).filter(([key]) => !keys.includes(key)));
}

/** RFC 7386. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isMap(patch)) return patch;
  const merged = new Map(isMap(target) ? Object.entries(target) : []);
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) merged.delete(key);
    else merged.set(key, mergePatch(merged.get(key), value));
  }
  return Object.fromEntries(merged);
}

/** Values of the two, `over` first; lists are one value. */
export function deepMerge(under: unknown, over: unknown): unknown {
  if (!isMap(under) || !isMap(over)) return over;
  const merged: Json = { ...under };
  for (const [key, value] of Object.entries(over)) merged[key] = deepMerge(merged[key], value);
  return merged;
}

/** Paths of everything that is not a map with something in it, as JSON text. */
export function leaves(value: unknown, path: readonly string[] = []): Map<string, unknown> {
  const found = new Map<string, unknown>();
  if (!isMap(value) || Object.keys(value).length === 0) {
    if (path.length > 0) found.set(JSON.stringify(path), value);
    return found;
  }
  for (const [key, inner] of Object.entries(value)) {
    for (const [leaf, content] of leaves(inner, [...path, key])) found.set(leaf, content);
  }
  return found;
}

export function valueAt(value: unknown, leaf: string): unknown {
  let found = value;
  for (const step of JSON.parse(leaf) as string[]) found = isMap(found) ? found[step] : undefined;
  return found;
}

/** Without that leaf, and without maps that are empty then. */
export function withoutLeaf(value: unknown, leaf: string): unknown {
  return without(value, JSON.parse(leaf) as string[]);
}

function without(value: unknown, [step, ...rest]: string[]): unknown {
  if (!isMap(value) || step === undefined || !(step in value)) return value;
  const { [step]: inner, ...others } = value;
  if (rest.length === 0) return others;
  const left = without(inner, rest);
  return isMap(left) && Object.keys(left).length === 0 ? others : { ...others, [step]: left };
}

export const sameJson: (left: unknown, right: unknown) => boolean = isDeepStrictEqual;
