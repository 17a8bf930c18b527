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

/** What was really wrong, in words that say what to look at. */
export function explained(error: Error): Error {
  const cause = underlying(error);
  if ("code" in cause && cause.code === "ERR_HTTP2_ERROR") {
    return new Error("what answers does not speak HTTP/2", { cause });
  }
  // OpenSSL's own text is a line of addresses and sources of its own.
  if ("reason" in cause && typeof cause.reason === "string" && "library" in cause) {
    const hint = cause.reason === "wrong version number" ? " (what answers does not speak TLS)" : "";
    return new Error(`TLS: ${cause.reason}${hint}`, { cause });
  }
  return cause;
}

/** Why a connection was closed without an answer, which a peer does that does not like how it is spoken to. */
export function closedUnanswered(problem: Error | undefined, isTls: boolean): Error {
  const isReset = problem !== undefined && "code" in problem && problem.code === "ECONNRESET";
  if (problem !== undefined && !isReset) return problem;
  const hint = isTls ? "does it accept this client's certificate?" : "does it expect TLS?";
  const message = `${problem?.message ?? "the connection was closed"} before anything was answered; ${hint}`;
  return new Error(message, { cause: problem });
}
