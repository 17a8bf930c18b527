import type { ResourceKind } from "./types.ts";

export interface PathParts {
  readonly namespace?: string | undefined;
  readonly name?: string;
  readonly subresource?: "status";
  readonly query?: Readonly<Record<string, string | undefined>>;
}

/** @throws TypeError when a namespaced object is named without its namespace, or the other way round */
export function resourcePath(kind: ResourceKind, parts: PathParts): string {
  if (!kind.namespaced && parts.namespace !== undefined) {
    throw new TypeError(`${kind.kind} is not namespaced`);
  }
  if (kind.namespaced && parts.name !== undefined && parts.namespace === undefined) {
    throw new TypeError(`${kind.kind} "${parts.name}": no namespace`);
  }
  const root = kind.apiVersion.includes("/") ? `/apis/${kind.apiVersion}` : `/api/${kind.apiVersion}`;
  const namespace = parts.namespace === undefined ? "" : `/namespaces/${encodeURIComponent(parts.namespace)}`;
  const name = parts.name === undefined ? "" : `/${encodeURIComponent(parts.name)}`;
  const subresource = parts.subresource === undefined ? "" : `/${parts.subresource}`;
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parts.query ?? {})) {
    if (value !== undefined) query.set(key, value);
  }
  const suffix = query.size === 0 ? "" : `?${query.toString()}`;
  return `${root}${namespace}/${kind.plural}${name}${subresource}${suffix}`;
}
