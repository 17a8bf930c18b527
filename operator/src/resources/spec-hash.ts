import { createHash } from "node:crypto";
import type { CoordinationCellSpec } from "../api/types.ts";

/**
 * Stands for everything about a member's Pod that the user decides: 16 hex digits. A Pod whose annotation differs is
 * restarted, so nothing else may have a part in it: not the operator's version, nor its default image, nor zone, nodes,
 * role and origin of the member. A field that comes to the resource later is added only where it is not its default;
 * the same spec must have the same hash in every release (spec-hash.test.ts holds some).
 */
export function podSpecHash(spec: CoordinationCellSpec): string {
  const { image, imagePullPolicy, resources, podTemplate, settings, tls } = spec;
  const parts = {
    image,
    imagePullPolicy,
    resources,
    podTemplate,
    settings,
    tls: { memberSecretName: tls.memberSecretName },
  };
  return createHash("sha256")
    .update(JSON.stringify(canonical(parts) ?? {}))
    .digest("hex")
    .slice(0, 16);
}

/** Without what is absent or empty, and with keys in order: what means the same is written the same. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.length === 0 ? undefined : value.map(canonical);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value)
    .map(([key, inner]) => [key, canonical(inner)] as const)
    .filter(([, inner]) => inner !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}
