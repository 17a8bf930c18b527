import { KubeError } from "./types.ts";
import type { KubeErrorReason } from "./types.ts";

/** The apiserver's `Status` object, as far as it is used here. */
export interface StatusBody {
  readonly message?: string;
  readonly reason?: string;
  readonly code?: number;
  readonly details?: { readonly name?: string; readonly retryAfterSeconds?: number };
}

const MESSAGE_LENGTH_MAX = 2_000;
/** How the apiserver answers 500 to a server-side apply that does not fit the schema: no later try will fare better. */
const UNTYPED = "failed to create typed patch object";
const RETRY_AFTER_MS_MAX = 5 * 60_000;

/** @returns undefined when the text is no `Status` (a proxy's page, an old server's "404 page not found"). */
export function parseStatus(text: string): StatusBody | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isStatus(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export function isStatus(value: unknown): value is StatusBody {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "Status";
}

export interface Refusal {
  readonly status: number;
  /** The header, as it came. */
  readonly retryAfter?: string | undefined;
  readonly body?: StatusBody | undefined;
  /** What was asked, for people: `GET /api/v1/...`. */
  readonly what: string;
  readonly text?: string;
}

/** What an answer that is not a success means to the caller. */
export function classify(refusal: Refusal): KubeError {
  const { status, body, what } = refusal;
  const said = (body?.message ?? refusal.text ?? "").slice(0, MESSAGE_LENGTH_MAX).trim();
  const retryAfterMs = retryAfter(refusal.retryAfter, body);
  const absentName = status === 404 && body?.reason === "NotFound" ? body.details?.name : undefined;
  const reason = said.startsWith(UNTYPED) ? "invalid" : reasonOf(status, body?.reason);
  return new KubeError(reason, said === "" ? `${what}: ${status}` : said, {
    status,
    ...(absentName === undefined ? {} : { absentName }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}

function reasonOf(status: number, reason: string | undefined): KubeErrorReason {
  switch (status) {
    case 401:
    case 403:
      return "forbidden";
    case 404:
      return "not-found";
    case 408:
      return "unavailable";
    case 409:
      return reason === "AlreadyExists" ? "already-exists" : "conflict";
    case 410:
      return "expired";
    case 429:
      return "throttled";
    default:
      return status >= 400 && status < 500 ? "invalid" : "unavailable";
  }
}

function retryAfter(header: string | undefined, body: StatusBody | undefined): number | undefined {
  const named = header === undefined ? undefined : Number(header);
  const seconds =
    named !== undefined && Number.isFinite(named) && named >= 0 ? named : body?.details?.retryAfterSeconds;
  if (seconds === undefined || !Number.isFinite(seconds)) return undefined;
  return Math.min(Math.max(0, seconds * 1000), RETRY_AFTER_MS_MAX);
}

/** Any failure on the way to the apiserver or back: what was asked may or may not have happened. */
export function toKubeError(error: unknown, what: string): KubeError {
  if (error instanceof KubeError) return error;
  const said = error instanceof Error ? error.message : String(error);
  return new KubeError("unavailable", `${what}: ${said}`, { cause: error });
}
