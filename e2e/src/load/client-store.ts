import type { Client, KeyValue, Lock, PutResult, Session, WatchBatch } from "@lockstep/client";
import { LockstepError } from "@lockstep/client";
import type {
  CompareResult,
  Reading,
  Store,
  StoreBatch,
  StoreLock,
  StoreSession,
  Stored,
  WriteResult,
} from "./store.ts";

export interface ClientStoreOptions {
  /** Deadline of each call, in milliseconds. */
  readonly deadlineMs: number;
  /** Of sessions, in milliseconds. */
  readonly ttlMs: number;
}

const PAGE_KEYS = 500;

class ClientSession implements StoreSession {
  readonly session: Session;

  constructor(session: Session) {
    this.session = session;
  }

  isAlive(): boolean {
    return !this.session.lost.aborted && this.session.remainingMs() > 0;
  }

  close(): Promise<void> {
    return this.session.close();
  }
}

/** The cell, through the client library. */
export class ClientStore implements Store {
  readonly #client: Client;
  readonly #options: ClientStoreOptions;

  constructor(client: Client, options: ClientStoreOptions) {
    this.#client = client;
    this.#options = options;
  }

  async put(key: string, value: number): Promise<WriteResult> {
    return written(await this.#client.put(key, String(value), this.#call));
  }

  async compareAndPut(key: string, value: number, revision: number): Promise<CompareResult> {
    const compare = revision === 0 ? { key, createRevision: 0 } : { key, modRevision: revision };
    const txn = {
      compares: [compare],
      success: [{ put: { key, value: String(value) } }],
      failure: [{ get: { key } }],
    };
    const result = await this.#client.txn(txn, this.#call);
    const [response] = result.responses;
    if (result.succeeded && response?.kind === "put") return { kind: "written", result: written(response) };
    if (result.succeeded || response?.kind !== "range")
      throw new LockstepError("protocol-error", "unknown", "the transaction's answer does not fit its steps");
    return { kind: "refused", reading: reading(result.revision, response.kvs[0]) };
  }

  async get(key: string, at?: number): Promise<Reading> {
    const { revision, kvs } = await this.#client.range(key, {
      ...this.#call,
      ...(at === undefined ? {} : { revision: at }),
    });
    return reading(revision, kvs[0]);
  }

  async list(prefix: string): Promise<{ readonly revision: number; readonly stored: readonly Stored[] }> {
    const options = { ...this.#call, limit: PAGE_KEYS };
    let page = await this.#client.range({ prefix }, options);
    // All pages at one revision, that of the first.
    const { revision } = page;
    const stored = page.kvs.map(storedOf);
    // The first key after all of the prefix: the next byte's.
    const to = `${prefix.slice(0, -1)}${String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)}`;
    while (page.more) {
      const from = `${stored.at(-1)?.key ?? prefix}\0`;
      page = await this.#client.range({ from, to }, { ...options, revision });
      stored.push(...page.kvs.map(storedOf));
    }
    return { revision, stored };
  }

  async *watch(prefix: string, startRevision: number, signal: AbortSignal): AsyncGenerator<StoreBatch> {
    const watch = this.#client.watch({ prefix }, { startRevision, signal });
    for await (const batch of watch.batches()) yield batchOf(batch);
  }

  async session(owner: string): Promise<StoreSession> {
    const { deadlineMs, ttlMs } = this.#options;
    return new ClientSession(await this.#client.session({ ttlMs, owner, deadlineMs }));
  }

  async lock(name: string, session: StoreSession, waitMs: number): Promise<StoreLock> {
    if (!(session instanceof ClientSession)) throw new TypeError("a session of another store");
    const lock = await this.#client.lock(name, { session: session.session, waitMs });
    return { token: lock.token, isHeld: () => isHeld(lock), release: () => lock.release() };
  }

  get #call(): { readonly deadlineMs: number } {
    return { deadlineMs: this.#options.deadlineMs };
  }
}

function isHeld(lock: Lock): boolean {
  return !lock.held.aborted && lock.session.remainingMs() > 0;
}

function written({ revision, createRevision, version }: PutResult): WriteResult {
  return { revision, createRevision, version };
}

function reading(revision: number, kv: KeyValue | undefined): Reading {
  return kv === undefined ? { revision } : { revision, stored: storedOf(kv) };
}

function storedOf(kv: KeyValue): Stored {
  const { modRevision: revision, createRevision, version } = kv;
  return { key: kv.keyText, value: Number(kv.text()), revision, createRevision, version };
}

function batchOf({ revision, events }: WatchBatch): StoreBatch {
  return {
    revision,
    events: events.map(({ kind, kv }) => ({
      kind,
      key: kv.keyText,
      value: kind === "put" ? Number(kv.text()) : 0,
      revision: kv.modRevision,
      version: kind === "put" ? kv.version : 0,
    })),
  };
}
