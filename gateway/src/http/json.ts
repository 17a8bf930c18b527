import { isUtf8 } from "node:buffer";
import type { KeyValue, LeaseId, Revision, WatchEvent } from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import { isLeaseId } from "../validation.ts";
import { invalid } from "./problem.ts";

export type Json = Readonly<Record<string, unknown>>;

const LEASE_PREFIX = "lease_";

/** `lease_81`; null when there is no lease. */
export function leaseText(leaseId: LeaseId): string | null {
  return leaseId === NO_LEASE ? null : LEASE_PREFIX + leaseId;
}

/** Reads `lease_81` or `81`. @throws ProblemError */
export function leaseOf(text: string, what: string): LeaseId {
  const digits = text.startsWith(LEASE_PREFIX) ? text.slice(LEASE_PREFIX.length) : text;
  if (!isLeaseId(digits)) throw invalid(`${what} is not a lease id like lease_81`);
  return digits as LeaseId;
}

/** Bytes as `name` when they are UTF-8, else as `nameBase64`. */
export function bytesField(name: "key" | "value", bytes: Uint8Array): Json {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return isUtf8(buffer)
    ? { [name]: buffer.toString("utf8") }
    : { [`${name}Base64`]: buffer.toString("base64") };
}

/** A key with its value and versions. */
export function keyValueJson(kv: KeyValue, withValue: boolean = true): Json {
  return {
    ...bytesField("key", kv.key),
    ...(withValue ? bytesField("value", kv.value) : {}),
    version: kv.version,
    createRevision: kv.createRevision,
    modRevision: kv.modRevision,
    leaseId: leaseText(kv.leaseId),
    fencingToken: kv.createRevision,
  };
}

function eventJson(event: WatchEvent): Json {
  const { kind, kv, cause, previous } = event;
  const before = previous === undefined ? {} : { previous: keyValueJson(previous) };
  if (kind === "put") return { type: "put", cause, ...keyValueJson(kv), ...before };
  return { type: "delete", cause, ...bytesField("key", kv.key), modRevision: kv.modRevision, ...before };
}

/** All events of one revision: the unit of a watch, so that a resume never splits one. */
export interface Change {
  readonly revision: Revision;
  readonly events: readonly Json[];
}

/** Groups events by revision. */
export function changesOf(events: readonly WatchEvent[]): Change[] {
  const changes: { revision: Revision; events: Json[] }[] = [];
  for (const event of events) {
    const revision = event.kv.modRevision;
    const last = changes.at(-1);
    if (last?.revision === revision) last.events.push(eventJson(event));
    else changes.push({ revision, events: [eventJson(event)] });
  }
  return changes;
}

/** A JSON object of a request, read field by field; an unknown field is refused. */
export class Fields {
  private readonly values: Json;
  private readonly what: string;

  /** @throws ProblemError when it is not an object, or has a field that is not `known`. */
  constructor(value: unknown, what: string, known: readonly string[]) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw invalid(`${what} is not a JSON object`);
    }
    this.values = value as Json;
    this.what = what;
    for (const name of Object.keys(this.values)) {
      if (!known.includes(name)) throw invalid(`${what} has an unknown field ${JSON.stringify(name)}`);
    }
  }

  has(name: string): boolean {
    return this.values[name] !== undefined;
  }

  get(name: string): unknown {
    return this.values[name];
  }

  list(name: string): readonly unknown[] {
    const value = this.values[name] ?? [];
    if (!Array.isArray(value)) throw invalid(`${this.what}.${name} is not a list`);
    return value;
  }

  text(name: string): string | undefined {
    const value = this.values[name];
    if (value !== undefined && typeof value !== "string")
      throw invalid(`${this.what}.${name} is not a string`);
    return value;
  }

  flag(name: string): boolean {
    const value = this.values[name] ?? false;
    if (typeof value !== "boolean") throw invalid(`${this.what}.${name} is not true or false`);
    return value;
  }

  number(name: string, least: number): number | undefined {
    const value = this.values[name];
    if (value === undefined) return undefined;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < least) {
      throw invalid(`${this.what}.${name} is not a whole number from ${least} on`);
    }
    return value;
  }

  lease(name: string): LeaseId | undefined {
    const value = this.text(name);
    return value === undefined ? undefined : leaseOf(value, `${this.what}.${name}`);
  }

  /** `name` as UTF-8 text, or `nameBase64`; both are refused. */
  bytes(name: string): Buffer | undefined {
    const text = this.text(name);
    const base64 = this.text(`${name}Base64`);
    if (base64 === undefined) return text === undefined ? undefined : Buffer.from(text, "utf8");
    if (text !== undefined) throw invalid(`${this.what} has both ${name} and ${name}Base64`);
    if (!/^[A-Za-z0-9+/]*={0,2}$/.test(base64) || base64.length % 4 !== 0) {
      throw invalid(`${this.what}.${name}Base64 is not base64 with padding`);
    }
    return Buffer.from(base64, "base64");
  }

  requiredBytes(name: string): Buffer {
    const value = this.bytes(name);
    if (value === undefined) throw invalid(`${this.what} has neither ${name} nor ${name}Base64`);
    return value;
  }
}

/** The JSON of a request body; an absent body is an empty object. @throws ProblemError */
export function parseBody(body: unknown): unknown {
  if (!Buffer.isBuffer(body) || body.length === 0) return {};
  if (!isUtf8(body)) throw invalid("the body is not UTF-8");
  try {
    return JSON.parse(body.toString("utf8")) as unknown;
  } catch {
    throw invalid("the body is not JSON");
  }
}
