import type { GrpcStatus } from "./call.ts";

/** Ends a call with a status when a handler throws it (see `serviceOf`). */
export class GrpcError extends Error {
  override readonly name: string = "GrpcError";
  readonly status: GrpcStatus;

  constructor(status: GrpcStatus) {
    super(status.details);
    this.status = status;
  }
}
