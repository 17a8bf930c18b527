import { ObjectStore } from "./object-store.ts";
import type { Change, IndexBy } from "./object-store.ts";
import { REFLECTOR_LIMITS, Reflector } from "./reflector.ts";
import type { ReflectorLimits } from "./reflector.ts";
import { isAtLeast } from "./resource-version.ts";
import type { Rest } from "./rest.ts";
import type { KubeObject, ObjectCache, ObjectRef, ResourceKind } from "./types.ts";

export interface InformerOptions<T extends KubeObject> {
  readonly rest: Rest;
  /** Only these namespaces, each with a list and a watch of its own; absent: all (or the kind has none). */
  readonly namespaces?: readonly string[];
  /** Fixed for the informer's life: what does not match counts as absent. */
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** Named groupings for {@link Informer.byIndex}. Must be pure. */
  readonly indexes?: Readonly<Record<string, IndexBy<T>>>;
  /** What is kept of an object; default: all but `metadata.managedFields`, which is often half of it. Must keep `metadata`. */
  readonly trim?: (object: T) => T;
  readonly limits?: Partial<ReflectorLimits>;
  /** Failures on the way and handlers that threw, for logs; the informer goes on by itself. */
  readonly report?: (message: string, error: Error) => void;
}

export type ChangeHandler<T extends KubeObject> = (change: Change<T>) => void;

/** Keeps a copy of a kind's objects that follows the apiserver: late, at times, but never back. */
export interface Informer<T extends KubeObject> extends ObjectCache<T> {
  readonly kind: ResourceKind<T>;
  start(): void;
  /** Resolves when no timer, request or handler of it is left. It cannot be started again. */
  stop(): Promise<void>;
  /** Resolves with `synced`; rejects with the signal's reason. */
  whenSynced(signal?: AbortSignal): Promise<void>;
  /**
   * Tells every change from now on, in order; what is held already comes as `added`, at once. What it throws is reported.
   * @returns ends it
   */
  subscribe(handler: ChangeHandler<T>): () => void;
  /** @throws TypeError for an index that was not declared */
  byIndex(name: string, value: string): readonly T[];
  /** True when the cache is at least as new as `object`, an answer of the apiserver: what it says of it can be relied on. */
  reflects(object: KubeObject): boolean;
  /** What keeps it from following, in words; undefined: nothing. */
  problem(): string | undefined;
  /** Milliseconds since the apiserver last said anything to the watch that waits longest; undefined: not yet synced. */
  ageMs(): number | undefined;
}

export function createInformer<T extends KubeObject>(
  kind: ResourceKind<T>,
  options: InformerOptions<T>,
): Informer<T> {
  return new ReflectedInformer(kind, options);
}

class ReflectedInformer<T extends KubeObject> implements Informer<T> {
  readonly kind: ResourceKind<T>;
  private readonly options: InformerOptions<T>;
  private readonly store: ObjectStore<T>;
  private readonly reflectors = new Map<string | undefined, Reflector<T>>();
  private readonly unsynced: Set<string | undefined>;
  private readonly handlers = new Set<ChangeHandler<T>>();
  private readonly waiting = new Set<() => void>();
  private readonly forgetAge: () => void;

  constructor(kind: ResourceKind<T>, options: InformerOptions<T>) {
    if (options.namespaces?.length === 0) throw new TypeError("an informer of no namespace");
    this.kind = kind;
    this.options = options;
    this.store = new ObjectStore((change) => this.tell(change), options.indexes);
    this.unsynced = new Set<string | undefined>(options.namespaces ?? [undefined]);
    for (const namespace of this.unsynced) this.reflectors.set(namespace, this.reflectorOf(namespace));
    this.forgetAge = options.rest.metrics.watchAge(kind.plural, () => this.ageMs() ?? 0);
  }

  get synced(): boolean {
    return this.unsynced.size === 0;
  }

  start(): void {
    for (const reflector of this.reflectors.values()) reflector.start();
  }

  async stop(): Promise<void> {
    this.forgetAge();
    await Promise.all([...this.reflectors.values()].map((reflector) => reflector.stop()));
    this.handlers.clear();
  }

  whenSynced(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        this.waiting.delete(done);
        reject(signal?.reason instanceof Error ? signal.reason : new Error("aborted"));
      };
      const done = (): void => {
        signal?.removeEventListener("abort", abort);
        resolve();
      };
      if (this.synced) resolve();
      else if (signal?.aborted === true) abort();
      else {
        this.waiting.add(done);
        signal?.addEventListener("abort", abort, { once: true });
      }
    });
  }

  subscribe(handler: ChangeHandler<T>): () => void {
    this.handlers.add(handler);
    for (const object of this.store.list()) this.call(handler, { kind: "added", object });
    return () => this.handlers.delete(handler);
  }

  get(ref: ObjectRef): T | undefined {
    return this.store.get(ref);
  }

  list(namespace?: string): readonly T[] {
    return this.store.list(namespace);
  }

  byLabel(key: string, value: string): readonly T[] {
    return this.store.byLabel(key, value);
  }

  byIndex(name: string, value: string): readonly T[] {
    return this.store.byIndex(name, value);
  }

  reflects(object: KubeObject): boolean {
    const { namespace, resourceVersion } = object.metadata;
    const reflector = this.reflectors.get(undefined) ?? this.reflectors.get(namespace);
    if (reflector?.reached(resourceVersion) === true) return true;
    return isAtLeast(this.store.get(object.metadata)?.metadata.resourceVersion, resourceVersion);
  }

  problem(): string | undefined {
    const problems = [...this.reflectors.values()].map((reflector) => reflector.problem());
    const found = problems.filter((problem) => problem !== undefined);
    if (found.length > 0) return found.join("; ");
    return this.synced ? undefined : `${this.kind.plural}: not listed yet`;
  }

  ageMs(): number | undefined {
    const ages = [...this.reflectors.values()].map((reflector) => reflector.ageMs());
    return ages.reduce((oldest, age) =>
      oldest === undefined || age === undefined ? undefined : Math.max(oldest, age),
    );
  }

  private reflectorOf(namespace: string | undefined): Reflector<T> {
    const { rest, labelSelector, fieldSelector, limits, trim = withoutManagedFields } = this.options;
    return new Reflector<T>({
      rest,
      kind: this.kind,
      namespace,
      labelSelector,
      fieldSelector,
      limits: { ...REFLECTOR_LIMITS, ...limits },
      replace: (objects) => {
        this.store.replace(namespace, objects.map(trim));
        this.unsynced.delete(namespace);
        if (this.synced) this.release();
      },
      event: ({ type, object }) => {
        if (type === "DELETED") this.store.remove(trim(object));
        else this.store.put(trim(object));
      },
      report: (message, error) => this.report(message, error),
    });
  }

  private tell(change: Change<T>): void {
    for (const handler of this.handlers) this.call(handler, change);
  }

  /** A handler's fault must not stop what every other handler relies on. */
  private call(handler: ChangeHandler<T>, change: Change<T>): void {
    try {
      handler(change);
    } catch (thrown) {
      this.options.rest.metrics.handlerFailed(this.kind.plural);
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      this.report(`${this.kind.plural}: a handler threw`, error);
    }
  }

  private report(message: string, error: Error): void {
    try {
      this.options.report?.(message, error);
    } catch {
      // Whoever cannot even log must not stop the informer.
    }
  }

  private release(): void {
    for (const done of this.waiting) done();
    this.waiting.clear();
  }
}

function withoutManagedFields<T extends KubeObject>(object: T): T {
  if (!("managedFields" in object.metadata)) return object;
  const kept = Object.entries(object.metadata).filter(([field]) => field !== "managedFields");
  const metadata = Object.fromEntries(kept) as unknown as T["metadata"];
  return { ...object, metadata };
}
