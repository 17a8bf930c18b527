import { randomInt } from "node:crypto";
import { LeaseSlots } from "../coordinator/index.ts";
import type { LeaseEnd, LeaseId } from "../coordinator/index.ts";

/** A stream that wants to hear of the end of the leases it granted or renewed. */
export interface LeaseListener {
  readonly closed: boolean;
  leaseEnded(end: LeaseEnd): void;
}

/** Streams that are told about one lease, when there is more than one. */
const LISTENERS_PER_LEASE_MAX = 8;
/** The end of a chain. */
const NOBODY = 0;

/**
 * Listeners by number, so that a million leases can name theirs in typed arrays. A number is given out again when no
 * lease names it any more.
 */
class ListenerNumbers {
  /** Index 0 is nobody. A listener that closed is let go at once. */
  readonly #listeners: (LeaseListener | undefined)[] = [undefined];
  readonly #named: number[] = [0];
  readonly #free: number[] = [];
  readonly #numbers = new Map<LeaseListener, number>();

  /** The number of an open listener; undefined: it has none yet. */
  get(listener: LeaseListener): number | undefined {
    return this.#numbers.get(listener);
  }

  /** Names it once more. */
  name(listener: LeaseListener): number {
    let number = this.#numbers.get(listener);
    if (number === undefined) {
      number = this.#free.pop() ?? this.#listeners.length;
      this.#listeners[number] = listener;
      this.#named[number] = 0;
      this.#numbers.set(listener, number);
    }
    this.#named[number] = (this.#named[number] ?? 0) + 1;
    return number;
  }

  /** @returns undefined when it is closed */
  open(number: number): LeaseListener | undefined {
    const listener = this.#listeners[number];
    return listener === undefined || listener.closed ? undefined : listener;
  }

  /** One lease less names it. */
  drop(number: number): void {
    const left = (this.#named[number] ?? 0) - 1;
    this.#named[number] = left;
    if (left > 0) return;
    const listener = this.#listeners[number];
    if (listener !== undefined) this.#numbers.delete(listener);
    this.#listeners[number] = undefined;
    this.#free.push(number);
  }

  /** It closed: what the leases that still name it find is nobody. */
  letGo(listener: LeaseListener): void {
    const number = this.#numbers.get(listener);
    if (number === undefined) return;
    this.#numbers.delete(listener);
    this.#listeners[number] = undefined;
  }
}

/** Short chains of numbers in typed arrays. */
class Chains {
  #number = new Uint32Array(1024);
  /** The next link; of a link that is free the next free one. */
  #next = new Uint32Array(1024);
  #free = NOBODY;
  #used = 1;

  numberAt(link: number): number {
    return this.#number[link] ?? 0;
  }

  nextOf(link: number): number {
    return this.#next[link] ?? NOBODY;
  }

  /** @returns the new first link, before `next` */
  link(number: number, next: number): number {
    let link = this.#free;
    if (link === NOBODY) {
      link = this.#used;
      this.#used += 1;
      if (link >= this.#number.length) {
        this.#number = doubled(this.#number);
        this.#next = doubled(this.#next);
      }
    } else {
      this.#free = this.nextOf(link);
    }
    this.#number[link] = number;
    this.#next[link] = next;
    return link;
  }

  cut(link: number, next: number): void {
    this.#next[link] = next;
  }

  release(link: number): void {
    this.#next[link] = this.#free;
    this.#free = link;
  }
}

/**
 * Which streams are told when a lease ends. A lease is known here from its grant or an acknowledged renewal until
 * it ends; a closed stream is dropped when its lease is renewed elsewhere or ends. At the bound, a lease is not
 * added: its client learns of the end with its next renewal (remaining TTL 0). About 45 bytes for a lease with one stream.
 */
export class LeaseInterest {
  readonly #entriesMax: number;
  readonly #slots: LeaseSlots;
  /** By slot: the first link of the chain of its listeners, the newest first. */
  #chainOf = new Uint32Array(1024);
  readonly #chains = new Chains();
  readonly #numbers = new ListenerNumbers();
  /** Numbers of the namespaces that have leases here. */
  readonly #scopes = new Map<string, number>();
  readonly #names = new Map<number, string>();
  #nextScope = 1;
  #closedSinceSweep = false;

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
    this.#slots = new LeaseSlots(randomInt(2 ** 32), (capacity) => {
      this.#chainOf = doubled(this.#chainOf, capacity);
    });
  }

  get size(): number {
    return this.#slots.count;
  }

  add(namespace: string, leaseId: LeaseId, listener: LeaseListener): void {
    const scope = this.#scopes.get(namespace);
    const known = scope === undefined ? undefined : this.#slots.slot(scope, leaseId);
    if (known !== undefined) {
      this.#addAnother(known, listener);
      return;
    }
    if (this.#slots.count >= this.#entriesMax && !this.#sweep()) return;
    const slot = this.#slots.add(this.#scope(namespace), leaseId);
    this.#chainOf[slot] = this.#chains.link(this.#numbers.name(listener), NOBODY);
  }

  /** A stream closed: its entries may go when room is needed. */
  listenerClosed(listener: LeaseListener): void {
    this.#closedSinceSweep = true;
    this.#numbers.letGo(listener);
  }

  ended(end: LeaseEnd): void {
    const scope = this.#scopes.get(end.namespace);
    const slot = scope === undefined ? undefined : this.#slots.slot(scope, end.leaseId);
    if (slot === undefined) return;
    for (const listener of this.#take(slot)) listener.leaseEnded(end);
  }

  #scope(namespace: string): number {
    const known = this.#scopes.get(namespace);
    if (known !== undefined) return known;
    const scope = this.#nextScope;
    this.#nextScope += 1;
    this.#scopes.set(namespace, scope);
    this.#names.set(scope, namespace);
    return scope;
  }

  /** The newest first, without those that closed, and not too many. */
  #addAnother(slot: number, listener: LeaseListener): void {
    const first = this.#chainOf[slot] ?? NOBODY;
    const own = this.#numbers.get(listener);
    if (own !== undefined) {
      for (let link = first; link !== NOBODY; link = this.#chains.nextOf(link)) {
        if (this.#chains.numberAt(link) === own) return;
      }
    }
    const added = this.#chains.link(this.#numbers.name(listener), NOBODY);
    let last = added;
    let count = 1;
    for (let link = first; link !== NOBODY;) {
      const next = this.#chains.nextOf(link);
      if (count < LISTENERS_PER_LEASE_MAX && this.#numbers.open(this.#chains.numberAt(link)) !== undefined) {
        this.#chains.cut(last, link);
        last = link;
        count += 1;
      } else {
        this.#release(link);
      }
      link = next;
    }
    this.#chains.cut(last, NOBODY);
    this.#chainOf[slot] = added;
  }

  #release(link: number): void {
    this.#numbers.drop(this.#chains.numberAt(link));
    this.#chains.release(link);
  }

  /** Forgets a lease. @returns its open listeners, the oldest first */
  #take(slot: number): LeaseListener[] {
    const listeners: LeaseListener[] = [];
    for (let link = this.#chainOf[slot] ?? NOBODY; link !== NOBODY;) {
      const next = this.#chains.nextOf(link);
      const listener = this.#numbers.open(this.#chains.numberAt(link));
      if (listener !== undefined) listeners.push(listener);
      this.#release(link);
      link = next;
    }
    const scope = this.#slots.scopeOf(slot);
    this.#slots.remove(slot);
    if (this.#slots.countOf(scope) === 0) {
      this.#scopes.delete(this.#names.get(scope) ?? "");
      this.#names.delete(scope);
    }
    return listeners.reverse();
  }

  /** Removes leases whose streams all closed. @returns whether there is room now. */
  #sweep(): boolean {
    if (!this.#closedSinceSweep) return false;
    this.#closedSinceSweep = false;
    for (let slot = 0; slot < this.#slots.slotsUsed; slot += 1) {
      if (this.#slots.has(slot) && !this.#anyOpen(slot)) this.#take(slot);
    }
    return this.#slots.count < this.#entriesMax;
  }

  #anyOpen(slot: number): boolean {
    for (let link = this.#chainOf[slot] ?? NOBODY; link !== NOBODY; link = this.#chains.nextOf(link)) {
      if (this.#numbers.open(this.#chains.numberAt(link)) !== undefined) return true;
    }
    return false;
  }
}

function doubled(array: Uint32Array, capacity = array.length * 2): Uint32Array<ArrayBuffer> {
  const larger = new Uint32Array(capacity);
  larger.set(array);
  return larger;
}
