import { isAtLeast, isOlder } from "./resource-version.ts";
import type { KubeObject, ObjectRef } from "./types.ts";

export type Change<T extends KubeObject> =
  | { readonly kind: "added"; readonly object: T }
  | { readonly kind: "updated"; readonly object: T; readonly previous: T }
  /** `object` is the last that was seen of it. */
  | { readonly kind: "deleted"; readonly object: T };

/** Names the groups that an object belongs to; an object without any is in none. */
export type IndexBy<T extends KubeObject> = (object: T) => readonly string[];

const NAMESPACE_INDEX = "namespace";

/**
 * Objects by name, and by whatever else is asked for. Never goes back: what is older than what is held is left out. An
 * object of the same name with another UID is another object: the old one is deleted first.
 */
export class ObjectStore<T extends KubeObject> {
  private readonly emit: (change: Change<T>) => void;
  private readonly objects = new Map<string, T>();
  private readonly indexes = new Map<string, { by: IndexBy<T>; groups: Map<string, Set<string>> }>();

  constructor(emit: (change: Change<T>) => void, indexes: Readonly<Record<string, IndexBy<T>>> = {}) {
    this.emit = emit;
    this.addIndex(NAMESPACE_INDEX, ({ metadata }) => [metadata.namespace ?? ""]);
    for (const [name, by] of Object.entries(indexes)) this.addIndex(`index:${name}`, by);
  }

  get size(): number {
    return this.objects.size;
  }

  get(ref: ObjectRef): T | undefined {
    return this.objects.get(keyOf(ref));
  }

  list(namespace?: string): readonly T[] {
    return namespace === undefined ? [...this.objects.values()] : this.group(NAMESPACE_INDEX, namespace);
  }

  /** @throws TypeError for an index that was not declared */
  byIndex(name: string, value: string): readonly T[] {
    if (!this.indexes.has(`index:${name}`)) throw new TypeError(`no index "${name}"`);
    return this.group(`index:${name}`, value);
  }

  /** The index of a label is made when it is first asked for. */
  byLabel(key: string, value: string): readonly T[] {
    const name = `label:${key}`;
    if (!this.indexes.has(name)) {
      this.addIndex(name, ({ metadata }) => {
        const found = metadata.labels?.[key];
        return found === undefined ? [] : [found];
      });
    }
    return this.group(name, value);
  }

  /** An ADDED or MODIFIED event. @returns false: older than what is held, and left out */
  put(object: T): boolean {
    const key = keyOf(object.metadata);
    const previous = this.objects.get(key);
    if (previous === undefined) {
      this.set(key, object);
      this.emit({ kind: "added", object });
      return true;
    }
    if (isAtLeast(previous.metadata.resourceVersion, object.metadata.resourceVersion)) return false;
    if (previous.metadata.uid === object.metadata.uid) {
      this.set(key, object);
      this.emit({ kind: "updated", object, previous });
    } else {
      this.unset(key, previous);
      this.emit({ kind: "deleted", object: previous });
      this.set(key, object);
      this.emit({ kind: "added", object });
    }
    return true;
  }

  /** A DELETED event. @returns false: it is not about what is held */
  remove(object: T): boolean {
    const key = keyOf(object.metadata);
    const previous = this.objects.get(key);
    if (previous === undefined) return false;
    if (isOlder(object.metadata.resourceVersion, previous.metadata.resourceVersion)) return false;
    this.unset(key, previous);
    // Of another incarnation, and newer: so the one that is held was deleted before, unseen.
    const same = previous.metadata.uid === object.metadata.uid;
    this.emit({ kind: "deleted", object: same ? object : previous });
    return true;
  }

  /** A whole list of one namespace (or, when undefined, of all), at least as new as what is held. Tells only differences. */
  replace(namespace: string | undefined, objects: readonly T[]): void {
    const listed = new Set(objects.map((object) => keyOf(object.metadata)));
    for (const object of this.list(namespace)) {
      if (listed.has(keyOf(object.metadata))) continue;
      this.unset(keyOf(object.metadata), object);
      this.emit({ kind: "deleted", object });
    }
    for (const object of objects) this.put(object);
  }

  private addIndex(name: string, by: IndexBy<T>): void {
    const groups = new Map<string, Set<string>>();
    this.indexes.set(name, { by, groups });
    for (const [key, object] of this.objects) join(groups, by(object), key);
  }

  private group(name: string, value: string): readonly T[] {
    const keys = this.indexes.get(name)?.groups.get(value) ?? [];
    const found: T[] = [];
    for (const key of keys) {
      const object = this.objects.get(key);
      if (object !== undefined) found.push(object);
    }
    return found;
  }

  private set(key: string, object: T): void {
    const previous = this.objects.get(key);
    if (previous !== undefined) this.unset(key, previous);
    this.objects.set(key, deepFreeze(object));
    for (const { by, groups } of this.indexes.values()) join(groups, by(object), key);
  }

  private unset(key: string, object: T): void {
    this.objects.delete(key);
    for (const { by, groups } of this.indexes.values()) leave(groups, by(object), key);
  }
}

function keyOf(ref: ObjectRef): string {
  return `${ref.namespace ?? ""}/${ref.name}`;
}

function join(groups: Map<string, Set<string>>, values: readonly string[], key: string): void {
  for (const value of values) {
    const keys = groups.get(value);
    if (keys === undefined) groups.set(value, new Set([key]));
    else keys.add(key);
  }
}

function leave(groups: Map<string, Set<string>>, values: readonly string[], key: string): void {
  for (const value of values) {
    const keys = groups.get(value);
    keys?.delete(key);
    if (keys?.size === 0) groups.delete(value);
  }
}

/** Freezes plain JSON, all the way down. */
export function deepFreeze<V>(value: V): V {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}
