import type { WatchEvent } from "@lockstep/client";
import { crc32 } from "node:zlib";

/** Longer values are told by their length and checksum. */
const VALUE_LENGTH_MAX = 256;

/** One event in plain values. */
export interface PlainEvent {
  readonly kind: "put" | "delete";
  readonly key: string;
  /** Empty for a deletion. */
  readonly value: string;
  readonly cause: string;
}

export interface PlainRevision {
  readonly revision: number;
  readonly events: readonly PlainEvent[];
}

/** Events and their revision as text: what two watches must have seen alike. */
export function toText({ revision, events }: PlainRevision): string {
  const parts = events.map(({ kind, key, value, cause }) => `${kind} ${key} ${value} (${cause})`);
  return `${String(revision)}: ${parts.join("; ")}`;
}

export function toPlain(event: WatchEvent): PlainEvent {
  return {
    kind: event.kind,
    key: event.kv.keyText,
    value: event.kind === "put" ? toPlainValue(event.kv.value) : "",
    cause: event.cause,
  };
}

export function toPlainValue(value: Buffer): string {
  if (value.length <= VALUE_LENGTH_MAX) return value.toString("utf8");
  return `${String(value.length)} bytes, crc32 ${crc32(value).toString(16)}`;
}

/** A key as of a revision. */
export interface KeyState {
  readonly value: string;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
}

/** What happened in the cell, revision by revision, as its watches tell when all is at rest. */
export class CanonicalHistory {
  readonly revisions: readonly PlainRevision[];
  /** The last revision that it covers. */
  readonly upTo: number;
  readonly #byKey = new Map<string, { readonly revision: number; readonly state: KeyState | undefined }[]>();

  constructor(revisions: readonly PlainRevision[], upTo: number) {
    this.revisions = revisions;
    this.upTo = upTo;
    for (const { revision, events } of revisions) {
      for (const { kind, key, value } of events) {
        const states = this.#byKey.get(key) ?? [];
        const before = states.at(-1)?.state;
        const created = { value, createRevision: revision, modRevision: revision, version: 1 };
        const changed = before && { ...before, value, modRevision: revision, version: before.version + 1 };
        states.push({ revision, state: kind === "put" ? (changed ?? created) : undefined });
        this.#byKey.set(key, states);
      }
    }
  }

  /** undefined: there was no such key. */
  stateAt(key: string, revision: number): KeyState | undefined {
    const states = this.#byKey.get(key) ?? [];
    let low = 0;
    let high = states.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((states[middle]?.revision ?? Infinity) <= revision) low = middle + 1;
      else high = middle;
    }
    return states[low - 1]?.state;
  }

  valueAt(key: string, revision: number): string | undefined {
    return this.stateAt(key, revision)?.value;
  }

  /** For whoever investigates: one line for each revision. */
  toJsonLines(): string {
    return this.revisions.map((revision) => `${JSON.stringify(revision)}\n`).join("");
  }

  /** All keys that are there at the end. */
  finalState(): Map<string, string> {
    const state = new Map<string, string>();
    for (const key of this.#byKey.keys()) {
      const value = this.valueAt(key, this.upTo);
      if (value !== undefined) state.set(key, value);
    }
    return state;
  }
}
