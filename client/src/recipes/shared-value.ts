import type { Client } from "../client.ts";
import type { CallOptions, KeyValue } from "../types.ts";
import { deliver, type OnError } from "./callbacks.ts";
import { ChangeFeed } from "./change-feed.ts";
import { TreeView, type ViewSubscription } from "./tree-view.ts";
import { update } from "./update.ts";

/** How a shared value is read. */
export interface SharedValueOptions<T> {
  /** What holds as long as nobody has set the key. */
  readonly initial: T;
  /** Makes a `T` of the JSON that is there, and throws when it is none. */
  readonly parse: (json: unknown) => T;
  /** Told when what is there cannot be parsed: the last good value stays. */
  readonly onError: OnError;
  /** Gives up waiting for the first state. */
  readonly signal?: AbortSignal;
}

/**
 * A value of type `T` under one key, as JSON: configuration that all processes see change. Reading it costs no call; an
 * outage, or somebody's mistake in it, leaves the last good one.
 */
export class SharedValue<T> implements AsyncDisposable {
  readonly key: string;
  readonly #client: Client;
  readonly #options: SharedValueOptions<T>;
  readonly #view: TreeView;
  readonly #feed = new ChangeFeed<T>();
  #current: T;
  #revision = 0;

  private constructor(client: Client, key: string, view: TreeView, options: SharedValueOptions<T>) {
    this.#client = client;
    this.key = key;
    this.#view = view;
    this.#options = options;
    this.#current = options.initial;
    this.#take(view.get(key));
  }

  /** Resolves when the state of the key is known. */
  static async open<T>(client: Client, key: string, options: SharedValueOptions<T>): Promise<SharedValue<T>> {
    const { signal } = options;
    const view = await TreeView.open(client, key, signal === undefined ? {} : { signal });
    const value = new SharedValue(client, key, view, options);
    void deliver(
      client,
      view.changes(),
      () => value.#onChange(),
      (error) => {
        value.#feed.end(error);
        options.onError(error);
      },
    );
    return value;
  }

  /** The last good value, or the initial one. */
  get current(): T {
    return this.#current;
  }

  /** The revision of {@link current}; 0: it is the initial one. */
  get revision(): number {
    return this.#revision;
  }

  /** Whether it may have changed without our knowing: see {@link TreeView.stale}. */
  get stale(): boolean {
    return this.#view.stale;
  }

  /** Good values from this call on; of those that a slow reader missed only the newest. */
  changes(options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<T, void, undefined> {
    return this.#feed.read(() => this.#current, options.signal);
  }

  /** {@link changes} with a callback, which delays nobody but itself. Resolves at the end. */
  subscribe(listener: (value: T) => unknown, options: ViewSubscription): Promise<void> {
    return deliver(this.#client, this.changes(options), listener, options.onError);
  }

  /** Sets it, whatever is there. */
  async set(value: T, options: CallOptions = {}): Promise<void> {
    await this.#client.put(this.key, JSON.stringify(value), options);
  }

  /**
   * Changes it by what is there: `change` is called again when somebody else was faster.
   * @returns what was written.
   */
  async update(change: (current: T) => T, options: CallOptions = {}): Promise<T> {
    let written = this.#current;
    const decide = (kv: KeyValue | undefined): string => {
      written = change(kv === undefined ? this.#options.initial : this.#options.parse(kv.json()));
      return JSON.stringify(written);
    };
    await update(this.#client, this.key, { decide }, options);
    return written;
  }

  /** Ends the following: {@link current} stays as it is. */
  close(): void {
    this.#view.close();
    this.#feed.end();
  }

  /** {@link close}. */
  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  #onChange(): void {
    const kv = this.#view.get(this.key);
    if ((kv?.modRevision ?? 0) === this.#revision) return;
    if (this.#take(kv)) this.#feed.push(this.#current);
  }

  /** @returns whether it is good. */
  #take(kv: KeyValue | undefined): boolean {
    try {
      this.#current = kv === undefined ? this.#options.initial : this.#options.parse(kv.json());
      this.#revision = kv?.modRevision ?? 0;
      return true;
    } catch (error) {
      this.#options.onError(error);
      return false;
    }
  }
}
