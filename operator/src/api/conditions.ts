import type { Condition } from "./types.ts";

/** A condition as it is to be; when it changed is found out by {@link mergeConditions}. */
export type WantedCondition = Omit<Condition, "lastTransitionTime">;

/** Sorted by importance to people; others follow by name. */
const ORDER = [
  "Ready",
  "Reconciling",
  "Stalled",
  "Available",
  "Degraded",
  "QuorumHealthy",
  "ZonesSpread",
  "UpToDate",
  "CertificatesValid",
  "Paused",
] as const;

/** Longest message that the resources keep. */
const MESSAGE_LENGTH_MAX = 32_768;

/**
 * The whole list as it is to be written: what is not wanted is gone, and `lastTransitionTime` moves only when `status`
 * changes, so that writing the same again changes nothing.
 *
 * @param before as it stands; undefined: none
 * @param now RFC 3339, for conditions whose status changed
 */
export function mergeConditions(
  before: readonly Condition[] | undefined,
  wanted: readonly WantedCondition[],
  now: string,
): readonly Condition[] {
  const known = new Map(before?.map((condition) => [condition.type, condition]));
  const merged = new Map<string, Condition>();
  for (const condition of wanted) {
    const old = known.get(condition.type);
    merged.set(condition.type, {
      ...condition,
      message: shorten(condition.message),
      lastTransitionTime: old?.status === condition.status ? old.lastTransitionTime : now,
    });
  }
  return [...merged.values()].sort((a, b) => rank(a.type) - rank(b.type) || compareNames(a.type, b.type));
}

/** @returns undefined when there is none of the type */
export function findCondition(
  conditions: readonly Condition[] | undefined,
  type: string,
): Condition | undefined {
  return conditions?.find((condition) => condition.type === type);
}

function rank(type: string): number {
  const place = (ORDER as readonly string[]).indexOf(type);
  return place < 0 ? ORDER.length : place;
}

function compareNames(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function shorten(message: string): string {
  return message.length <= MESSAGE_LENGTH_MAX ? message : `${message.slice(0, MESSAGE_LENGTH_MAX - 3)}...`;
}
