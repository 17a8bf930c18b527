/** A broken invariant. The process that sees one stops; it never limps on (docs/architecture.md). */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

/**
 * Throws {@link InvariantError} unless `condition` holds. Stays on in production.
 *
 * @param message what must hold, stated as a relation, e.g. `"applied <= committed"`
 * @param values the figures that show how it was broken; they end up in the message
 */
export function assert(
  condition: boolean,
  message: string,
  values?: Readonly<Record<string, unknown>>,
): asserts condition {
  if (condition) return;
  const detail = values === undefined ? "" : `: ${describe(values)}`;
  throw new InvariantError(`${message}${detail}`);
}

/** For the last arm of a `switch` over a union: type-checks that no member was forgotten. */
export function assertNever(value: never): never {
  throw new InvariantError(`unexpected variant: ${JSON.stringify(value)}`);
}

function describe(values: Readonly<Record<string, unknown>>): string {
  return Object.entries(values)
    .map(([name, value]) => `${name}=${String(value)}`)
    .join(" ");
}
