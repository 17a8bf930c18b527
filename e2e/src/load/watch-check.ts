import type { Stored, StoreBatch, StoreEvent } from "./store.ts";
import type { Violations } from "./violations.ts";

/** A write of whose effect we are sure. */
export interface Write {
  readonly key: string;
  readonly value: number;
  readonly revision: number;
  readonly createRevision: number;
  readonly version: number;
}

interface Seen {
  readonly value: number;
  readonly revision: number;
  readonly version: number;
}

interface WatchedKey {
  /** The last event. */
  seen: Seen | undefined;
  /** The last few, `seen` among them: an acknowledgement may come after the event of a later write. */
  recent: readonly Seen[];
  /** The largest value that anybody tried to write. */
  attempted: number;
  /** Values that can never come: their write was refused, or is overtaken for good. */
  readonly impossible: Set<number>;
}

const IMPOSSIBLE_MAX = 64;
const RECENT_MAX = 16;
/** Acknowledged writes that the watch has not shown yet: more than an hour's at the usual rate. */
const AWAITED_MAX = 200_000;

/**
 * Holds a watch's events against what is known of the writes: every one exactly once, in order, nothing else. Versions
 * of a key count up by one, so an event that is left out is found also when nobody knows how its write ended.
 */
export class WatchCheck {
  readonly #violations: Violations;
  readonly #keys = new Map<string, WatchedKey>();
  /** Acknowledged, and not shown yet; by revision, for each write has one of its own. */
  readonly #awaited = new Map<number, Write>();
  #revision = 0;
  #events = 0;

  constructor(violations: Violations) {
    this.#violations = violations;
  }

  /** All up to and including this revision was shown. */
  get revision(): number {
    return this.#revision;
  }

  get events(): number {
    return this.#events;
  }

  /** Acknowledged writes that the watch has not shown yet. */
  get awaited(): number {
    return this.#awaited.size;
  }

  /** What is there at `revision`; all later changes have to come. Also after the cell forgot the watch's place. */
  begin(revision: number, stored: readonly Stored[]): void {
    this.#revision = revision;
    for (const { key, value, revision: modRevision, version } of stored)
      show(this.#key(key), { value, revision: modRevision, version });
    for (const awaited of this.#awaited.keys()) if (awaited <= revision) this.#awaited.delete(awaited);
  }

  attempted(key: string, value: number): void {
    const watched = this.#key(key);
    watched.attempted = Math.max(watched.attempted, value);
  }

  /** To be told of each write once. */
  acknowledged(write: Write): void {
    if (write.revision > this.#revision) {
      this.#await(write);
      return;
    }
    const { recent } = this.#key(write.key);
    if (recent.some(({ revision, value }) => revision === write.revision && value === write.value)) return;
    this.#violations.add(
      "watch-gap",
      `${nameOf(write)} was acknowledged, and the watch passed revision ${this.#revision} without it`,
    );
  }

  /** This value was not written and never will be. */
  impossible(key: string, value: number): void {
    const watched = this.#key(key);
    if (watched.recent.some((seen) => seen.value === value))
      this.#violations.add("phantom-write", `the watch showed ${key} = ${value}, whose write was refused`);
    watched.impossible.add(value);
    const [oldest] = watched.impossible;
    if (watched.impossible.size > IMPOSSIBLE_MAX && oldest !== undefined) watched.impossible.delete(oldest);
  }

  batch(batch: StoreBatch): void {
    let last = this.#revision;
    for (const event of batch.events) {
      this.#event(event, batch, last);
      last = Math.max(last, event.revision);
    }
    if (batch.revision > this.#revision) this.#revision = batch.revision;
    for (const [revision, write] of this.#awaited) {
      if (revision > this.#revision) continue;
      this.#awaited.delete(revision);
      this.#violations.add(
        "watch-gap",
        `the watch went to revision ${this.#revision} without ${nameOf(write)}, which was acknowledged`,
      );
    }
  }

  #event(event: StoreEvent, batch: StoreBatch, last: number): void {
    this.#events += 1;
    const { key, value, revision, version } = event;
    const watched = this.#key(key);
    const { seen } = watched;
    const name = `${event.kind} of ${key} = ${value} at revision ${revision}`;
    // What was shown again says nothing about the versions after it.
    if (seen !== undefined && revision <= seen.revision) {
      this.#violations.add("watch-duplicate", `${name} came after that of revision ${seen.revision}`);
      return;
    }
    if (revision <= this.#revision || revision < last || revision > batch.revision)
      this.#violations.add(
        "watch-order",
        `${name} came after revision ${last}, in a batch up to ${batch.revision} that follows ${this.#revision}`,
      );
    if (event.kind === "delete") this.#violations.add("phantom-write", `${name}: nobody deletes keys`);
    else this.#put(event, watched);
    show(watched, { value, revision, version });
  }

  #put({ key, value, revision, version }: StoreEvent, watched: WatchedKey): void {
    const name = `${key} = ${value} at revision ${revision}, version ${version}`;
    const { seen } = watched;
    const expected = (seen?.version ?? 0) + 1;
    if (version !== expected)
      this.#violations.add("watch-gap", `the watch showed ${name}, where version ${expected} was due`);
    if (value > watched.attempted)
      this.#violations.add("phantom-write", `the watch showed ${name}, which nobody wrote`);
    else if (watched.impossible.has(value))
      this.#violations.add("phantom-write", `the watch showed ${name}, whose write was refused`);
    else if (seen !== undefined && value <= seen.value)
      this.#violations.add("phantom-write", `the watch showed ${name}, after the later value ${seen.value}`);
    const write = this.#awaited.get(revision);
    if (write === undefined) return;
    this.#awaited.delete(revision);
    if (write.key !== key || write.value !== value || write.version !== version)
      this.#violations.add("watch-gap", `the watch showed ${name}, and acknowledged was ${nameOf(write)}`);
  }

  #await(write: Write): void {
    const other = this.#awaited.get(write.revision);
    if (other !== undefined)
      this.#violations.add("revision-order", `${nameOf(other)} and ${nameOf(write)} share a revision`);
    if (this.#awaited.size >= AWAITED_MAX) {
      this.#violations.add("watch-gap", `the watch is more than ${AWAITED_MAX} writes behind`);
      this.#awaited.clear();
    }
    this.#awaited.set(write.revision, write);
  }

  #key(key: string): WatchedKey {
    let watched = this.#keys.get(key);
    if (watched === undefined) {
      watched = { seen: undefined, recent: [], attempted: 0, impossible: new Set() };
      this.#keys.set(key, watched);
    }
    return watched;
  }
}

function show(watched: WatchedKey, seen: Seen): void {
  watched.seen = seen;
  watched.recent = [...watched.recent.slice(1 - RECENT_MAX), seen];
}

function nameOf({ key, value, revision, version }: Write): string {
  return `${key} = ${value} at revision ${revision}, version ${version}`;
}
