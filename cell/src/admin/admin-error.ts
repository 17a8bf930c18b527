const ADMIN_ERROR_CODES = [
  "not-leader",
  "no-leader",
  "invalid-argument",
  "stale-plan",
  "change-pending",
  "invalid-change",
  "unknown-member",
  "not-a-learner",
  "not-a-voter",
  "learner-not-ready",
  "unhealthy-cell",
  "name-in-use",
  "too-many-members",
  "wrong-cell",
  "format-version",
  "unknown-namespace",
  "namespace-exists",
  "too-many-namespaces",
  "timeout",
] as const;

/** Stable codes of what the admin API refuses; the `lockstep-error-code` trailer carries them. */
export type AdminErrorCode = (typeof ADMIN_ERROR_CODES)[number];

export function isAdminErrorCode(code: string): code is AdminErrorCode {
  return (ADMIN_ERROR_CODES as readonly string[]).includes(code);
}

/** A refusal of the admin API: the message says what to do. */
export class AdminError extends Error {
  override readonly name = "AdminError";
  readonly code: AdminErrorCode;
  /** With `not-leader`: the leader's admin address, when known. */
  readonly leaderAdmin: string | undefined;

  constructor(code: AdminErrorCode, message: string, leaderAdmin?: string) {
    super(message);
    this.code = code;
    this.leaderAdmin = leaderAdmin;
  }
}
