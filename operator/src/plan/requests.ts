/** CellOperations: one-shot wishes of people, taken one at a time, oldest first. */
import type { CellOperation, OperationStatus } from "../api/types.ts";
import { findMember } from "./facts.ts";
import type { Facts, MemberFacts } from "./facts.ts";
import { atStep, beginOperation, begun, endOperation, isOverdue } from "./outcome.ts";
import type { Outcome } from "./outcome.ts";
import { nextLeader } from "./safety.ts";
import { beginReplace } from "./start.ts";
import { BUSY_LOOK_MS, fromStamp, SICK_LOOK_MS } from "./time.ts";

/** Answers requests whose operation has begun or ended. Before anything new is begun: the answer stands in the status. */
export function answerRequests(facts: Facts): Outcome | undefined {
  const { operation, previous } = facts;
  for (const request of facts.o.requests) {
    const { name } = request.metadata;
    if (request.spec.action === "Pause") continue;
    if (operation?.requestedBy === name) {
      if (request.status?.phase === "Running") continue;
      return finish(request, "Running", operation.cause);
    }
    const last = previous.lastOperation;
    if (last?.requestedBy !== name || isYounger(request, last)) continue;
    const hasSucceeded = last.result.startsWith("Succeeded");
    if (request.spec.action === "Drain" && hasSucceeded) continue;
    // A superseded one is begun again.
    if (last.result.startsWith("Superseded")) continue;
    return finish(request, hasSucceeded ? "Succeeded" : "Failed", last.result);
  }
  return undefined;
}

/** Another CellOperation of the same name, made after that operation. */
function isYounger(request: CellOperation, last: OperationStatus): boolean {
  const created = fromStamp(request.metadata.creationTimestamp);
  return created !== undefined && created > (fromStamp(last.startedAt) ?? created);
}

function finish(request: CellOperation, phase: "Running" | "Succeeded" | "Failed", message: string): Outcome {
  return {
    action: { kind: "finish-request", name: request.metadata.name, phase, message },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

export function startRequest(facts: Facts): Outcome | undefined {
  const [request] = facts.o.requests;
  if (request === undefined) return undefined;
  switch (request.spec.action) {
    case "Pause":
      // In force as long as it is there: the rule about pauses comes before this one.
      return undefined;
    case "Replace":
      return startAskedReplace(facts, request);
    case "Drain":
      return startDrain(facts, request);
    case "TransferLeadership":
      return startTransfer(facts, request);
    case "Restart":
      return startRestart(facts, request);
  }
}

function memberOf(facts: Facts, request: CellOperation): MemberFacts | undefined {
  const member = findMember(facts, request.spec.member ?? "");
  return member?.kind === "voter" ? member : undefined;
}

function unknownMember(facts: Facts, request: CellOperation): Outcome {
  const voters = facts.voters.map(({ name }) => name).join(", ");
  return finish(
    request,
    "Failed",
    `${request.spec.member ?? "No member"} is no voter of this cell. Its voters are ${voters}.`,
  );
}

function replaceFor(facts: Facts, request: CellOperation, member: MemberFacts): Outcome {
  const isDrain = request.spec.action === "Drain";
  const { name } = request.metadata;
  const answer = beginReplace(facts, {
    member,
    trigger: isDrain ? "Drained" : "Requested",
    cause: isDrain
      ? `the CellOperation ${name} drains the node ${request.spec.node ?? ""}`
      : `the CellOperation ${name} asks for it`,
    requestedBy: name,
  });
  if ("operation" in answer) return begun(answer.operation);
  const message = `The CellOperation ${name} waits to replace ${member.name}: ${answer.blocked}`;
  return { waiting: { reason: "RequestWaits", message }, lookAgainMs: SICK_LOOK_MS };
}

function startAskedReplace(facts: Facts, request: CellOperation): Outcome {
  const member = memberOf(facts, request);
  return member === undefined ? unknownMember(facts, request) : replaceFor(facts, request, member);
}

function startDrain(facts: Facts, request: CellOperation): Outcome {
  const { node } = request.spec;
  const onNode = facts.members.filter(({ host, kind }) => host === node && kind !== undefined);
  const voter = onNode.find(({ kind }) => kind === "voter");
  if (voter !== undefined) return replaceFor(facts, request, voter);
  return finish(request, "Succeeded", `No member of the cell is on the node ${node ?? ""}.`);
}

function startRestart(facts: Facts, request: CellOperation): Outcome {
  const member = memberOf(facts, request);
  if (member === undefined) return unknownMember(facts, request);
  const { pod } = member.view;
  if (pod === undefined || pod.terminating) {
    return finish(request, "Failed", `${member.name} has no running pod; it is started by itself.`);
  }
  return begun(
    beginOperation(facts, {
      kind: "Roll",
      cause: `the CellOperation ${request.metadata.name} asks for a restart of ${member.name}`,
      trigger: "Requested",
      step: "begin",
      message: `${member.name} is restarted.`,
      outgoing: [member.name],
      requestedBy: request.metadata.name,
      podUid: pod.uid,
    }),
  );
}

function startTransfer(facts: Facts, request: CellOperation): Outcome {
  const { leader } = facts;
  if (request.spec.member !== undefined && memberOf(facts, request) === undefined) {
    return unknownMember(facts, request);
  }
  if (facts.voters.length === 1)
    return finish(request, "Failed", "A cell with one voter has no other leader.");
  if (leader === undefined) {
    const message = `The CellOperation ${request.metadata.name} waits for a leader.`;
    return { waiting: { reason: "RequestWaits", message }, lookAgainMs: SICK_LOOK_MS };
  }
  if (request.spec.member === leader.name) {
    return finish(request, "Succeeded", `${leader.name} leads already.`);
  }
  return begun(
    beginOperation(facts, {
      kind: "Transfer",
      cause: `the CellOperation ${request.metadata.name} asks for it`,
      trigger: "Requested",
      step: "begin",
      message: `Leadership goes away from ${leader.name}.`,
      outgoing: [leader.name],
      incoming: request.spec.member === undefined ? [] : [request.spec.member],
      requestedBy: request.metadata.name,
    }),
  );
}

export function transfer(facts: Facts): Outcome | undefined {
  const { operation, leader } = facts;
  if (operation?.kind !== "Transfer") return undefined;
  const [target] = operation.incoming ?? [];
  const [before] = operation.outgoing ?? [];
  const isDone = target === undefined ? leader?.name !== before : leader?.name === target;
  if (leader !== undefined && isDone) return endOperation(facts, operation, "Succeeded");
  if (isOverdue(facts, operation)) {
    return endOperation(facts, operation, `Aborted: ${operation.message}`);
  }
  const heir = heirOf(facts, target, before);
  if (heir?.id === undefined) return waitForHeir(facts, operation, target);
  return {
    action: { kind: "transfer-leadership", to: heir.id, why: operation.cause },
    operation: atStep(facts, operation, "transfer", `Leadership goes to ${heir.name}.`),
    waiting: { reason: "Transfer", message: `Leadership goes to ${heir.name}.` },
    lookAgainMs: BUSY_LOOK_MS,
  };
}

function heirOf(
  facts: Facts,
  target: string | undefined,
  before: string | undefined,
): MemberFacts | undefined {
  if (target === undefined) return nextLeader(facts, before === undefined ? [] : [before]);
  const member = findMember(facts, target);
  return member?.healthy === true && member.kind === "voter" ? member : undefined;
}

function waitForHeir(facts: Facts, operation: OperationStatus, target: string | undefined): Outcome {
  const message = `Waits until ${target ?? "another voter"} is healthy and can lead.`;
  return {
    operation: atStep(facts, operation, "wait", message),
    waiting: { reason: "Transfer", message },
    lookAgainMs: BUSY_LOOK_MS,
  };
}
