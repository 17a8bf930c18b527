/**
 * Everything that ever happened to the keys of one namespace, in plain maps that no compaction touches. What the machine
 * says about a change (create revision, version, the state before it) is computed here a second time, from nothing but
 * the changes themselves: the machine that feeds it is checked by it.
 */
import type { MachineEvent, RevisionEvents } from "../../../cell/src/machine/types.ts";
import type { TimeUs, TrueEvent, TrueRevision, TrueState } from "../contract.ts";

const NO_LEASE = "0";

interface KeyPoint {
  readonly revision: number;
  readonly state: TrueState | undefined;
}

/** What contradicts what happened before; a fault of the machine, or of the checker. */
export type Complaint = string | undefined;

export class Timeline {
  readonly #revisions = new Map<number, TrueRevision>();
  readonly #keys = new Map<string, KeyPoint[]>();
  /** Every key ever written, ascending. Latin-1 text sorts like its bytes. */
  readonly #sorted: string[] = [];
  readonly #attached = new Map<string, Set<string>>();
  #newest: number;
  #complaint: Complaint;

  /** @param revision where it begins: nothing before it is known */
  constructor(revision: number) {
    this.#newest = revision;
  }

  /** The newest revision with a change. */
  get revision(): number {
    return this.#newest;
  }

  at(revision: number): TrueRevision | undefined {
    return this.#revisions.get(revision);
  }

  stateAt(key: string, revision: number): TrueState | undefined {
    const points = this.#keys.get(key);
    return points === undefined ? undefined : pointAt(points, revision)?.state;
  }

  rangeAt(prefix: string, revision: number): readonly TrueState[] {
    const states: TrueState[] = [];
    for (let at = this.#place(prefix); at < this.#sorted.length; at += 1) {
      const key = this.#sorted[at] as string;
      if (!key.startsWith(prefix)) break;
      const state = this.stateAt(key, revision);
      if (state !== undefined) states.push(state);
    }
    return states;
  }

  /** Live keys that hang on a lease now. */
  attachedTo(leaseId: string): readonly string[] {
    return [...(this.#attached.get(leaseId) ?? [])];
  }

  /** @returns what was wrong with the changes since the last call. */
  takeComplaint(): Complaint {
    const complaint = this.#complaint;
    this.#complaint = undefined;
    return complaint;
  }

  /** Adds one revision. */
  add(changes: RevisionEvents, atUs: TimeUs): TrueRevision {
    const { revision } = changes;
    if (revision <= this.#newest) {
      this.#complain(`revision ${String(revision)} follows ${String(this.#newest)}`);
    }
    if (changes.events.length === 0) this.#complain(`revision ${String(revision)} changes nothing`);
    const events: TrueEvent[] = [];
    for (const event of changes.events) events.push(this.#change(revision, event));
    const added: TrueRevision = { revision, events, atUs };
    this.#newest = revision;
    this.#revisions.set(revision, added);
    return added;
  }

  #change(revision: number, event: MachineEvent): TrueEvent {
    const key = latin1(event.kv.key);
    const points = this.#pointsOf(key);
    const before = points.at(-1);
    const previous = before?.state;
    if (event.previousRevision !== (previous?.modRevision ?? 0)) {
      this.#complain(
        `${show(key)} at ${String(revision)}: its state before is said to be of ${String(event.previousRevision)}, it is of ${String(previous?.modRevision ?? 0)}`,
      );
    }
    if (before?.revision === revision) this.#complain(`${show(key)} changes twice at ${String(revision)}`);
    const state = event.kind === "put" ? this.#put(revision, key, event, previous) : undefined;
    if (state === undefined && previous === undefined) {
      this.#complain(`${show(key)} is deleted at ${String(revision)} and was not there`);
    }
    points.push({ revision, state });
    if (previous !== undefined) this.#attached.get(previous.leaseId)?.delete(key);
    if (state !== undefined && state.leaseId !== NO_LEASE) this.#attach(state.leaseId, key);
    return { kind: event.kind, key, state, previous, cause: event.cause };
  }

  #put(revision: number, key: string, event: MachineEvent, previous: TrueState | undefined): TrueState {
    const { kv } = event;
    const expected = {
      createRevision: previous?.createRevision ?? revision,
      version: (previous?.version ?? 0) + 1,
    };
    if (
      kv.createRevision !== expected.createRevision ||
      kv.version !== expected.version ||
      kv.modRevision !== revision
    ) {
      this.#complain(
        `${show(key)} at ${String(revision)}: created ${String(kv.createRevision)} version ${String(kv.version)} modified ${String(kv.modRevision)}, expected created ${String(expected.createRevision)} version ${String(expected.version)}`,
      );
    }
    return {
      key,
      value: latin1(kv.value),
      createRevision: kv.createRevision,
      modRevision: kv.modRevision,
      version: kv.version,
      leaseId: kv.leaseId,
    };
  }

  #attach(leaseId: string, key: string): void {
    let keys = this.#attached.get(leaseId);
    if (keys === undefined) {
      keys = new Set();
      this.#attached.set(leaseId, keys);
    }
    keys.add(key);
  }

  #pointsOf(key: string): KeyPoint[] {
    let points = this.#keys.get(key);
    if (points === undefined) {
      points = [];
      this.#keys.set(key, points);
      this.#sorted.splice(this.#place(key), 0, key);
    }
    return points;
  }

  /** Where `key` is, or would be. */
  #place(key: string): number {
    let low = 0;
    let high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#sorted[middle] as string) < key) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #complain(text: string): void {
    this.#complaint ??= text;
  }
}

function pointAt(points: readonly KeyPoint[], revision: number): KeyPoint | undefined {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((points[middle] as KeyPoint).revision <= revision) low = middle + 1;
    else high = middle;
  }
  return points[low - 1];
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

function show(key: string): string {
  return JSON.stringify(key);
}
