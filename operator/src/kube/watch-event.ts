import { classify, isStatus } from "./errors.ts";
import { toObject } from "./pages.ts";
import { KubeError } from "./types.ts";
import type { KubeObject, ResourceKind } from "./types.ts";

export type WatchEvent<T extends KubeObject> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: T; readonly resourceVersion: string }
  /** Nothing before this position is missing. */
  | { readonly type: "BOOKMARK"; readonly resourceVersion: string };

/**
 * Reads one line of a watch.
 * @throws KubeError what an ERROR event says; `unavailable`, with the cause, for a line that is no event
 */
export function parseWatchEvent<T extends KubeObject>(line: string, kind: ResourceKind<T>): WatchEvent<T> {
  const event = parseLine(line, kind) as { type?: unknown; object?: unknown } | null;
  const type = event?.type;
  if (type === "ERROR") throw errorOf(event?.object, kind);
  const resourceVersion = resourceVersionOf(event?.object);
  if (resourceVersion === undefined)
    throw new MalformedLine(`${kind.plural}: an event without resourceVersion`);
  if (type === "BOOKMARK") return { type, resourceVersion };
  if (type === "ADDED" || type === "MODIFIED" || type === "DELETED") {
    return { type, object: toObject(event?.object, kind), resourceVersion };
  }
  throw new MalformedLine(`${kind.plural}: an event of type ${JSON.stringify(type)}`);
}

/** The stream is broken, not the apiserver's state: the watch starts again where it was. */
export class MalformedLine extends Error {}

function parseLine(line: string, kind: ResourceKind): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new MalformedLine(`${kind.plural}: a line that is not JSON`, { cause });
  }
}

function resourceVersionOf(object: unknown): string | undefined {
  const metadata = (object as { metadata?: { resourceVersion?: unknown } | null } | null | undefined)
    ?.metadata;
  const value = metadata?.resourceVersion;
  return typeof value === "string" && value !== "" ? value : undefined;
}

function errorOf(object: unknown, kind: ResourceKind): KubeError {
  const what = `watch ${kind.plural}`;
  if (!isStatus(object)) return new KubeError("unavailable", `${what}: an error without a status`);
  const expired = object.reason === "Expired" || object.reason === "Gone";
  return classify({ status: object.code ?? (expired ? 410 : 500), body: object, what });
}
