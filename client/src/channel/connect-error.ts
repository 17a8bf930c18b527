/**
 * What was really wrong. HTTP/2 cancels the stream of a connection that did not come about, and `net` gathers what each
 * address of a name said without a message of its own.
 */
export function underlying(error: Error): Error {
  if (error.cause instanceof Error) return underlying(error.cause);
  if (!(error instanceof AggregateError)) return error;
  const each = error.errors.map((one) => (one instanceof Error ? one.message : String(one)));
  return new Error(each.join(", "), { cause: error });
}
