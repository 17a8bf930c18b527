import { coordination } from "@lockstep/proto";
import type { CoordinatorInfo } from "../coordinator/index.ts";
import { writeFailure, writeResultField } from "./encode-result.ts";
import type { AnyOutcome } from "./outbox.ts";
import type { ReverseWriter } from "./writer.ts";

/** The encoded `InfoResponse`. */
export function encodeInfo(info: CoordinatorInfo): Buffer {
  const { cellId, memberId, term, revision, leader, clientAddresses = [] } = info;
  const message = coordination.InfoResponse.encode({
    cellId,
    memberId,
    term,
    revision,
    leader,
    clientAddresses: [...clientAddresses],
  }).finish();
  return Buffer.from(message.buffer, message.byteOffset, message.byteLength);
}

/** The encoded `ExecuteResponse`. */
export function encodeExecuteResponse(w: ReverseWriter, outcome: AnyOutcome): Buffer {
  if (outcome.ok) {
    if ("replayed" in outcome) w.bool(0x18, outcome.replayed);
    const before = w.length;
    writeResultField(w, outcome.result);
    w.close(0x0a, before);
  } else {
    writeFailure(w, 0x12, outcome.failure);
  }
  return w.finish();
}
