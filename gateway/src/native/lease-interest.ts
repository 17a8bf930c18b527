import type { LeaseEnd, LeaseId } from "../coordinator/index.ts";

/** A stream that wants to hear of the end of the leases it granted or renewed. */
export interface LeaseListener {
  readonly closed: boolean;
  leaseEnded(end: LeaseEnd): void;
}

/** Streams that are told about one lease, when there is more than one. */
const LISTENERS_PER_LEASE_MAX = 8;

/**
 * Which streams are told when a lease ends. A lease is known here from its grant or an acknowledged renewal until
 * it ends; a closed stream is dropped when its lease is renewed elsewhere or ends. At the bound, a lease is not
 * added: its client learns of the end with its next renewal (remaining TTL 0).
 */
export class LeaseInterest {
  private readonly namespaces = new Map<string, Map<LeaseId, LeaseListener | LeaseListener[]>>();
  private readonly entriesMax: number;
  private entries = 0;
  private closedSinceSweep = false;

  constructor(entriesMax: number) {
    this.entriesMax = entriesMax;
  }

  get size(): number {
    return this.entries;
  }

  add(namespace: string, leaseId: LeaseId, listener: LeaseListener): void {
    let leases = this.namespaces.get(namespace);
    if (leases === undefined) {
      leases = new Map();
      this.namespaces.set(namespace, leases);
    }
    const known = leases.get(leaseId);
    if (known === listener) return;
    if (known === undefined) {
      if (this.entries >= this.entriesMax && !this.sweep()) return;
      this.entries += 1;
      // The sweep may have dropped the namespace's (empty) map.
      this.namespaces.set(namespace, leases);
      leases.set(leaseId, listener);
      return;
    }
    this.addAnother(leases, leaseId, listener);
  }

  /** A stream closed: its entries may go when room is needed. */
  listenerClosed(): void {
    this.closedSinceSweep = true;
  }

  ended(end: LeaseEnd): void {
    const leases = this.namespaces.get(end.namespace);
    const known = leases?.get(end.leaseId);
    if (leases === undefined || known === undefined) return;
    this.drop(end.namespace, leases, end.leaseId);
    if (Array.isArray(known)) {
      for (const listener of known) if (!listener.closed) listener.leaseEnded(end);
    } else if (!known.closed) {
      known.leaseEnded(end);
    }
  }

  private addAnother(
    leases: Map<LeaseId, LeaseListener | LeaseListener[]>,
    leaseId: LeaseId,
    listener: LeaseListener,
  ): void {
    const known = leases.get(leaseId);
    const others = Array.isArray(known) ? known : known === undefined ? [] : [known];
    if (others.includes(listener)) return;
    const live = others.filter((other) => !other.closed);
    if (live.length === 0) leases.set(leaseId, listener);
    else leases.set(leaseId, [...live.slice(-(LISTENERS_PER_LEASE_MAX - 1)), listener]);
  }

  private drop(
    namespace: string,
    leases: Map<LeaseId, LeaseListener | LeaseListener[]>,
    leaseId: LeaseId,
  ): void {
    leases.delete(leaseId);
    this.entries -= 1;
    if (leases.size === 0) this.namespaces.delete(namespace);
  }

  /** Removes leases whose streams all closed. @returns whether there is room now. */
  private sweep(): boolean {
    if (!this.closedSinceSweep) return false;
    this.closedSinceSweep = false;
    for (const [namespace, leases] of this.namespaces) {
      for (const [leaseId, known] of leases) {
        const live = Array.isArray(known) ? known.some((listener) => !listener.closed) : !known.closed;
        if (!live) this.drop(namespace, leases, leaseId);
      }
    }
    return this.entries < this.entriesMax;
  }
}
