import { toObject, readPages } from "./pages.ts";
import { resourcePath } from "./resource-path.ts";
import type { PathParts } from "./resource-path.ts";
import type { Rest, RestRequest } from "./rest.ts";
import { KubeError } from "./types.ts";
import type { DeleteOptions, KubeClient, KubeObject, ListOptions, ObjectRef, ResourceKind } from "./types.ts";

export interface KubeClientOptions {
  readonly rest: Rest;
  /** Names this program's fields in every object: one for the program's whole life, over all its versions. */
  readonly fieldManager: string;
}

const APPLY = "application/apply-patch+yaml";
const MERGE_PATCH = "application/merge-patch+json";
const JSON_BODY = "application/json";

export function createKubeClient(options: KubeClientOptions): KubeClient {
  return new RestKubeClient(options);
}

class RestKubeClient implements KubeClient {
  private readonly rest: Rest;
  private readonly fieldManager: string;

  constructor(options: KubeClientOptions) {
    this.rest = options.rest;
    this.fieldManager = options.fieldManager;
  }

  async get<T extends KubeObject>(kind: ResourceKind<T>, ref: ObjectRef): Promise<T | undefined> {
    try {
      const path = resourcePath(kind, partsOf(ref));
      const answer = await this.rest.call({ verb: "get", resource: kind.plural, method: "GET", path });
      return toObject(answer, kind);
    } catch (error) {
      if (isAbsent(error, ref)) return undefined;
      throw error;
    }
  }

  async list<T extends KubeObject>(kind: ResourceKind<T>, options: ListOptions = {}): Promise<readonly T[]> {
    return (await readPages(this.rest, { kind, ...options })).objects;
  }

  create<T extends KubeObject>(kind: ResourceKind<T>, object: T): Promise<T> {
    const { namespace } = object.metadata;
    if (kind.namespaced && namespace === undefined) {
      throw new TypeError(`${kind.kind} "${object.metadata.name}": no namespace`);
    }
    return this.write(kind, {
      verb: "create",
      method: "POST",
      contentType: JSON_BODY,
      path: resourcePath(kind, { namespace, query: { fieldManager: this.fieldManager } }),
      body: object,
    });
  }

  apply<T extends KubeObject>(
    kind: ResourceKind<T>,
    object: T,
    options: { readonly force?: boolean } = {},
  ): Promise<T> {
    return this.patch(kind, object, { force: options.force ?? true });
  }

  applyStatus<T extends KubeObject>(kind: ResourceKind<T>, object: T): Promise<T> {
    return this.patch(kind, object, { force: true, subresource: "status" });
  }

  mergePatch<T extends KubeObject>(
    kind: ResourceKind<T>,
    ref: ObjectRef,
    patch: Readonly<Record<string, unknown>>,
    options: { readonly resourceVersion?: string } = {},
  ): Promise<T> {
    const query = { fieldManager: this.fieldManager };
    return this.write(kind, {
      verb: "patch",
      method: "PATCH",
      contentType: MERGE_PATCH,
      path: resourcePath(kind, { ...partsOf(ref), query }),
      body: withResourceVersion(patch, options.resourceVersion),
    });
  }

  async delete(kind: ResourceKind, ref: ObjectRef, options: DeleteOptions): Promise<void> {
    const { uid, resourceVersion, propagation, gracePeriodSeconds } = options;
    try {
      await this.rest.call({
        verb: "delete",
        resource: kind.plural,
        method: "DELETE",
        contentType: JSON_BODY,
        path: resourcePath(kind, partsOf(ref)),
        body: {
          apiVersion: "v1",
          kind: "DeleteOptions",
          preconditions: { uid, ...(resourceVersion === undefined ? {} : { resourceVersion }) },
          ...(propagation === undefined ? {} : { propagationPolicy: propagation }),
          ...(gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds }),
        },
      });
    } catch (error) {
      if (!isAbsent(error, ref)) throw error;
    }
  }

  private patch<T extends KubeObject>(
    kind: ResourceKind<T>,
    object: T,
    how: { readonly force: boolean; readonly subresource?: "status" },
  ): Promise<T> {
    const { name, namespace } = object.metadata;
    const { subresource } = how;
    const query = { fieldManager: this.fieldManager, force: String(how.force) };
    return this.write(kind, {
      verb: subresource === undefined ? "apply" : "apply-status",
      method: "PATCH",
      contentType: APPLY,
      path: resourcePath(kind, {
        name,
        namespace,
        query,
        ...(subresource === undefined ? {} : { subresource }),
      }),
      body: { ...object, apiVersion: kind.apiVersion, kind: kind.kind },
    });
  }

  private async write<T extends KubeObject>(
    kind: ResourceKind<T>,
    request: Omit<RestRequest, "resource">,
  ): Promise<T> {
    return toObject(await this.rest.call({ ...request, resource: kind.plural }), kind);
  }
}

function partsOf(ref: ObjectRef): PathParts & { readonly name: string } {
  return ref.namespace === undefined ? { name: ref.name } : { name: ref.name, namespace: ref.namespace };
}

/**
 * True only when the apiserver says that this very object does not exist. A kind that it does not know is 404 too, and
 * must not pass for an absent object.
 */
function isAbsent(error: unknown, ref: ObjectRef): boolean {
  return error instanceof KubeError && error.reason === "not-found" && error.absentName === ref.name;
}

function withResourceVersion(
  patch: Readonly<Record<string, unknown>>,
  resourceVersion: string | undefined,
): Readonly<Record<string, unknown>> {
  if (resourceVersion === undefined) return patch;
  const metadata = patch["metadata"];
  const others = typeof metadata === "object" && metadata !== null ? metadata : {};
  return { ...patch, metadata: { ...others, resourceVersion } };
}
