import type { Failure, WriteOperation } from "@lockstep/gateway/coordinator";
import { failures } from "../replica/failures.ts";

/** Bounds of the work a leader takes in before it answers `overloaded` (nothing applied, come back later). */
export interface AdmissionLimits {
  /** Commands taken in and not answered. Default 50,000. */
  readonly commandsPendingMax: number;
  /** Linearizable reads waiting. Default 50,000. */
  readonly readsPendingMax: number;
  /** Entries committed and not yet applied here. Default 5,000. */
  readonly applyLagMax: number;
  /** Bytes of live and retained history over all namespaces; growth is refused beyond. Default 8 GiB. */
  readonly quotaBytes: number;
}

export const ADMISSION_DEFAULTS: AdmissionLimits = {
  commandsPendingMax: 50_000,
  readsPendingMax: 50_000,
  applyLagMax: 5_000,
  quotaBytes: 8 * 1024 * 1024 * 1024,
};

/** What the leader knows about its load when it decides. */
export interface Load {
  readonly commandsPending: number;
  readonly readsPending: number;
  readonly applyLag: number;
  readonly logicalBytes: number;
  /** 0..1, of the store. */
  readonly stallPressure: number;
  readonly spaceLow: boolean;
  readonly diverged: boolean;
}

/**
 * Decides before a command costs anything, and before it is proposed, so that a refusal is definite: nothing was
 * applied. Renewals do not come here: they pass by (architecture, section 8).
 */
export function admitMutation(
  operation: WriteOperation,
  load: Load,
  limits: AdmissionLimits,
): Failure | undefined {
  if (load.diverged) return failures.diverged();
  if (load.commandsPending >= limits.commandsPendingMax) return failures.overloaded("commands in flight");
  if (load.applyLag >= limits.applyLagMax) return failures.overloaded("entries waiting to be applied");
  if (load.stallPressure >= 1) return failures.overloaded("the store is compacting");
  if (!grows(operation)) return undefined;
  if (load.spaceLow) return failures.noSpace();
  if (load.logicalBytes >= limits.quotaBytes) {
    return failures.quotaExceeded(load.logicalBytes, limits.quotaBytes);
  }
  return undefined;
}

export function admitRead(load: Pick<Load, "readsPending">, limits: AdmissionLimits): Failure | undefined {
  return load.readsPending >= limits.readsPendingMax ? failures.overloaded("reads in flight") : undefined;
}

/** Whether the operation may make the state larger. Registering a client does, but without it nobody could delete. */
export function grows(operation: WriteOperation): boolean {
  switch (operation.kind) {
    case "put":
    case "lease-grant":
      return true;
    case "txn":
      return [operation.success, operation.failure].some((branch) =>
        branch.some((step) => step.kind === "put" || (step.kind === "txn" && grows(step))),
      );
    case "delete":
    case "lease-revoke":
    case "compact":
    case "register-client":
      return false;
  }
}
