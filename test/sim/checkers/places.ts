/** Whose turn it is, by the true history alone: one book for each resource. */
import type { TrueRevision } from "../contract.ts";
import { conflicts, roleOf } from "./resources.ts";
import type { Resource, Role } from "./resources.ts";

/** A key that somebody holds something with, or waits with. */
export interface Place {
  readonly key: string;
  /** Its create revision: the fencing token. */
  readonly token: number;
  readonly leaseId: string;
  readonly role: Role;
}

export interface Ownership {
  readonly token: number;
  readonly leaseId: string;
}

/**
 * The places of one resource. A place owns from the moment on in which no earlier one is left that excludes it: that is
 * the order of asking for queues, and for single keys whoever made the key.
 */
export class PlaceBook {
  readonly resource: Resource;
  readonly #places = new Map<string, Place>();
  /** All owners there ever were, in the true order. */
  readonly #owners: Place[] = [];

  constructor(resource: Resource) {
    this.resource = resource;
  }

  /** @returns the places that have ended; undefined: the revision is about something else. */
  follow({ revision, events }: TrueRevision): readonly Place[] | undefined {
    let ended: Place[] | undefined;
    for (const { key, state } of events) {
      const role = roleOf(this.resource, key);
      if (role === undefined) continue;
      ended ??= [];
      const before = this.#places.get(key);
      if (before !== undefined && state?.createRevision !== before.token) {
        this.#places.delete(key);
        ended.push(before);
      }
      if (state?.createRevision === revision) {
        this.#places.set(key, { key, token: revision, leaseId: state.leaseId, role });
      }
    }
    if (ended === undefined) return undefined;
    for (const place of this.#places.values()) {
      if (this.isTurn(place) && this.ordinal(place) === undefined) this.#owners.push(place);
    }
    return ended;
  }

  /** The place that is there with this key and token. */
  find(key: string, token: number): Place | undefined {
    const place = this.#places.get(key);
    return place?.token === token ? place : undefined;
  }

  get isFree(): boolean {
    return this.#places.size === 0;
  }

  /** The earliest place: where there is one queue, that of the owner. */
  get first(): Place | undefined {
    let first: Place | undefined;
    for (const place of this.#places.values()) if (place.token < (first?.token ?? Infinity)) first = place;
    return first;
  }

  /** The youngest place of a lease: that of its last attempt. */
  newestOf(leaseId: string): Place | undefined {
    let newest: Place | undefined;
    for (const place of this.#places.values()) {
      if (place.leaseId === leaseId && place.token > (newest?.token ?? 0)) newest = place;
    }
    return newest;
  }

  /** It holds, or may take what it waits for. */
  mayGo(place: Place): boolean {
    if (place.role !== "ticket") return this.isTurn(place);
    let taken = 0;
    for (const { role, token } of this.#places.values()) {
      if (role !== "ticket") taken += 1;
      else if (token < place.token) return false;
    }
    return taken < this.resource.permits;
  }

  isTurn(place: Place): boolean {
    if (place.role === "ticket") return false;
    for (const other of this.#places.values()) {
      if (other.token < place.token && conflicts(other.role, place.role)) return false;
    }
    return true;
  }

  /** The owner's place in the true order; undefined: there was never such an owner. */
  ordinal(owner: Ownership): number | undefined {
    const index = this.#owners.findLastIndex(
      ({ token, leaseId }) => token === owner.token && leaseId === owner.leaseId,
    );
    return index < 0 ? undefined : index;
  }
}
