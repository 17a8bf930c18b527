import { resourcePath } from "./resource-path.ts";
import type { Rest } from "./rest.ts";
import { KubeError } from "./types.ts";
import type { KubeObject, ListOptions, ResourceKind } from "./types.ts";

export interface WholeList<T extends KubeObject> {
  readonly objects: readonly T[];
  /** The moment that all pages show. */
  readonly resourceVersion: string;
}

export interface ReadPagesOptions<T extends KubeObject> extends ListOptions {
  readonly kind: ResourceKind<T>;
  /** Objects a page; default 500. */
  readonly pageSize?: number;
  readonly signal?: AbortSignal;
}

const PAGE_SIZE = 500;
/** A list whose position expires again and again while it is read is given up. */
const WHOLE_TRIES = 3;
/** Five million objects: whoever lists more asks for the wrong thing. */
const PAGES_MAX = 10_000;

/**
 * Reads a list as of one moment. No resourceVersion is asked for, which makes it a consistent read: as new as what any
 * earlier write was answered with.
 * @throws KubeError
 */
export async function readPages<T extends KubeObject>(
  rest: Rest,
  options: ReadPagesOptions<T>,
): Promise<WholeList<T>> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await readOnce(rest, options);
    } catch (error) {
      if (tried >= WHOLE_TRIES || !(error instanceof KubeError) || error.reason !== "expired") throw error;
    }
  }
}

async function readOnce<T extends KubeObject>(
  rest: Rest,
  options: ReadPagesOptions<T>,
): Promise<WholeList<T>> {
  const { kind, namespace, labelSelector, fieldSelector } = options;
  const limit = String(options.pageSize ?? PAGE_SIZE);
  const objects: T[] = [];
  let from: string | undefined;
  for (let pages = 0; pages < PAGES_MAX; pages += 1) {
    const answer = await rest.call({
      verb: "list",
      resource: kind.plural,
      method: "GET",
      path: resourcePath(kind, { namespace, query: { limit, labelSelector, fieldSelector, continue: from } }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const page = parsePage(answer, kind);
    for (const item of page.items) objects.push(item);
    if (page.next === undefined) return { objects, resourceVersion: page.resourceVersion };
    from = page.next;
  }
  throw new KubeError("invalid", `${kind.plural}: a list of more than ${PAGES_MAX} pages`);
}

interface Page<T> {
  readonly items: readonly T[];
  readonly resourceVersion: string;
  readonly next: string | undefined;
}

function parsePage<T extends KubeObject>(answer: unknown, kind: ResourceKind<T>): Page<T> {
  const list = answer as {
    metadata?: { resourceVersion?: unknown; continue?: unknown } | null;
    items?: unknown;
  } | null;
  const resourceVersion = list?.metadata?.resourceVersion;
  const next = list?.metadata?.continue;
  // An empty list of some kinds comes as null.
  const items = list?.items ?? [];
  if (typeof resourceVersion !== "string" || !Array.isArray(items)) {
    throw new KubeError("unavailable", `${kind.plural}: the answer is not a list`);
  }
  return {
    items: items.map((item) => toObject(item, kind)),
    resourceVersion,
    next: typeof next === "string" && next !== "" ? next : undefined,
  };
}

/**
 * Checks that it is an object at all, and says its kind: items of lists of built-in kinds come without.
 * @throws KubeError `unavailable` otherwise
 */
export function toObject<T extends KubeObject>(value: unknown, kind: ResourceKind<T>): T {
  const object = value as { metadata?: { name?: unknown } | null } | null;
  if (typeof object?.metadata?.name !== "string") {
    throw new KubeError("unavailable", `${kind.plural}: the answer is not an object`);
  }
  return { ...object, apiVersion: kind.apiVersion, kind: kind.kind } as unknown as T;
}
