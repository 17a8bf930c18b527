/** The search for one linearization of one part of a history. See checker.ts for the idea. */
import type { Problem, Time } from "./operation.ts";

/** One end of an operation that must be placed, in a list from which placed operations are taken out. */
interface Entry {
  readonly at: Time;
  readonly slot: number;
  /** Of a call: the matching return; of a return: undefined. */
  readonly returns: Entry | undefined;
  previous: Entry | undefined;
  next: Entry | undefined;
}

/** One point of the search: a state, and the candidates that were not tried yet. */
interface Node<State> {
  readonly state: State;
  readonly stateKey: string;
  readonly rankCursor: number;
  /** Next candidate among those that must be placed. */
  entry: Entry | undefined;
  /** The other candidates that are left; they are tried last. undefined: not asked for yet. */
  optional: number[] | undefined;
  /** What is being tried: a slot, and the states that it may lead to. */
  tried: number;
  states: readonly State[];
  /** The rest cannot do better than what is being tried. */
  closed: boolean;
}

export type SearchResult<State> =
  | { readonly kind: "linearizable"; readonly steps: number; readonly order: readonly number[] }
  | { readonly kind: "budget-exhausted"; readonly steps: number }
  | {
      readonly kind: "violation";
      readonly steps: number;
      /** The longest order that could be placed, the state after it, and what was under way then. */
      readonly prefix: readonly number[];
      readonly state: State;
      readonly stuck: readonly number[];
    };

const BITS_PER_CHAR = 15;

export class Search<State> {
  private readonly problem: Problem<State>;
  private readonly stepsMax: number;
  /** Slots: those that must be placed by invocation, then the others by invocation. */
  private readonly slots: readonly number[];
  private readonly calls: readonly Time[];
  private readonly required: number;
  private readonly head: Entry;
  private readonly entries: readonly Entry[];
  private readonly ranks: readonly (number | undefined)[];
  private readonly ranked: readonly number[];
  /** Of an optional slot: the slot before it with the same effect; -1: none. */
  private readonly twinBefore: Int32Array;
  private readonly done: Uint8Array;
  private readonly seen = new Set<string>();
  private placed = 0;
  private base = 0;
  private rankCursor = 0;
  private steps = 0;
  private best: {
    readonly order: readonly number[];
    readonly state: State;
    readonly stuck: readonly number[];
  };
  private bestPlaced = -1;

  constructor(problem: Problem<State>, invokedAt: (member: number) => Time, stepsMax: number) {
    this.problem = problem;
    this.stepsMax = stepsMax;
    const byCall = problem.members.toSorted((a, b) => invokedAt(a) - invokedAt(b) || a - b);
    const required = byCall.filter((member) => problem.must(member));
    this.slots = [...required, ...byCall.filter((member) => !problem.must(member))];
    this.calls = this.slots.map((member) => invokedAt(member));
    this.required = required.length;
    this.done = new Uint8Array(this.slots.length);
    this.ranks = required.map((member) => problem.rank(member));
    this.ranked = rankedSlots(this.ranks);
    this.twinBefore = twins(problem, this.slots, this.required);
    const list = linked(required.map((member, slot) => [this.calls[slot]!, problem.deadline(member)]));
    this.head = list.head;
    this.entries = list.calls;
    this.best = { order: [], state: problem.initial, stuck: [] };
  }

  run(): SearchResult<State> {
    const path: Node<State>[] = [this.node(this.problem.initial, this.problem.key(this.problem.initial))];
    for (let node = path.at(-1); node !== undefined; node = path.at(-1)) {
      if (this.placed === this.required) {
        return { kind: "linearizable", steps: this.steps, order: this.order(path) };
      }
      const next = this.advance(node);
      if (this.steps > this.stepsMax) return { kind: "budget-exhausted", steps: this.steps };
      if (next !== undefined) {
        path.push(next);
        continue;
      }
      this.remember(path, node);
      path.pop();
      const parent = path.at(-1);
      if (parent !== undefined) this.takeBack(parent);
    }
    const { order: prefix, state, stuck } = this.best;
    return { kind: "violation", steps: this.steps, prefix, state, stuck };
  }

  /** Places the next candidate that leads to a point not seen before. */
  private advance(node: Node<State>): Node<State> | undefined {
    for (;;) {
      const [state, ...others] = node.states;
      if (state === undefined) {
        if (node.closed || !this.choose(node) || this.steps > this.stepsMax) return undefined;
        continue;
      }
      node.states = others;
      const stateKey = this.problem.key(state);
      const optional = node.tried >= this.required;
      // Without an effect it is as good as never placed.
      if (optional && stateKey === node.stateKey) continue;
      this.place(node.tried);
      const point = this.pointKey(stateKey);
      if (this.seen.has(point)) {
        this.takeBack(node);
        continue;
      }
      this.seen.add(point);
      // What changes nothing may as well come first: another order of the rest can only be the same again.
      if (!optional && stateKey === node.stateKey && this.problem.pure(this.slots[node.tried]!)) {
        node.closed = true;
        node.states = [];
      }
      return this.node(state, stateKey);
    }
  }

  /** @returns false: no candidate is left. */
  private choose(node: Node<State>): boolean {
    while (node.entry?.returns !== undefined) {
      const { slot } = node.entry;
      node.entry = node.entry.next;
      if (this.isOutranked(slot)) continue;
      this.try(node, slot);
      return true;
    }
    node.optional ??= this.optionals(node.state);
    const slot = node.optional.shift();
    if (slot === undefined) return false;
    this.try(node, slot);
    return true;
  }

  /**
   * What need not be placed and may come next. First whatever makes room for something that must come and does not fit
   * now: in another order each useless one would be placed on the way to the useful one, and what it spoils may show
   * only much later.
   */
  private optionals(state: State): number[] {
    const horizon = this.horizon();
    const found: number[] = [];
    for (let slot = this.required; slot < this.slots.length && this.calls[slot]! <= horizon; slot += 1) {
      const before = this.twinBefore[slot]!;
      if (this.done[slot] === 0 && (before < 0 || this.done[before] === 1)) found.push(slot);
    }
    const misfits = found.length < 2 ? [] : this.misfits(state);
    if (misfits.length === 0) return found;
    const useful = found.filter((slot) => this.makesRoom(state, slot, misfits));
    return [...useful, ...found.filter((slot) => !useful.includes(slot))];
  }

  /** What must be placed, may come next by its time and its rank, and cannot take effect in `state`. */
  private misfits(state: State): readonly number[] {
    const found: number[] = [];
    for (let entry = this.head.next; entry?.returns !== undefined; entry = entry.next) {
      const { slot } = entry;
      if (this.isOutranked(slot)) continue;
      this.steps += 1;
      if (this.problem.step(state, this.slots[slot]!).length === 0) found.push(slot);
    }
    return found;
  }

  private makesRoom(state: State, optional: number, misfits: readonly number[]): boolean {
    this.steps += 1;
    return this.problem
      .step(state, this.slots[optional]!)
      .some((next) => misfits.some((slot) => this.problem.step(next, this.slots[slot]!).length > 0));
  }

  /** Something with a smaller rank is not placed yet. */
  private isOutranked(slot: number): boolean {
    const rank = this.ranks[slot];
    return rank !== undefined && rank !== this.ranks[this.ranked[this.rankCursor]!];
  }

  private try(node: Node<State>, slot: number): void {
    this.steps += 1;
    node.tried = slot;
    node.states = this.problem.step(node.state, this.slots[slot]!);
  }

  private node(state: State, stateKey: string): Node<State> {
    const { rankCursor } = this;
    const entry = this.head.next;
    return {
      state,
      stateKey,
      rankCursor,
      entry,
      optional: undefined,
      tried: -1,
      states: [],
      closed: false,
    };
  }

  private place(slot: number): void {
    this.done[slot] = 1;
    if (slot >= this.required) return;
    this.placed += 1;
    while (this.base < this.required && this.done[this.base] === 1) this.base += 1;
    while (this.rankCursor < this.ranked.length && this.done[this.ranked[this.rankCursor]!] === 1) {
      this.rankCursor += 1;
    }
    const call = this.entries[slot]!;
    unlink(call);
    unlink(call.returns!);
  }

  private takeBack(node: Node<State>): void {
    const slot = node.tried;
    this.done[slot] = 0;
    if (slot >= this.required) return;
    this.placed -= 1;
    this.base = Math.min(this.base, slot);
    this.rankCursor = node.rankCursor;
    const call = this.entries[slot]!;
    relink(call.returns!);
    relink(call);
  }

  /** What is placed, exactly, and the state: two ways to the same point have the same future. */
  private pointKey(stateKey: string): string {
    let text = `${this.base}:`;
    for (let slot = this.base, left = this.placed - this.base; left > 0; slot += BITS_PER_CHAR) {
      const bits = this.bits(slot, this.required);
      text += String.fromCharCode(bits);
      left -= ones(bits);
    }
    text += ":";
    for (let slot = this.required; slot < this.slots.length; slot += BITS_PER_CHAR) {
      text += String.fromCharCode(this.bits(slot, this.slots.length));
    }
    return `${text}|${stateKey}`;
  }

  private bits(from: number, end: number): number {
    let bits = 0;
    for (let bit = 0; bit < BITS_PER_CHAR && from + bit < end; bit += 1)
      bits |= this.done[from + bit]! << bit;
    return bits;
  }

  /** The first return of what is not placed: nothing invoked after it may come next. */
  private horizon(): Time {
    let entry = this.head.next;
    while (entry?.returns !== undefined) entry = entry.next;
    return entry?.at ?? Infinity;
  }

  private remember(path: readonly Node<State>[], node: Node<State>): void {
    if (this.placed <= this.bestPlaced) return;
    this.bestPlaced = this.placed;
    const stuck: number[] = [];
    for (let entry = this.head.next; entry?.returns !== undefined; entry = entry.next) {
      stuck.push(this.slots[entry.slot]!);
    }
    this.best = { order: this.order(path), state: node.state, stuck };
  }

  private order(path: readonly Node<State>[]): number[] {
    return path.slice(0, -1).map((node) => this.slots[node.tried]!);
  }
}

function rankedSlots(ranks: readonly (number | undefined)[]): number[] {
  const ranked = ranks.flatMap((rank, slot) => (rank === undefined ? [] : [{ rank, slot }]));
  return ranked.sort((a, b) => a.rank - b.rank || a.slot - b.slot).map(({ slot }) => slot);
}

function twins<State>(problem: Problem<State>, slots: readonly number[], from: number): Int32Array {
  const before = new Int32Array(slots.length).fill(-1);
  const latest = new Map<string, number>();
  for (let slot = from; slot < slots.length; slot += 1) {
    const text = problem.alike(slots[slot]!);
    before[slot] = latest.get(text) ?? -1;
    latest.set(text, slot);
  }
  return before;
}

/** Intervals are closed: what is invoked at the time of a return is concurrent with it. */
function linked(spans: readonly (readonly [Time, Time])[]): { head: Entry; calls: Entry[] } {
  const calls: Entry[] = [];
  const all: { readonly entry: Entry; readonly call: boolean }[] = [];
  for (const [slot, [invoked, deadline]] of spans.entries()) {
    const links = { slot, previous: undefined, next: undefined };
    const returns: Entry = { ...links, at: Math.max(invoked, deadline), returns: undefined };
    const call: Entry = { ...links, at: invoked, returns };
    calls.push(call);
    all.push({ entry: call, call: true }, { entry: returns, call: false });
  }
  all.sort(
    (a, b) => a.entry.at - b.entry.at || Number(b.call) - Number(a.call) || a.entry.slot - b.entry.slot,
  );
  const head: Entry = { at: -Infinity, slot: -1, returns: undefined, previous: undefined, next: undefined };
  let last = head;
  for (const { entry } of all) {
    entry.previous = last;
    last.next = entry;
    last = entry;
  }
  return { head, calls };
}

function unlink(entry: Entry): void {
  entry.previous!.next = entry.next;
  if (entry.next !== undefined) entry.next.previous = entry.previous;
}

/** In the reverse order of {@link unlink}: the entry still knows its neighbours. */
function relink(entry: Entry): void {
  entry.previous!.next = entry;
  if (entry.next !== undefined) entry.next.previous = entry;
}

function ones(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}
