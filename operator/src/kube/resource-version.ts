const NUMBER = /^[1-9][0-9]*$/;

/**
 * Orders two resourceVersions of one kind. The Kubernetes API declares those of its own storage to be decimal numbers that
 * grow (and may be more than 53 bits); others are opaque.
 * @returns undefined when nothing can be said
 */
export function compareResourceVersions(
  left: string | undefined,
  right: string | undefined,
): number | undefined {
  if (left === undefined || right === undefined) return undefined;
  if (left === right) return 0;
  if (!NUMBER.test(left) || !NUMBER.test(right)) return undefined;
  if (left.length !== right.length) return left.length - right.length;
  return left < right ? -1 : 1;
}

/** True only when `left` is known to be older. */
export function isOlder(left: string | undefined, right: string | undefined): boolean {
  const order = compareResourceVersions(left, right);
  return order !== undefined && order < 0;
}

/** True when `left` is known to be `right` or newer. */
export function isAtLeast(left: string | undefined, right: string | undefined): boolean {
  const order = compareResourceVersions(left, right);
  return order !== undefined && order >= 0;
}
