import { Backoff } from "../backoff.ts";
import type { RangeInput } from "../bytes.ts";
import { toWireRange } from "../bytes.ts";
import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import { KeyValue, type Cause, type RangeResult, type WatchBatch } from "../types.ts";
import { deliver, type OnError } from "./callbacks.ts";
import { ChangeFeed } from "./change-feed.ts";
import { follow, isCompacted } from "./follow.ts";
import { after } from "./names.ts";
import { isPassing, pauseUntil, persist } from "./persist.ts";

const DEFAULT_KEYS_MAX = 100_000;
const PAGE_KEYS = 500;

/** How a view is opened. */
export interface TreeViewOptions {
  /** More keys than this end the view with `too-many-keys`. Default 100,000. */
  readonly keysMax?: number;
  /** Gives up waiting for the first state. */
  readonly signal?: AbortSignal;
}

/** What happened to a view. Those of one revision follow each other, and the view shows all of them already. */
export type ViewChange =
  | { readonly kind: "put"; readonly key: string; readonly kv: KeyValue; readonly previous?: KeyValue }
  | {
      readonly kind: "delete";
      readonly key: string;
      readonly revision: number;
      readonly previous: KeyValue;
      readonly cause: Cause;
    }
  /**
   * The view as a whole is new, look at it: history was forgotten in an outage (`compacted`), or this reader was too
   * slow for the changes one by one (`behind`).
   */
  | { readonly kind: "snapshot"; readonly reason: "compacted" | "behind"; readonly revision: number };

/** How a listener follows a view. */
export interface ViewSubscription {
  /** Told what the listener throws, and what ends the view. */
  readonly onError: OnError;
  readonly signal?: AbortSignal;
}

/**
 * A local copy of a range of keys that follows the cell: reading it costs no call. It goes on through outages, with
 * what it knew last (see {@link stale}), and takes a fresh snapshot when the history that it needs was forgotten. Whole
 * revisions only: no state is seen that the cell never had.
 */
export class TreeView implements AsyncDisposable {
  readonly #client: Client;
  readonly #range: RangeInput;
  readonly #keysMax: number;
  readonly #stop = new AbortController();
  readonly #feed = new ChangeFeed<ViewChange>();
  #kvs = new Map<string, KeyValue>();
  #revision = 0;
  #following = false;
  #error: unknown;

  private constructor(client: Client, range: RangeInput, options: TreeViewOptions) {
    this.#client = client;
    this.#range = range;
    this.#keysMax = options.keysMax ?? DEFAULT_KEYS_MAX;
  }

  /** Resolves when the first state is there. */
  static async open(client: Client, range: RangeInput, options: TreeViewOptions = {}): Promise<TreeView> {
    const view = new TreeView(client, range, options);
    const { signal } = options;
    const stop = signal === undefined ? view.#stop.signal : AbortSignal.any([view.#stop.signal, signal]);
    await view.#snapshot(stop);
    void view.#run();
    return view;
  }

  /** The revision that the view shows. */
  get revision(): number {
    return this.#revision;
  }

  get size(): number {
    return this.#kvs.size;
  }

  /**
   * Whether the cell may be further by more than the way of an event: there is no connection, or the view has ended.
   * What it shows is what was known last; an outage never empties it.
   */
  get stale(): boolean {
    return !this.#following || this.#client.info === undefined;
  }

  /** Why the view has ended by itself; undefined: it has not. */
  get error(): unknown {
    return this.#error;
  }

  /** The key's state in this view; undefined: there is no such key. */
  get(key: string): KeyValue | undefined {
    return this.#kvs.get(key);
  }

  /** Whether this view has the key. */
  has(key: string): boolean {
    return this.#kvs.has(key);
  }

  /** All keys, sorted as the cell sorts them. */
  entries(): readonly KeyValue[] {
    return [...this.#kvs.values()].sort((a, b) => Buffer.compare(a.key, b.key));
  }

  /** Changes from this call on. Ends when the view is closed; with the error, if it ends by itself. */
  changes(options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<ViewChange, void, undefined> {
    const behind = (): ViewChange => ({ kind: "snapshot", reason: "behind", revision: this.#revision });
    return this.#feed.read(behind, options.signal);
  }

  /** {@link changes} with a callback, which delays nobody but itself. Resolves at the end. */
  subscribe(listener: (change: ViewChange) => unknown, options: ViewSubscription): Promise<void> {
    return deliver(this.#client, this.changes(options), listener, options.onError);
  }

  /** Ends the view: it changes no more. */
  close(): void {
    this.#stop.abort();
    this.#following = false;
    this.#feed.end();
  }

  /** {@link close}. */
  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  async #run(): Promise<void> {
    const stop = this.#stop.signal;
    const backoff = new Backoff(this.#client.runtime);
    while (!stop.aborted) {
      try {
        this.#following = true;
        for await (const batch of follow(this.#client, this.#range, { revision: this.#revision, stop })) {
          backoff.reset();
          this.#apply(batch);
        }
      } catch (error) {
        this.#following = false;
        if (!isCompacted(error)) {
          if (!isPassing(error)) {
            this.#fail(error);
            return;
          }
          await pauseUntil(this.#client, stop, backoff.nextMs(error.retryAfterMs));
          continue;
        }
        if (!(await this.#again())) return;
      }
    }
  }

  /** A fresh snapshot after forgotten history. @returns false when the view is over. */
  async #again(): Promise<boolean> {
    try {
      await this.#snapshot(this.#stop.signal);
      this.#feed.push({ kind: "snapshot", reason: "compacted", revision: this.#revision });
      return true;
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#fail(error);
      return false;
    }
  }

  #fail(error: unknown): void {
    if (this.#stop.signal.aborted) return;
    this.#error = error;
    this.#stop.abort();
    this.#following = false;
    this.#feed.end(error);
  }

  /** All pages at the revision of the first; from the beginning if that is forgotten meanwhile. */
  async #snapshot(stop: AbortSignal): Promise<void> {
    for (;;) {
      try {
        const kvs = new Map<string, KeyValue>();
        const revision = await this.#readPages(stop, kvs);
        this.#kvs = kvs;
        this.#revision = revision;
        return;
      } catch (error) {
        if (!isCompacted(error)) throw error;
      }
    }
  }

  async #readPages(stop: AbortSignal, kvs: Map<string, KeyValue>): Promise<number> {
    const { key, rangeEnd } = toWireRange(this.#range);
    let limit = PAGE_KEYS;
    let from: Buffer = key;
    let revision: number | undefined;
    for (;;) {
      const range = rangeEnd === undefined ? from : rangeEnd.length === 0 ? { from } : { from, to: rangeEnd };
      let page: RangeResult;
      try {
        page = await persist(this.#client, stop, (options) =>
          this.#client.range(range, { ...options, limit, ...(revision === undefined ? {} : { revision }) }),
        );
      } catch (error) {
        if (!isTooLarge(error) || limit === 1) throw error;
        limit = Math.ceil(limit / 4);
        continue;
      }
      revision ??= page.revision;
      for (const kv of page.kvs) kvs.set(kv.keyText, copyOf(kv));
      this.#checkSize(kvs.size);
      const last = page.kvs.at(-1);
      if (!page.more || last === undefined || rangeEnd === undefined) return revision;
      from = Buffer.from(after(last.key.toString("latin1")), "latin1");
    }
  }

  #apply({ events, revision }: WatchBatch): void {
    const changes: ViewChange[] = [];
    for (const { kind, kv, cause } of events) {
      const key = kv.keyText;
      const previous = this.#kvs.get(key);
      if (kind === "put") {
        const copy = copyOf(kv);
        this.#kvs.set(key, copy);
        changes.push({ kind, key, kv: copy, ...(previous === undefined ? {} : { previous }) });
      } else if (previous !== undefined) {
        this.#kvs.delete(key);
        changes.push({ kind, key, revision: kv.modRevision, previous, cause });
      }
    }
    this.#revision = revision;
    this.#checkSize(this.#kvs.size);
    for (const change of changes) this.#feed.push(change);
  }

  #checkSize(keys: number): void {
    if (keys <= this.#keysMax) return;
    throw new LockstepError(
      "too-many-keys",
      "not-applied",
      `the view has more than ${this.#keysMax} keys: view a smaller range, or raise keysMax`,
    );
  }
}

/** What was received is a part of a whole frame, which would be kept with it. */
function copyOf(kv: KeyValue): KeyValue {
  const { createRevision, modRevision, version, leaseId } = kv;
  const key = Buffer.from(kv.key);
  return new KeyValue({ key, value: Buffer.from(kv.value), createRevision, modRevision, version, leaseId });
}

function isTooLarge(error: unknown): boolean {
  return error instanceof LockstepError && error.code === "request-too-large";
}
