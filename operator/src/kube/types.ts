/**
 * The Kubernetes API as this operator uses it. Objects are raw JSON: a field that this program does not know is kept,
 * because nothing is ever read, changed and put back whole.
 */

export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly controller?: boolean;
  readonly blockOwnerDeletion?: boolean;
}

export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly finalizers?: readonly string[];
  readonly ownerReferences?: readonly OwnerReference[];
}

export interface KubeObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMeta;
}

/** Names a kind; `T` is the shape of its objects. */
export interface ResourceKind<T extends KubeObject = KubeObject> {
  readonly apiVersion: string;
  readonly kind: string;
  readonly plural: string;
  readonly namespaced: boolean;
  /** Never set: carries `T` for the type checker. */
  readonly shape?: T;
}

/** `namespace` is absent for cluster-scoped kinds. */
export interface ObjectRef {
  readonly namespace?: string;
  readonly name: string;
}

export interface ListOptions {
  /** Absent: all namespaces. */
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

export interface DeleteOptions {
  /** The incarnation that was meant: another one of the same name is left alone (KubeError `conflict`). */
  readonly uid: string;
  /** Only this very state of it. */
  readonly resourceVersion?: string;
  readonly propagation?: "Background" | "Foreground" | "Orphan";
  readonly gracePeriodSeconds?: number;
}

/**
 * Live calls: each goes to the apiserver, bounded by a deadline, and rejects with {@link KubeError}. `get` answers
 * undefined, and `delete` succeeds, for what does not exist.
 */
export interface KubeClient {
  get<T extends KubeObject>(kind: ResourceKind<T>, ref: ObjectRef): Promise<T | undefined>;
  list<T extends KubeObject>(kind: ResourceKind<T>, options?: ListOptions): Promise<readonly T[]>;
  /** For what must not exist yet: KubeError `already-exists` otherwise. */
  create<T extends KubeObject>(kind: ResourceKind<T>, object: T): Promise<T>;
  /**
   * Server-side apply with this operator's one field manager. `force` (default true) takes fields over from others:
   * right for objects that the operator owns.
   */
  apply<T extends KubeObject>(
    kind: ResourceKind<T>,
    object: T,
    options?: { readonly force?: boolean },
  ): Promise<T>;
  /** The same for the status subresource; `object` holds identity and status only. */
  applyStatus<T extends KubeObject>(kind: ResourceKind<T>, object: T): Promise<T>;
  /** JSON merge patch; with `resourceVersion` refused (`conflict`) when the object moved on. For finalizers and labels. */
  mergePatch<T extends KubeObject>(
    kind: ResourceKind<T>,
    ref: ObjectRef,
    patch: Readonly<Record<string, unknown>>,
    options?: { readonly resourceVersion?: string },
  ): Promise<T>;
  delete(kind: ResourceKind, ref: ObjectRef, options: DeleteOptions): Promise<void>;
}

export type KubeErrorReason =
  | "not-found"
  | "already-exists"
  /** 409: another state or another incarnation than was meant. */
  | "conflict"
  /** 422, and 400: the apiserver refuses the object; the message is the apiserver's. */
  | "invalid"
  /** 401 and 403. */
  | "forbidden"
  /** 429. */
  | "throttled"
  /** 410: a watch or list position that is gone. */
  | "expired"
  /** 5xx, a reset, a deadline: what was asked may or may not have happened. */
  | "unavailable"
  /** This process does not hold the lease any more and may not write. */
  | "fenced";

export class KubeError extends Error {
  override readonly name = "KubeError";
  readonly reason: KubeErrorReason;
  /** HTTP status; 0: there was no answer. */
  readonly status: number;
  /** How long the server asks to wait; undefined: it does not say. */
  readonly retryAfterMs: number | undefined;
  /** With `not-found`: the name of the object that is absent; undefined when it is the kind that the apiserver lacks. */
  readonly absentName: string | undefined;

  constructor(
    reason: KubeErrorReason,
    message: string,
    options: {
      readonly status?: number;
      readonly retryAfterMs?: number;
      readonly absentName?: string;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, options.cause === undefined ? {} : { cause: options.cause });
    this.reason = reason;
    this.status = options.status ?? 0;
    this.retryAfterMs = options.retryAfterMs;
    this.absentName = options.absentName;
  }
}

/** What an informer keeps of a kind: frozen objects, as of some moment. */
export interface ObjectCache<T extends KubeObject> {
  get(ref: ObjectRef): T | undefined;
  list(namespace?: string): readonly T[];
  /** Objects whose label `key` has `value`. */
  byLabel(key: string, value: string): readonly T[];
  /** False until the first whole list arrived; nothing may be concluded from absence before. */
  readonly synced: boolean;
}
