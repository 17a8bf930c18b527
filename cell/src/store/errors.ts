/**
 * `open-failed`: nothing was opened. `failed`: a write, a read or a sync of the store failed; it refuses everything
 * from then on and the member must stop (W7, W11). `closed`: used after close. `snapshot-invalid`: a state stream is
 * damaged, of another format or not complete. `not-fresh`: a state stream was pointed at a store that holds rows.
 * `generation-invalid`: the folder of generations is not in a state this program can have left.
 */
export type StoreErrorCode =
  "open-failed" | "failed" | "closed" | "snapshot-invalid" | "not-fresh" | "generation-invalid";

/** Every failure of the store that is not a caller's bug. */
export class StoreError extends Error {
  override readonly name = "StoreError";
  readonly code: StoreErrorCode;

  constructor(code: StoreErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}
