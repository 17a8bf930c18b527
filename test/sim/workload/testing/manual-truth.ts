/** A true history that a test writes by hand, or that follows a coordinator in memory. */
import type { LeaseEnd, WatchEvent as CellEvent } from "@lockstep/gateway";
import type { TimeUs, TrueEvent, TrueRevision, TrueState, Truth } from "../../contract.ts";

export type TrueChange = Partial<TrueState> & { readonly key: string; readonly cause?: string };

export class ManualTruth implements Truth {
  revision = 1;
  readonly #revisions = new Map<number, TrueRevision>();
  readonly #states = new Map<
    string,
    { readonly revision: number; readonly state: TrueState | undefined }[]
  >();
  readonly #revisionListeners: ((revision: TrueRevision) => void)[] = [];
  readonly #leaseListeners: ((leaseId: string, cause: string, atUs: TimeUs) => void)[] = [];

  at(revision: number): TrueRevision | undefined {
    return this.#revisions.get(revision);
  }

  stateAt(key: string, revision: number): TrueState | undefined {
    return this.#states.get(key)?.findLast((entry) => entry.revision <= revision)?.state;
  }

  rangeAt(prefix: string, revision: number): readonly TrueState[] {
    return [...this.#states.keys()]
      .filter((key) => key.startsWith(prefix))
      .sort()
      .flatMap((key) => this.stateAt(key, revision) ?? []);
  }

  onRevision(listener: (revision: TrueRevision) => void): void {
    this.#revisionListeners.push(listener);
  }

  onLeaseEnd(listener: (leaseId: string, cause: string, atUs: TimeUs) => void): void {
    this.#leaseListeners.push(listener);
  }

  /** Puts keys in a revision of its own. */
  put(...changes: TrueChange[]): number {
    const revision = this.revision + 1;
    return this.#add(
      changes.map((change) => {
        const previous = this.stateAt(change.key, this.revision);
        const state: TrueState = {
          value: "",
          leaseId: "0",
          createRevision: previous?.createRevision ?? revision,
          modRevision: revision,
          version: (previous?.version ?? 0) + 1,
          ...change,
        };
        return { kind: "put", key: change.key, state, previous, cause: change.cause ?? "client" };
      }),
    );
  }

  delete(keys: readonly string[], cause: string = "client"): number {
    return this.#add(
      keys.map((key) => ({
        kind: "delete",
        key,
        state: undefined,
        previous: this.stateAt(key, this.revision),
        cause,
      })),
    );
  }

  endLease(leaseId: string, cause: string, atUs: TimeUs = 0): void {
    for (const listener of this.#leaseListeners) listener(leaseId, cause, atUs);
  }

  /** What a coordinator tells of one of its revisions. */
  follow(revision: number, events: readonly CellEvent[], atUs: TimeUs): void {
    this.revision = revision - 1;
    const told = events.map((event): TrueEvent => {
      const key = latin1(event.kv.key);
      const previous = this.stateAt(key, this.revision);
      if (event.kind === "delete")
        return { kind: "delete", key, state: undefined, previous, cause: event.cause };
      const { createRevision, modRevision, version, leaseId } = event.kv;
      const value = latin1(event.kv.value);
      const state = { key, value, createRevision, modRevision, version, leaseId };
      return { kind: "put", key, state, previous, cause: event.cause };
    });
    this.#add(told, atUs);
  }

  followLease({ leaseId, cause }: LeaseEnd, atUs: TimeUs): void {
    this.endLease(leaseId, cause, atUs);
  }

  #add(events: readonly TrueEvent[], atUs: TimeUs = 0): number {
    this.revision += 1;
    const { revision } = this;
    const added = { revision, events, atUs };
    this.#revisions.set(revision, added);
    for (const { key, state } of events) {
      const states = this.#states.get(key) ?? [];
      states.push({ revision, state });
      this.#states.set(key, states);
    }
    for (const listener of this.#revisionListeners) listener(added);
    return revision;
  }
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}
