import type { Runtime } from "./runtime.ts";
import { KubeError } from "./types.ts";
import type { KubeClient, KubeObject, ObjectRef, ResourceKind } from "./types.ts";

/** What expectations need of an informer. */
export interface ReflectingCache {
  get(ref: ObjectRef): KubeObject | undefined;
  reflects(object: KubeObject): boolean;
}

export type Expected =
  /** The cache shows everything that this process did. */
  | { readonly kind: "met" }
  /** It does not yet: nothing may be concluded from it. Look again when it changes, or after `retryAfterMs`. */
  | { readonly kind: "waiting"; readonly what: string; readonly retryAfterMs: number }
  /** It took too long, or nobody knows whether a write happened: only live reads tell. Then {@link Expectations.forget}. */
  | { readonly kind: "unsure"; readonly what: string };

export interface ExpectationsOptions {
  readonly runtime: Runtime;
  /** After this an informer that still does not show a write is not waited for; default 30 s. */
  readonly timeoutMs?: number;
  /** Between looks, while waiting; default 1 s. */
  readonly lookMs?: number;
  /** Writes of one owner that are waited for; more make it unsure. Default 1,000. */
  readonly perOwnerMax?: number;
}

interface Expectation {
  readonly what: string;
  readonly atMs: number;
  readonly met: () => boolean;
}

const TIMEOUT_MS = 30_000;
const LOOK_MS = 1_000;
const PER_OWNER_MAX = 1_000;
/** Owners that are remembered; a controller forgets the ones that are gone. */
const OWNERS_MAX = 100_000;

/**
 * Remembers, for each owner (the key that a controller works on), which writes its cache must show before the cache may be
 * believed again: otherwise a cache that lags makes a second Pod where the first is not seen yet.
 */
export class Expectations {
  private readonly options: ExpectationsOptions;
  private readonly owners = new Map<string, { expected: Expectation[]; unsure: string | undefined }>();

  constructor(options: ExpectationsOptions) {
    this.options = options;
  }

  /** `object` is what the apiserver answered to a write. */
  wrote(owner: string, cache: ReflectingCache, object: KubeObject): void {
    const what = `${object.kind} ${object.metadata.name} at ${object.metadata.resourceVersion ?? "?"}`;
    this.expect(owner, what, () => cache.reflects(object));
  }

  /** The apiserver took the deletion of this incarnation. */
  deleted(
    owner: string,
    cache: ReflectingCache,
    target: { kind: ResourceKind; ref: ObjectRef; uid: string },
  ): void {
    const { kind, ref, uid } = target;
    this.expect(owner, `${kind.kind} ${ref.name} deleted`, () => {
      const metadata = cache.get(ref)?.metadata;
      return metadata?.uid !== uid || metadata.deletionTimestamp !== undefined;
    });
  }

  /** A write without an answer: it may or may not have happened. */
  uncertain(owner: string, what: string): void {
    this.entry(owner).unsure ??= what;
  }

  check(owner: string): Expected {
    const entry = this.owners.get(owner);
    if (entry === undefined) return { kind: "met" };
    if (entry.unsure !== undefined) return { kind: "unsure", what: entry.unsure };
    entry.expected = entry.expected.filter(({ met }) => !met());
    const first = entry.expected[0];
    if (first === undefined) {
      this.owners.delete(owner);
      return { kind: "met" };
    }
    const { runtime, timeoutMs = TIMEOUT_MS, lookMs = LOOK_MS } = this.options;
    if (runtime.monotonicMs() - first.atMs >= timeoutMs) {
      entry.unsure = `not seen within ${timeoutMs} ms: ${first.what}`;
      return { kind: "unsure", what: entry.unsure };
    }
    return { kind: "waiting", what: first.what, retryAfterMs: lookMs };
  }

  /** The owner is gone, or was looked at by live reads. */
  forget(owner: string): void {
    this.owners.delete(owner);
  }

  private expect(owner: string, what: string, met: () => boolean): void {
    const entry = this.entry(owner);
    if (entry.expected.length >= (this.options.perOwnerMax ?? PER_OWNER_MAX)) {
      entry.unsure ??= "more writes than are waited for";
      return;
    }
    entry.expected.push({ what, met, atMs: this.options.runtime.monotonicMs() });
  }

  private entry(owner: string): { expected: Expectation[]; unsure: string | undefined } {
    const known = this.owners.get(owner);
    if (known !== undefined) return known;
    if (this.owners.size >= OWNERS_MAX)
      throw new RangeError(`expectations of more than ${OWNERS_MAX} owners`);
    const entry = { expected: [], unsure: undefined };
    this.owners.set(owner, entry);
    return entry;
  }
}

export interface ExpectingClientOptions {
  readonly client: KubeClient;
  readonly expectations: Expectations;
  readonly owner: string;
  /** The informer whose cache decides about this kind; undefined: nothing is decided by a cache. */
  readonly cacheOf: (kind: ResourceKind) => ReflectingCache | undefined;
}

/** A client whose writes are expected, for one owner: made for each pass. */
export function expectingClient(options: ExpectingClientOptions): KubeClient {
  const { client, expectations, owner, cacheOf } = options;
  const watched = async <R>(kind: ResourceKind, what: string, write: () => Promise<R>): Promise<R> => {
    try {
      return await write();
    } catch (error) {
      const unknown =
        error instanceof KubeError && (error.reason === "unavailable" || error.reason === "fenced");
      if (unknown && cacheOf(kind) !== undefined) expectations.uncertain(owner, `${what}: ${error.message}`);
      throw error;
    }
  };
  const wrote = async <T extends KubeObject>(
    kind: ResourceKind<T>,
    what: string,
    write: () => Promise<T>,
  ): Promise<T> => {
    const object = await watched(kind, what, write);
    const cache = cacheOf(kind);
    if (cache !== undefined) expectations.wrote(owner, cache, object);
    return object;
  };
  return {
    get: (kind, ref) => client.get(kind, ref),
    list: (kind, listOptions) => client.list(kind, listOptions),
    create: (kind, object) =>
      wrote(kind, `create ${kind.kind} ${object.metadata.name}`, () => client.create(kind, object)),
    apply: (kind, object, applyOptions) =>
      wrote(kind, `apply ${kind.kind} ${object.metadata.name}`, () =>
        client.apply(kind, object, applyOptions),
      ),
    applyStatus: (kind, object) =>
      wrote(kind, `status of ${kind.kind} ${object.metadata.name}`, () => client.applyStatus(kind, object)),
    mergePatch: (kind, ref, patch, patchOptions) =>
      wrote(kind, `patch ${kind.kind} ${ref.name}`, () => client.mergePatch(kind, ref, patch, patchOptions)),
    delete: async (kind, ref, deleteOptions) => {
      await watched(kind, `delete ${kind.kind} ${ref.name}`, () => client.delete(kind, ref, deleteOptions));
      const cache = cacheOf(kind);
      if (cache !== undefined) expectations.deleted(owner, cache, { kind, ref, uid: deleteOptions.uid });
    },
  };
}
