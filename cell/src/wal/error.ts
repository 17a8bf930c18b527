/**
 * What is wrong with a log, stable for programs:
 *
 * - `corrupt`: bytes that were acknowledged no longer verify.
 * - `foreign-identity`: the log belongs to another cell, member or disk (W1).
 * - `gap`: the records contradict each other although every checksum holds (W6).
 * - `missing`: a segment, or the whole log, is not there.
 * - `unsupported-version`: written by a newer format.
 * - `no-space`: the volume is full.
 * - `disk-failed`: a write, sync or directory operation failed (W7).
 */
export type WalErrorCode =
  "corrupt" | "foreign-identity" | "gap" | "missing" | "unsupported-version" | "no-space" | "disk-failed";

/** Where in the log the trouble is. */
export interface WalPosition {
  /** File name of the segment. */
  readonly segment: string;
  /** Byte offset in it. */
  readonly offset: number;
}

/** The one error of this package. Always fatal for the member: nothing in it is worth a retry. */
export class WalError extends Error {
  override readonly name = "WalError";
  readonly code: WalErrorCode;
  readonly position: WalPosition | undefined;

  /** @param problem what is wrong, a clause; a sentence that says what to do is added per code */
  constructor(
    code: WalErrorCode,
    problem: string,
    options: { readonly position?: WalPosition; readonly cause?: unknown } = {},
  ) {
    const { position, cause } = options;
    const where = position === undefined ? "" : ` (segment ${position.segment}, offset ${position.offset})`;
    super(`${problem}${where}. ${ADVICE[code]}`, cause === undefined ? undefined : { cause });
    this.code = code;
    this.position = position;
  }
}

const REPLACE = "Remove this member from its cell and add a new one with an empty disk and a new id";

const ADVICE: Readonly<Record<WalErrorCode, string>> = {
  corrupt: `Acknowledged data is damaged: do not edit or delete segments. Check the disk. ${REPLACE}.`,
  "foreign-identity": "Check that the member was started with its own data directory and its own identity.",
  gap: `The log contradicts itself: keep a copy for a bug report. ${REPLACE}.`,
  missing: `Restore the missing files if they were moved by hand. Otherwise: ${REPLACE}.`,
  "unsupported-version":
    "Start the member with the version of the software that wrote this log, or a newer one.",
  "no-space": "Free space on the volume or enlarge it, then start the member again.",
  "disk-failed": "Check the disk and the kernel log before the member is started again.",
};

/** Wraps what a disk threw during `doing`. A {@link WalError} passes through unchanged. */
export function diskError(doing: string, cause: unknown): WalError {
  if (cause instanceof WalError) return cause;
  const detail = cause instanceof Error ? cause.message : String(cause);
  return new WalError(isNoSpace(cause) ? "no-space" : "disk-failed", `${doing} failed: ${detail}`, { cause });
}

/** True for errors that say the volume (or the quota on it) is full. */
export function isNoSpace(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return code === "ENOSPC" || code === "EDQUOT";
}
