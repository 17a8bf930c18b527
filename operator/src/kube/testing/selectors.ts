import type { KubeObject } from "../types.ts";

/** True for what a label selector and a field selector let through: `a=b`, `a!=b`, `a`, `!a`, `a in (x,y)`, `a notin (x)`. */
export function selects(
  object: KubeObject,
  labelSelector: string | undefined,
  fieldSelector: string | undefined,
): boolean {
  const labels = object.metadata.labels ?? {};
  const fits = (selector: string | undefined, value: (key: string) => string | undefined): boolean =>
    requirements(selector ?? "").every((requirement) => holds(requirement, value));
  return (
    fits(labelSelector, (key) => labels[key]) && fits(fieldSelector, (key) => fieldOf(object, key) ?? "")
  );
}

function requirements(selector: string): string[] {
  return selector
    .split(/,(?![^(]*\))/)
    .map((part) => part.trim())
    .filter((part) => part !== "");
}

function holds(requirement: string, value: (key: string) => string | undefined): boolean {
  const set = /^(\S+)\s+(in|notin)\s+\((.*)\)$/.exec(requirement);
  if (set !== null) {
    const [, key = "", operator, list = ""] = set;
    const actual = value(key);
    const among = actual !== undefined && list.split(",").some((each) => each.trim() === actual);
    return operator === "in" ? among : !among;
  }
  const equality = /^([^=!\s]+)\s*(==|=|!=)\s*(.*)$/.exec(requirement);
  if (equality !== null) {
    const [, key = "", operator, expected] = equality;
    return operator === "!=" ? value(key) !== expected : value(key) === expected;
  }
  return requirement.startsWith("!")
    ? value(requirement.slice(1)) === undefined
    : value(requirement) !== undefined;
}

function fieldOf(object: KubeObject, path: string): string | undefined {
  let value: unknown = object;
  for (const step of path.split(".")) value = (value as Record<string, unknown> | undefined)?.[step];
  return typeof value === "string" ? value : undefined;
}
