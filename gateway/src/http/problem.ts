import type { Failure, OperationOutcome } from "../coordinator/index.ts";
import type { HttpProblemCode } from "../status-map.ts";
import { HTTP_STATUS_MAP, STATUS_MAP } from "../status-map.ts";
import { refusal } from "../validation.ts";

/** An RFC 9457 problem; everything beside `type`, `title`, `status` and `detail` is an extension member. */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: string;
  readonly outcome: OperationOutcome;
  readonly [extension: string]: unknown;
}

export const PROBLEM_TYPE = "application/problem+json";

/** Thrown by a handler to answer with a problem. */
export class ProblemError extends Error {
  override readonly name: string = "ProblemError";
  readonly problem: Problem;
  readonly headers: Readonly<Record<string, string>>;

  constructor(problem: Problem, headers: Readonly<Record<string, string>> = {}) {
    super(problem.detail);
    this.problem = problem;
    this.headers = headers;
  }
}

/** The problem of a refusal by the coordinator or by validation. */
export function failureProblem(failure: Failure): ProblemError {
  const { code, outcome, message, compactRevision, retryAfterMs } = failure;
  const { http, title } = STATUS_MAP[code];
  const problem: Problem = {
    type: `urn:lockstep:error:${code}`,
    title,
    status: http,
    detail: message,
    code,
    outcome,
    ...(compactRevision === undefined ? {} : { compactRevision }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
  const headers: Record<string, string> =
    retryAfterMs === undefined ? {} : { "retry-after": String(Math.max(1, Math.ceil(retryAfterMs / 1000))) };
  return new ProblemError(problem, headers);
}

/** A request that is wrong in itself. */
export function invalid(detail: string): ProblemError {
  return failureProblem(refusal("invalid-argument", detail));
}

/** A problem that only the HTTP door knows. */
export function httpProblem(
  code: HttpProblemCode,
  detail: string,
  extensions: Readonly<Record<string, unknown>> = {},
): Problem {
  const { http, title } = HTTP_STATUS_MAP[code];
  return {
    type: `urn:lockstep:error:${code}`,
    title,
    status: http,
    detail,
    code,
    outcome: "not-applied",
    ...extensions,
  };
}
