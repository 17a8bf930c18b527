import * as coordination from "@lockstep/proto/coordination";

/** An operation as a channel takes it. */
export function encodeOperation(operation: NonNullable<coordination.Operation["operation"]>): Uint8Array {
  return coordination.Operation.encode({ operation }).finish();
}
