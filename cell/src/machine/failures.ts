import type { Failure, FailureCode, Revision } from "@lockstep/gateway/coordinator";

/** A refusal that changed nothing. */
export function refusal(code: FailureCode, message: string): Failure {
  return { code, outcome: "not-applied", message };
}

export function compacted(revision: number, compactRevision: number): Failure {
  return {
    code: "compacted",
    outcome: "not-applied",
    message: `revision ${revision} has been compacted; the oldest one that can be read is ${compactRevision}`,
    compactRevision: compactRevision as Revision,
  };
}

export function futureRevision(revision: number, current: number): Failure {
  return refusal("future-revision", `revision ${revision} is in the future; the newest one is ${current}`);
}

export function leaseNotFound(leaseId: string): Failure {
  return refusal("lease-not-found", `there is no lease ${leaseId}; it ended or was never granted`);
}
