/**
 * Recovery after the quorum is lost for good: one survivor's volume becomes a new cell. Only on request, and the request
 * names the cell that it gives up: once the cell has another id, the same request means nothing.
 *
 *   stop -> recover | release
 */
import type { OperationStatus } from "../api/types.ts";
import { dismiss } from "./cleanup.ts";
import { findMember } from "./facts.ts";
import type { Facts, MemberFacts } from "./facts.ts";
import { atStep, beginOperation, begun, endOperation } from "./outcome.ts";
import type { Outcome } from "./outcome.ts";
import { isVerified } from "./safety.ts";
import { BUSY_LOOK_MS, fromStamp, RECOVERY_PATIENCE_MS, SICK_LOOK_MS } from "./time.ts";

export function recover(facts: Facts): Outcome | undefined {
  const { operation } = facts;
  return operation?.kind === "Recover" ? goOn(facts, operation) : startRecover(facts);
}

function startRecover(facts: Facts): Outcome | undefined {
  const { spec, previous, configuration } = facts;
  const wish = spec.recovery;
  if (wish === undefined || previous.cellId === undefined || wish.cellId !== previous.cellId)
    return undefined;
  if (configuration !== undefined || !isQuorumLostLongEnough(facts)) return undefined;
  const survivor = findMember(facts, wish.survivor);
  if (survivor?.object === undefined || survivor.view.claim === undefined) {
    const message = `The survivor ${wish.survivor} that spec.recovery names has no CellMember with a volume. Name one of ${facts.members.map(({ name }) => name).join(", ")}.`;
    return { stalled: { reason: "RecoveryImpossible", message }, lookAgainMs: SICK_LOOK_MS };
  }
  if (survivor.view.claim.terminating) {
    const message = `The PersistentVolumeClaim of the survivor ${survivor.name} is being deleted: with its Pod, which a recovery stops, all that it holds would go. Name another survivor, or save its state first.`;
    return { stalled: { reason: "RecoveryImpossible", message }, lookAgainMs: SICK_LOOK_MS };
  }
  const others = facts.members.filter(({ name, object }) => name !== survivor.name && object !== undefined);
  return begun(
    beginOperation(facts, {
      kind: "Recover",
      cause: `spec.recovery makes a new cell from ${survivor.name}`,
      trigger: "Requested",
      step: "stop",
      message: "The members of the old cell are stopped.",
      incoming: [survivor.name],
      outgoing: others.map(({ name }) => name),
    }),
  );
}

/** A moment in which nobody answers must not end a cell whose spec still holds a request. */
function isQuorumLostLongEnough(facts: Facts): boolean {
  const quorum = facts.previous.conditions?.find(({ type }) => type === "QuorumHealthy");
  if (quorum === undefined || quorum.status === "True") return false;
  const since = fromStamp(quorum.lastTransitionTime);
  return since !== undefined && facts.nowMs - since >= RECOVERY_PATIENCE_MS;
}

function goOn(facts: Facts, operation: OperationStatus): Outcome {
  const survivor = findMember(facts, operation.incoming?.[0] ?? "");
  if (survivor === undefined) return endOperation(facts, operation, "Aborted: the survivor is gone");
  const oldId = facts.previous.cellId;
  const newId = facts.o.configuration?.cellId;
  if (newId !== undefined && newId !== oldId && survivor.view.status?.cellId === newId) {
    return {
      patch: { cellId: newId, recoveries: (facts.previous.recoveries ?? 0) + 1 },
      operation: atStep(facts, operation, "release", "What is left of the old cell is taken away."),
      events: [
        {
          type: "Warning",
          reason: "Recovered",
          message: `The cell ${oldId ?? ""} was given up for ${newId}.`,
        },
      ],
      waiting: { reason: "Recover", message: `The new cell is ${newId}.` },
      lookAgainMs: 0,
    };
  }
  if (operation.step === "release") return release(facts, operation);
  if (facts.configuration !== undefined) {
    return endOperation(facts, operation, "Cancelled: the old cell has its quorum back");
  }
  const wish = facts.spec.recovery;
  if (wish?.survivor !== survivor.name || wish.cellId !== oldId) {
    return endOperation(facts, operation, "Cancelled: spec.recovery asks for something else now");
  }
  if (survivor.view.claim?.terminating === true && survivor.view.pod !== undefined) {
    return endOperation(facts, operation, `Aborted: the volume of ${survivor.name} is being deleted`);
  }
  return stopOthers(facts, operation, survivor) ?? recoverSurvivor(facts, operation, survivor);
}

function stopOthers(facts: Facts, operation: OperationStatus, survivor: MemberFacts): Outcome | undefined {
  const message = "The members of the old cell are stopped.";
  const entered = {
    operation: atStep(facts, operation, "stop", message),
    waiting: { reason: "Recover", message },
    lookAgainMs: BUSY_LOOK_MS,
  };
  for (const member of facts.members) {
    const { pod, node } = member.view;
    if (pod === undefined || (member === survivor && pod.start === "recover")) continue;
    if (!pod.terminating) {
      const why = "the cell is recovered from one survivor";
      return { action: { kind: "delete-pod", member: member.name, uid: pod.uid, why }, ...entered };
    }
    const willStop = node !== undefined && node !== "gone" && node.ready;
    if (willStop || member === survivor) return entered;
  }
  return undefined;
}

function recoverSurvivor(facts: Facts, operation: OperationStatus, survivor: MemberFacts): Outcome {
  const { name, view } = survivor;
  const message = `Waits for ${name} to come up as a new cell.`;
  const waiting = { reason: "Recover", message };
  const entered = atStep(facts, operation, "recover", message);
  if (view.pod !== undefined) {
    const { trouble, uid, specHash, terminating } = view.pod;
    if (trouble !== undefined && specHash !== view.wantedSpecHash && !terminating) {
      const why = "it cannot run as it was made, and the spec has changed";
      return { action: { kind: "delete-pod", member: name, uid, why }, operation: entered, waiting };
    }
    return {
      operation: entered,
      waiting,
      ...(trouble === undefined ? {} : { stalled: trouble }),
      lookAgainMs: BUSY_LOOK_MS,
    };
  }
  return {
    action: {
      kind: "create-pod",
      member: name,
      mode: { kind: "recover", newName: name, cellId: facts.previous.cellId ?? "" },
      role: "voter",
    },
    operation: entered,
    waiting,
    lookAgainMs: BUSY_LOOK_MS,
  };
}

/** The old cell's volumes are kept, whatever the reclaim policy: they are what is left of what was lost. */
function release(facts: Facts, operation: OperationStatus): Outcome {
  const waiting = { reason: "Recover", message: operation.message };
  if (facts.configuration === undefined || !isVerified(facts)) return { waiting, lookAgainMs: BUSY_LOOK_MS };
  const left = facts.members.find(
    ({ name, kind, object }) =>
      object !== undefined && kind === undefined && name !== operation.incoming?.[0],
  );
  return left === undefined ? endOperation(facts, operation, "Succeeded") : dismiss(left, false);
}
