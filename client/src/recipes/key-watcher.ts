import type { Client } from "../client.ts";
import { LockstepError } from "../errors.ts";
import type { Watch } from "../watch.ts";

/** What is held for a shorter time is not watched: most locks cost no watch at all. */
const BEGIN_AFTER_MS = 1_000;
/** A watch that the member refuses (it has too many) is asked for again after this long. */
const AGAIN_AFTER_MS = 10_000;

/** Tells when one of a claim's keys is gone, or is no longer the one that the claim made. */
export class KeyWatcher {
  readonly #client: Client;
  readonly #keys: readonly string[];
  readonly #token: number;
  readonly #onGone: () => void;
  readonly #watches = new Set<Watch>();
  #cancelTimer: () => void;
  #stopped = false;

  constructor(client: Client, keys: readonly string[], token: number, onGone: () => void) {
    this.#client = client;
    this.#keys = keys;
    this.#token = token;
    this.#onGone = onGone;
    this.#cancelTimer = client.runtime.schedule(() => this.#begin(), BEGIN_AFTER_MS);
  }

  stop(): void {
    this.#stopped = true;
    this.#cancelTimer();
    for (const watch of this.#watches) watch.cancel();
    this.#watches.clear();
  }

  #begin(): void {
    for (const key of this.#keys) void this.#watch(key);
  }

  async #watch(key: string): Promise<void> {
    let revision = this.#token;
    while (!this.#stopped) {
      try {
        if (await this.#isGone(key, revision)) {
          this.#tell();
          return;
        }
      } catch (error) {
        if (!(error instanceof LockstepError) || error.code === "closed") return;
        if (error.code !== "compacted") await this.#pause();
      }
      const looked = await this.#look(key);
      if (looked === "gone") {
        this.#tell();
        return;
      }
      if (looked !== undefined) revision = looked;
    }
  }

  #tell(): void {
    if (!this.#stopped) this.#onGone();
  }

  /** Follows the key; false: stopped. */
  async #isGone(key: string, revision: number): Promise<boolean> {
    const watch = this.#client.watch(key, { startRevision: revision + 1, omit: "put" });
    this.#watches.add(watch);
    try {
      for await (const event of watch) if (event.kind === "delete") return true;
      return false;
    } finally {
      this.#watches.delete(watch);
    }
  }

  /** The revision of an answer that shows the key; undefined: nobody answers. */
  async #look(key: string): Promise<number | "gone" | undefined> {
    if (this.#stopped) return undefined;
    try {
      const { kvs, revision } = await this.#client.range(key, { keysOnly: true });
      return kvs[0]?.createRevision === this.#token ? revision : "gone";
    } catch {
      // The session's own deadline holds meanwhile.
      await this.#pause();
      return undefined;
    }
  }

  #pause(): Promise<void> {
    if (this.#stopped) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#client.runtime.schedule(resolve, AGAIN_AFTER_MS);
      this.#cancelTimer = () => {
        cancel();
        resolve();
      };
    });
  }
}
