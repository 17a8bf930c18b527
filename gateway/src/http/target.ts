import { invalid } from "./problem.ts";

const PERCENT = 0x25;

function hexDigit(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const lower = code | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

/**
 * Percent-decodes to bytes. Nothing is normalised: `//`, `..`, `+` and `%2F` are only bytes.
 * @throws ProblemError when a percent sign is not followed by two hexadecimal digits.
 */
export function percentDecode(text: string): Buffer {
  const bytes = Buffer.from(text, "latin1");
  if (!text.includes("%")) return bytes;
  let length = 0;
  for (let i = 0; i < bytes.length; i += 1) {
    let byte = bytes[i] as number;
    if (byte === PERCENT) {
      const high = hexDigit(bytes[i + 1] ?? 0);
      const low = hexDigit(bytes[i + 2] ?? 0);
      if (high < 0 || low < 0)
        throw invalid(`the percent-encoding at position ${i} is not % and two hex digits`);
      byte = high * 16 + low;
      i += 2;
    }
    bytes[length] = byte;
    length += 1;
  }
  return bytes.subarray(0, length);
}

const QUERY_PARAMETERS_MAX = 32;

/** The parameters after `?`. A name without `=` is a flag. A repeated name is refused. */
export class Query {
  private readonly values = new Map<string, string>();

  /** @throws ProblemError */
  constructor(text: string, known: readonly string[]) {
    const parts = text === "" ? [] : text.split("&", QUERY_PARAMETERS_MAX + 1);
    if (parts.length > QUERY_PARAMETERS_MAX)
      throw invalid(`more than ${QUERY_PARAMETERS_MAX} query parameters`);
    for (const part of parts) {
      if (part === "") continue;
      const equals = part.indexOf("=");
      const name = equals < 0 ? part : part.slice(0, equals);
      if (!known.includes(name)) {
        throw invalid(`the query parameter ${JSON.stringify(name)} is not one of: ${known.join(", ")}`);
      }
      if (this.values.has(name)) throw invalid(`the query parameter ${name} is given twice`);
      this.values.set(name, equals < 0 ? "" : part.slice(equals + 1));
    }
  }

  has(name: string): boolean {
    return this.values.has(name);
  }

  text(name: string): string | undefined {
    const value = this.values.get(name);
    return value === undefined ? undefined : percentDecode(value).toString("utf8");
  }

  bytes(name: string): Buffer | undefined {
    const value = this.values.get(name);
    return value === undefined ? undefined : percentDecode(value);
  }

  /** `?name`, `?name=true`, `?name=1`; `false` and `0` for no. */
  flag(name: string): boolean {
    const value = this.values.get(name);
    if (value === undefined || value === "false" || value === "0") return false;
    if (value === "" || value === "true" || value === "1") return true;
    throw invalid(`the query parameter ${name} is true or false`);
  }

  /** A whole number of at least `least`. */
  number(name: string, least: number): number | undefined {
    const value = this.values.get(name);
    return value === undefined
      ? undefined
      : wholeNumber(value, { what: `the query parameter ${name}`, least });
  }
}

/** @throws ProblemError */
export function wholeNumber(text: string, { what, least }: { what: string; least: number }): number {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(value) || value < least)
    throw invalid(`${what} is not a whole number from ${least} on`);
  return value;
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000 };

/** `30s`, `500ms`, `2m`. @throws ProblemError */
export function duration(text: string, what: string): number {
  const match = /^(\d{1,9})(ms|s|m)$/.exec(text);
  const unit = UNITS[match?.[2] ?? ""];
  if (unit === undefined) throw invalid(`${what} is a whole number with a unit: ms, s or m`);
  return Number(match?.[1]) * unit;
}

export interface Target {
  /** As sent, without the query. */
  readonly path: string;
  readonly query: string;
}

/** Splits the request target; the absolute form that proxies send loses its scheme and host. */
export function splitTarget(url: string): Target {
  const absolute = /^https?:\/\/[^/?]*/i.exec(url);
  const origin = absolute === null ? url : url.slice(absolute[0].length);
  const mark = origin.indexOf("?");
  return mark < 0
    ? { path: origin, query: "" }
    : { path: origin.slice(0, mark), query: origin.slice(mark + 1) };
}

const KV_PATH = "/v1/kv";

/** Whether the target is a key (`/v1/kv/...`) or the root of all keys (`/v1/kv`). */
export function isKeyTarget(path: string): boolean {
  return path === KV_PATH || path.startsWith(`${KV_PATH}/`);
}

/** The key that a path names: what follows `/v1/kv`, its leading slash kept. */
export function keyOf(path: string): Buffer {
  return percentDecode(path.slice(KV_PATH.length));
}
