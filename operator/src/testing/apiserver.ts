import { isDeepStrictEqual } from "node:util";
import { KubeError } from "../kube/types.ts";
import type {
  DeleteOptions,
  KubeObject,
  ListOptions,
  ObjectMeta,
  ObjectRef,
  ResourceKind,
} from "../kube/types.ts";
import { toStamp } from "../plan/time.ts";

type Json = Readonly<Record<string, unknown>>;

const VERSIONS_KEPT = 40;
/** Holds an object that was deleted in the foreground until its dependents that ask for it are gone. */
const FOREGROUND = "foregroundDeletion";
/** Kinds whose objects end later than they are deleted: a kubelet, or nobody using it any more, must agree. */
const LINGERING = new Set(["Pod", "PersistentVolumeClaim"]);

interface Version {
  readonly ms: number;
  readonly objects: Objects;
}

/** By kind, then by namespace and name; neither map is ever changed, so an old version costs nothing to keep. */
type Objects = ReadonlyMap<string, ReadonlyMap<string, KubeObject>>;

/** What the operator did to an object, or was refused. */
export interface Write {
  readonly verb: "create" | "apply" | "status" | "patch" | "delete" | "gone";
  readonly kind: string;
  readonly before: KubeObject | undefined;
  readonly after: KubeObject | undefined;
  /** By the garbage collector, because an owner is deleted in the foreground: the owner is still there. */
  readonly isCascade: boolean;
}

/**
 * An apiserver in memory: uids, resource versions, generations, preconditions, finalizers, garbage collection by owner,
 * in the background and in the foreground.
 * Objects are never changed in place, so what was read stays as it was.
 */
export class Apiserver {
  readonly nowMs: () => number;
  /** Whether an object is gone since garbage was collected last. */
  hasLost = false;
  #objects: Objects = new Map();
  readonly #sorted = new WeakMap<ReadonlyMap<string, KubeObject>, readonly KubeObject[]>();
  #versions: Version[] = [];
  #counter = 100;
  #isCascade = false;
  readonly #watchers: ((write: Write) => void)[] = [];

  constructor(nowMs: () => number) {
    this.nowMs = nowMs;
  }

  onWrite(watcher: (write: Write) => void): void {
    this.#watchers.push(watcher);
  }

  /** @param lagMs as of so long ago */
  get<T extends KubeObject>(kind: ResourceKind<T>, ref: ObjectRef, lagMs: number = 0): T | undefined {
    return this.#at(lagMs).get(kind.plural)?.get(keyOf(kind, ref)) as T | undefined;
  }

  /** Label selectors are `key=value` only, joined by commas. */
  list<T extends KubeObject>(kind: ResourceKind<T>, options: ListOptions = {}, lagMs: number = 0): T[] {
    const wanted = (options.labelSelector ?? "").split(",").filter((part) => part !== "");
    const pairs = wanted.map((part) => part.split("=") as [string, string]);
    return this.#all(kind, lagMs).filter(
      ({ metadata }) =>
        (options.namespace === undefined || metadata.namespace === options.namespace) &&
        pairs.every(([label, value]) => metadata.labels?.[label] === value),
    ) as T[];
  }

  create<T extends KubeObject>(kind: ResourceKind<T>, object: T): T {
    if (this.get(kind, object.metadata) !== undefined)
      throw new KubeError("already-exists", `${kind.kind} ${object.metadata.name} exists`, { status: 409 });
    const made = {
      ...object,
      apiVersion: kind.apiVersion,
      kind: kind.kind,
      metadata: {
        ...object.metadata,
        uid: `uid-${String((this.#counter += 1))}`,
        generation: 1,
        creationTimestamp: toStamp(this.nowMs()),
      },
    };
    // Its owner may be gone already.
    this.hasLost = true;
    return this.#store(kind, "create", undefined, made);
  }

  apply<T extends KubeObject>(kind: ResourceKind<T>, object: T): T {
    const before = this.get(kind, object.metadata);
    if (before === undefined) return this.create(kind, object);
    checkVersion(before, object.metadata.resourceVersion);
    // One manager owns all that it applies: what it does not name any more goes.
    const merged = { ...before, ...object, metadata: merge(before.metadata, object.metadata) as ObjectMeta };
    return this.#store(kind, "apply", before, withGeneration(before, merged));
  }

  applyStatus<T extends KubeObject>(kind: ResourceKind<T>, object: T): T {
    const before = this.#mustGet(kind, object.metadata);
    checkVersion(before, object.metadata.resourceVersion);
    if (object.metadata.uid !== undefined && object.metadata.uid !== before.metadata.uid) {
      throw new KubeError("conflict", "another incarnation", { status: 409 });
    }
    const { status } = object as T & { readonly status?: unknown };
    return this.#store(kind, "status", before, { ...before, status });
  }

  mergePatch<T extends KubeObject>(
    kind: ResourceKind<T>,
    ref: ObjectRef,
    patch: Json,
    resourceVersion?: string,
  ): T {
    const before = this.#mustGet(kind, ref);
    checkVersion(before, resourceVersion);
    const after = withGeneration(before, merge(before, patch) as T);
    return this.#store(kind, "patch", before, after);
  }

  delete(kind: ResourceKind, ref: ObjectRef, options?: DeleteOptions): void {
    const before = this.get(kind, ref);
    if (before === undefined) return;
    if (options !== undefined && options.uid !== before.metadata.uid) {
      throw new KubeError("conflict", `another incarnation of ${ref.name}`, { status: 409 });
    }
    checkVersion(before, options?.resourceVersion);
    if (before.metadata.deletionTimestamp !== undefined) return;
    const isForeground = options?.propagation === "Foreground";
    if (isForeground) this.hasLost = true;
    const { finalizers = [] } = before.metadata;
    const metadata: ObjectMeta = {
      ...before.metadata,
      deletionTimestamp: toStamp(this.nowMs()),
      ...(isForeground ? { finalizers: [...finalizers, FOREGROUND] } : {}),
    };
    this.#store(kind, "delete", before, { ...before, metadata });
  }

  /** Ends an object whatever holds it: what kubelets and volume controllers do at last. */
  remove(kind: ResourceKind, ref: ObjectRef): void {
    const before = this.get(kind, ref);
    if (before === undefined) return;
    this.#put(kind, ref, undefined);
    this.#tell({ verb: "gone", kind: kind.kind, before, after: undefined });
  }

  /**
   * Objects whose owners are all gone are deleted, and so are those whose owner is deleted in the foreground: at once,
   * whatever finalizers hold the owner.
   */
  collectGarbage(kinds: readonly ResourceKind[]): void {
    this.hasLost = false;
    for (const kind of kinds) this.#cascade(kind, kinds);
    const uids = new Set(
      [...this.#objects.values()].flatMap((objects) =>
        [...objects.values()].map(({ metadata }) => metadata.uid),
      ),
    );
    for (const kind of kinds) {
      for (const object of this.list(kind)) {
        const owners = object.metadata.ownerReferences ?? [];
        if (owners.length > 0 && owners.every(({ uid }) => !uids.has(uid)))
          this.delete(kind, object.metadata);
      }
    }
  }

  #cascade(kind: ResourceKind, kinds: readonly ResourceKind[]): void {
    for (const owner of this.list(kind)) {
      const { deletionTimestamp, finalizers = [], uid } = owner.metadata;
      if (deletionTimestamp === undefined || !finalizers.includes(FOREGROUND) || uid === undefined) continue;
      this.#isCascade = true;
      for (const dependent of kinds) this.#deleteOwned(dependent, uid, kinds);
      this.#isCascade = false;
      // Nobody here asks it to wait (blockOwnerDeletion).
      const others = finalizers.filter((finalizer) => finalizer !== FOREGROUND);
      this.mergePatch(kind, owner.metadata, { metadata: { finalizers: others } });
    }
  }

  #deleteOwned(kind: ResourceKind, ownerUid: string, kinds: readonly ResourceKind[]): void {
    const owns = (object: KubeObject, uid: string): boolean =>
      object.metadata.ownerReferences?.some((owner) => owner.uid === uid) === true;
    for (const object of this.list(kind).filter((one) => owns(one, ownerUid))) {
      const { uid = "" } = object.metadata;
      const hasDependents = kinds.some((other) => this.list(other).some((one) => owns(one, uid)));
      this.delete(kind, object.metadata, { uid, ...(hasDependents ? { propagation: "Foreground" } : {}) });
    }
  }

  #store<T extends KubeObject>(
    kind: ResourceKind<T>,
    verb: Write["verb"],
    before: T | undefined,
    after: T,
  ): T {
    if (before !== undefined && isDeepStrictEqual(before, after)) return before;
    const versioned = {
      ...after,
      metadata: { ...after.metadata, resourceVersion: String((this.#counter += 1)) },
    };
    const { deletionTimestamp, finalizers } = versioned.metadata;
    const ends = deletionTimestamp !== undefined && (finalizers ?? []).length === 0 && !lingers(versioned);
    this.#put(kind, versioned.metadata, ends ? undefined : versioned);
    this.#tell({ verb, kind: kind.kind, before, after: versioned });
    if (ends) this.#tell({ verb: "gone", kind: kind.kind, before: versioned, after: undefined });
    return versioned;
  }

  #mustGet<T extends KubeObject>(kind: ResourceKind<T>, ref: ObjectRef): T {
    const object = this.get(kind, ref);
    if (object === undefined) throw new KubeError("not-found", `${ref.name} does not exist`, { status: 404 });
    return object;
  }

  #all(kind: ResourceKind, lagMs: number): readonly KubeObject[] {
    const objects = this.#at(lagMs).get(kind.plural);
    if (objects === undefined) return [];
    const known = this.#sorted.get(objects);
    if (known !== undefined) return known;
    const sorted = [...objects.values()].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
    this.#sorted.set(objects, sorted);
    return sorted;
  }

  #put(kind: ResourceKind, ref: ObjectRef, object: KubeObject | undefined): void {
    const objects = new Map(this.#objects.get(kind.plural));
    if (object === undefined) {
      objects.delete(keyOf(kind, ref));
      this.hasLost = true;
    } else objects.set(keyOf(kind, ref), object);
    this.#objects = new Map(this.#objects).set(kind.plural, objects);
    this.#versions.push({ ms: this.nowMs(), objects: this.#objects });
    if (this.#versions.length > VERSIONS_KEPT) this.#versions.shift();
  }

  #at(lagMs: number): Objects {
    if (lagMs === 0) return this.#objects;
    const asOf = this.nowMs() - lagMs;
    return (
      this.#versions.findLast(({ ms }) => ms <= asOf)?.objects ?? this.#versions[0]?.objects ?? this.#objects
    );
  }

  #tell(write: Omit<Write, "isCascade">): void {
    for (const watcher of this.#watchers) watcher({ ...write, isCascade: this.#isCascade });
  }
}

function keyOf(kind: ResourceKind, ref: ObjectRef): string {
  return `${kind.namespaced ? `${ref.namespace ?? ""}/` : ""}${ref.name}`;
}

/** A scheduled pod waits for its kubelet; an unscheduled one does not. */
function lingers(object: KubeObject): boolean {
  if (!LINGERING.has(object.kind)) return false;
  const { spec } = object as KubeObject & { readonly spec?: { readonly nodeName?: string } };
  return object.kind === "PersistentVolumeClaim" || spec?.nodeName !== undefined;
}

function checkVersion(before: KubeObject, wanted: string | undefined): void {
  if (wanted === undefined || wanted === before.metadata.resourceVersion) return;
  throw new KubeError("conflict", `${before.metadata.name} has moved on`, { status: 409 });
}

function withGeneration<T extends KubeObject>(before: T, after: T): T {
  const specOf = (object: T): unknown => (object as T & { readonly spec?: unknown }).spec;
  if (isDeepStrictEqual(specOf(before), specOf(after))) return after;
  const generation = (before.metadata.generation ?? 0) + 1;
  return { ...after, metadata: { ...after.metadata, generation } };
}

/** JSON merge patch: null takes a field away, lists are replaced. */
function merge(before: unknown, patch: unknown): unknown {
  if (!isRecord(before) || !isRecord(patch)) return patch;
  const after = new Map(Object.entries(before));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) after.delete(key);
    else if (value !== undefined) after.set(key, merge(after.get(key), value));
  }
  return Object.fromEntries(after);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
