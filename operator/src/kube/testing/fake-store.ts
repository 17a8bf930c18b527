import type { Runtime } from "../runtime.ts";
import type { KubeObject, ObjectRef, ResourceKind } from "../types.ts";
import { deepMerge, isMap, leaves, mergePatch, omit, sameJson, valueAt, withoutLeaf } from "./json.ts";
import type { Json } from "./json.ts";

export interface FakeKind {
  readonly kind: ResourceKind;
  /** Has the subresource, so that ordinary writes leave `status` alone. Default true. */
  readonly status?: boolean;
  /** Deleted objects stay, with a deletionTimestamp, until {@link FakeStore.finishDeletion}; as Pods on a node do. */
  readonly graceful?: boolean;
}

export interface LogEntry {
  readonly revision: number;
  readonly plural: string;
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly object: KubeObject;
  readonly previous: KubeObject | undefined;
}

export interface WriteOptions {
  readonly manager: string;
  readonly subresource?: "status" | undefined;
}

/** What an apiserver answers instead of doing it. */
export class FakeRefusal extends Error {
  readonly status: number;
  readonly reason: string;
  readonly details: Json | undefined;

  constructor(status: number, reason: string, message: string, details?: Json) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.details = details;
  }
}

/** What an apiserver keeps: objects, one counter of revisions for all, and the whole history. */
export class FakeStore {
  readonly log: LogEntry[] = [];
  readonly kinds: ReadonlyMap<string, FakeKind>;
  private readonly runtime: Runtime;
  private readonly objects = new Map<string, KubeObject>();
  /** uid to manager to leaves. */
  private readonly owned = new Map<string, Map<string, Set<string>>>();
  private readonly listeners = new Set<(entry: LogEntry) => void>();
  private revisionNow = 100;
  private uids = 0;

  constructor(runtime: Runtime, kinds: readonly FakeKind[]) {
    this.runtime = runtime;
    this.kinds = new Map(kinds.map((each) => [`${each.kind.apiVersion}/${each.kind.plural}`, each]));
  }

  get revision(): number {
    return this.revisionNow;
  }

  onWrite(listener: (entry: LogEntry) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  get<T extends KubeObject>(kind: ResourceKind<T>, ref: ObjectRef): T | undefined {
    return this.objects.get(keyOf(kind, ref)) as T | undefined;
  }

  /** Sorted by namespace and name; `revision`: as it was then. */
  list<T extends KubeObject>(kind: ResourceKind<T>, revision: number = this.revisionNow): readonly T[] {
    const state = revision >= this.revisionNow ? this.objects : this.stateAt(kind, revision);
    const prefix = `${kind.apiVersion}/${kind.plural}/`;
    return [...state.entries()]
      .filter(([key]) => key.startsWith(prefix))
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([, object]) => object as T);
  }

  create<T extends KubeObject>(kind: ResourceKind<T>, object: T, options: WriteOptions): T {
    checkIdentity(kind, object);
    const key = keyOf(kind, object.metadata);
    if (this.objects.has(key)) {
      const message = `${kind.plural} "${object.metadata.name}" already exists`;
      throw new FakeRefusal(409, "AlreadyExists", message, { name: object.metadata.name });
    }
    this.uids += 1;
    const made = {
      ...(this.hasStatus(kind) ? withoutStatus(object) : object),
      metadata: {
        ...(omit(object.metadata, "resourceVersion") as unknown as KubeObject["metadata"]),
        uid: `uid-${this.uids}`,
        generation: 1,
        creationTimestamp: new Date(this.runtime.wallMs()).toISOString(),
      },
    };
    this.own(made, options, new Set(leaves(ownable(made)).keys()));
    return this.commit(kind, "ADDED", made, undefined) as T;
  }

  /** Server-side apply, with lists as one value. */
  apply<T extends KubeObject>(
    kind: ResourceKind<T>,
    object: T,
    options: WriteOptions & { readonly force: boolean },
  ): T {
    checkIdentity(kind, object);
    const existing = this.objects.get(keyOf(kind, object.metadata));
    if (existing === undefined) {
      if (options.subresource !== undefined) throw notFound(kind, object.metadata.name);
      if (object.metadata.uid !== undefined) throw conflict(kind, object.metadata.name, "uid mismatch");
      return this.create(kind, object, options);
    }
    checkPreconditions(kind, existing, object.metadata);
    const wanted = this.scoped(kind, ownable(object), options.subresource);
    const mine = leaves(wanted);
    const managers = this.managersOf(existing);
    this.takeOver(existing, mine, options);
    const own = managers.get(managerKey(options)) ?? new Set<string>();
    let merged: unknown = existing;
    for (const leaf of own) {
      const shared = [...managers].some(([key, set]) => key !== managerKey(options) && set.has(leaf));
      if (!mine.has(leaf) && !shared) merged = withoutLeaf(merged, leaf);
    }
    merged = deepMerge(merged, wanted);
    managers.set(managerKey(options), new Set(mine.keys()));
    return this.update(kind, existing, merged as KubeObject) as T;
  }

  patch<T extends KubeObject>(kind: ResourceKind<T>, ref: ObjectRef, patch: Json, options: WriteOptions): T {
    const existing = this.objects.get(keyOf(kind, ref));
    if (existing === undefined) throw notFound(kind, ref.name);
    const { metadata } = patch as { metadata?: { uid?: string; resourceVersion?: string } };
    checkPreconditions(kind, existing, metadata ?? {});
    const scoped = this.scoped(kind, patch, options.subresource);
    const merged = mergePatch(existing, scoped) as KubeObject;
    const before = leaves(ownable(existing));
    const changed = [...leaves(ownable(merged))].filter(
      ([leaf, value]) => !sameJson(before.get(leaf), value),
    );
    const key = { ...options, manager: `${options.manager} (Update)` };
    for (const set of this.managersOf(existing).values()) for (const [leaf] of changed) set.delete(leaf);
    this.own(existing, key, new Set(changed.map(([leaf]) => leaf)));
    return this.update(kind, existing, merged) as T;
  }

  /** @returns the object while finalizers or a grace period keep it; undefined: it is gone */
  delete(
    kind: ResourceKind,
    ref: ObjectRef,
    options: {
      readonly uid?: string;
      readonly resourceVersion?: string;
      readonly gracePeriodSeconds?: number;
    } = {},
  ): KubeObject | undefined {
    const existing = this.objects.get(keyOf(kind, ref));
    if (existing === undefined) throw notFound(kind, ref.name);
    checkPreconditions(kind, existing, options);
    const stays = this.fakeKind(kind)?.graceful === true && options.gracePeriodSeconds !== 0;
    if ((existing.metadata.finalizers ?? []).length === 0 && !stays) {
      this.commit(kind, "DELETED", existing, existing);
      return undefined;
    }
    if (existing.metadata.deletionTimestamp !== undefined) return existing;
    const deletionTimestamp = new Date(this.runtime.wallMs()).toISOString();
    const metadata = { ...existing.metadata, deletionTimestamp };
    return this.commit(kind, "MODIFIED", { ...existing, metadata }, existing);
  }

  /** The kubelet is done with it. Nothing happens unless it is being deleted and has no finalizer. */
  finishDeletion(kind: ResourceKind, ref: ObjectRef): void {
    const existing = this.objects.get(keyOf(kind, ref));
    if (existing?.metadata.deletionTimestamp === undefined) return;
    if ((existing.metadata.finalizers ?? []).length === 0) this.commit(kind, "DELETED", existing, existing);
  }

  private stateAt(kind: ResourceKind, revision: number): ReadonlyMap<string, KubeObject> {
    const state = new Map<string, KubeObject>();
    for (const entry of this.log) {
      if (entry.revision > revision) break;
      if (entry.plural !== kind.plural || entry.object.apiVersion !== kind.apiVersion) continue;
      const key = keyOf(kind, entry.object.metadata);
      if (entry.type === "DELETED") state.delete(key);
      else state.set(key, entry.object);
    }
    return state;
  }

  private update(kind: ResourceKind, existing: KubeObject, merged: KubeObject): KubeObject {
    const { uid, creationTimestamp, resourceVersion, generation = 1, deletionTimestamp } = existing.metadata;
    if (!sameJson(merged.metadata.uid ?? uid, uid))
      throw invalid(kind, existing, "metadata.uid is immutable");
    const fixed = {
      ...merged,
      metadata: {
        ...merged.metadata,
        ...defined({ uid, creationTimestamp, resourceVersion, generation, deletionTimestamp }),
      },
    } as KubeObject;
    if (sameJson(ownableAll(fixed), ownableAll(existing))) return existing;
    const respecified = !sameJson(specOf(fixed), specOf(existing));
    const next = respecified
      ? { ...fixed, metadata: { ...fixed.metadata, generation: generation + 1 } }
      : fixed;
    const released = deletionTimestamp !== undefined && (next.metadata.finalizers ?? []).length === 0;
    const kept = this.fakeKind(kind)?.graceful === true;
    return this.commit(kind, released && !kept ? "DELETED" : "MODIFIED", next, existing);
  }

  private commit(
    kind: ResourceKind,
    type: LogEntry["type"],
    object: KubeObject,
    previous: KubeObject | undefined,
  ): KubeObject {
    this.revisionNow += 1;
    const managedFields = [...this.managersOf(object).keys()].map((manager) => ({
      manager,
      operation: "Apply",
    }));
    const metadata = { ...object.metadata, resourceVersion: String(this.revisionNow), managedFields };
    const stored: KubeObject = { ...object, apiVersion: kind.apiVersion, kind: kind.kind, metadata };
    const key = keyOf(kind, metadata);
    if (type === "DELETED") this.objects.delete(key);
    else this.objects.set(key, stored);
    const entry = { revision: this.revisionNow, plural: kind.plural, type, object: stored, previous };
    this.log.push(entry);
    for (const listener of this.listeners) listener(entry);
    return stored;
  }

  /** Other managers keep what is equal; what differs is a conflict, or taken. */
  private takeOver(
    existing: KubeObject,
    mine: ReadonlyMap<string, unknown>,
    options: WriteOptions & { readonly force: boolean },
  ): void {
    for (const [manager, set] of this.managersOf(existing)) {
      if (manager === managerKey(options)) continue;
      for (const [leaf, value] of mine) {
        if (!set.has(leaf) || sameJson(valueAt(existing, leaf), value)) continue;
        if (!options.force) {
          throw new FakeRefusal(
            409,
            "Conflict",
            `Apply failed with 1 conflict: conflict with "${manager}": ${leaf}`,
          );
        }
        set.delete(leaf);
      }
    }
  }

  private own(object: KubeObject, options: WriteOptions, added: ReadonlySet<string>): void {
    const managers = this.managersOf(object);
    const key = managerKey(options);
    managers.set(key, new Set([...(managers.get(key) ?? []), ...added]));
  }

  private managersOf(object: KubeObject): Map<string, Set<string>> {
    const uid = object.metadata.uid ?? "";
    const known = this.owned.get(uid) ?? new Map<string, Set<string>>();
    this.owned.set(uid, known);
    return known;
  }

  private scoped(kind: ResourceKind, body: Json, subresource: "status" | undefined): Json {
    if (subresource === "status") return { status: body["status"] ?? {} };
    return this.hasStatus(kind) ? withoutStatus(body) : body;
  }

  private hasStatus(kind: ResourceKind): boolean {
    return this.fakeKind(kind)?.status ?? true;
  }

  private fakeKind(kind: ResourceKind): FakeKind | undefined {
    return this.kinds.get(`${kind.apiVersion}/${kind.plural}`);
  }
}

function keyOf(kind: ResourceKind, ref: ObjectRef): string {
  return `${kind.apiVersion}/${kind.plural}/${ref.namespace ?? ""}/${ref.name}`;
}

function managerKey({ manager, subresource }: WriteOptions): string {
  return subresource === undefined ? manager : `${manager}/${subresource}`;
}

function withoutStatus<V extends object>(object: V): V {
  return omit(object, "status") as V;
}

/** What a manager can own of an object. */
function ownable(object: KubeObject): Json {
  const others = omit(object, "apiVersion", "kind", "metadata");
  const { labels, annotations, finalizers, ownerReferences } = object.metadata;
  const kept = defined({ labels, annotations, finalizers, ownerReferences });
  return Object.keys(kept).length === 0 ? others : { ...others, metadata: kept };
}

function ownableAll(object: KubeObject): Json {
  return { ...ownable(object), deletionTimestamp: object.metadata.deletionTimestamp };
}

function specOf(object: KubeObject): Json {
  return omit(ownable(object), "metadata", "status");
}

function defined(values: Json): Json {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

function checkIdentity(kind: ResourceKind, object: KubeObject): void {
  if (!isMap(object.metadata) || typeof object.metadata.name !== "string" || object.metadata.name === "") {
    throw new FakeRefusal(422, "Invalid", `${kind.kind}: metadata.name: Required value`);
  }
  if (object.apiVersion !== kind.apiVersion || object.kind !== kind.kind) {
    throw new FakeRefusal(400, "BadRequest", `${object.apiVersion}/${object.kind} is not ${kind.kind}`);
  }
}

function checkPreconditions(
  kind: ResourceKind,
  existing: KubeObject,
  wanted: { readonly uid?: string; readonly resourceVersion?: string },
): void {
  const { name, uid, resourceVersion } = existing.metadata;
  if (wanted.uid !== undefined && wanted.uid !== uid) {
    throw conflict(kind, name, `the UID in the precondition (${wanted.uid}) does not match (${uid ?? ""})`);
  }
  if (wanted.resourceVersion !== undefined && wanted.resourceVersion !== resourceVersion) {
    throw conflict(kind, name, "the object has been modified");
  }
}

function notFound(kind: ResourceKind, name: string): FakeRefusal {
  return new FakeRefusal(404, "NotFound", `${kind.plural} "${name}" not found`, { name, kind: kind.plural });
}

function conflict(kind: ResourceKind, name: string, why: string): FakeRefusal {
  return new FakeRefusal(
    409,
    "Conflict",
    `Operation cannot be fulfilled on ${kind.plural} "${name}": ${why}`,
    { name },
  );
}

function invalid(kind: ResourceKind, object: KubeObject, why: string): FakeRefusal {
  return new FakeRefusal(422, "Invalid", `${kind.kind} "${object.metadata.name}" is invalid: ${why}`);
}
