/** How the door's services ask the coordinator on behalf of their calls. */
import type {
  Mutation,
  MutationOutcome,
  Read,
  ReadOutcome,
  ReadResult,
  WriteOperation,
  WriteResult,
} from "../coordinator/index.ts";
import { NO_IDENTITY } from "../coordinator/index.ts";
import type { UnaryCall } from "../grpc/call.ts";
import { validateRead, validateWrite } from "../validation.ts";
import type { EtcdContext } from "./context.ts";
import { statusOf } from "./errors.ts";

/** Whoever waits for an answer: a call, usually. */
export interface Asker {
  /** Milliseconds that are left; undefined: the cell's default. */
  deadlineMs(): number | undefined;
}

/** A mutation; one that is not valid is refused at once. */
export function submit(
  context: EtcdContext,
  asker: Asker,
  { namespace, operation }: { readonly namespace: string; readonly operation: WriteOperation },
  deliver: (outcome: MutationOutcome) => void,
): void {
  const failure = validateWrite(operation, context.limits);
  if (failure !== undefined) {
    deliver({ ok: false, failure });
    return;
  }
  const deadlineMs = asker.deadlineMs();
  const mutation: Mutation =
    deadlineMs === undefined
      ? { namespace, epoch: 0, identity: NO_IDENTITY, operation }
      : { namespace, epoch: 0, identity: NO_IDENTITY, operation, deadlineMs };
  context.coordinator.mutate(mutation, deliver);
}

/** What of a read a service decides. */
export type Question = Pick<Read, "namespace" | "operation" | "consistency" | "uncounted">;

/** A read; one that is not valid is refused at once. */
export function query(
  context: EtcdContext,
  asker: Asker,
  question: Question,
  deliver: (outcome: ReadOutcome) => void,
): void {
  const failure = validateRead(question.operation, context.limits);
  if (failure !== undefined) {
    deliver({ ok: false, failure });
    return;
  }
  const deadlineMs = asker.deadlineMs();
  const read: Read = { ...question, epoch: 0 };
  context.coordinator.read(deadlineMs === undefined ? read : { ...read, deadlineMs }, deliver);
}

/** {@link submit} for a call that a refusal ends. `deliver` gets good outcomes. */
export function mutate(
  context: EtcdContext,
  call: UnaryCall,
  asked: { readonly namespace: string; readonly operation: WriteOperation },
  deliver: (result: WriteResult) => void,
): void {
  submit(context, call, asked, (outcome) => {
    if (outcome.ok) deliver(outcome.result);
    else call.fail(statusOf(outcome.failure));
  });
}

/** {@link query} for a call that a refusal ends. `deliver` gets good outcomes. */
export function read(
  context: EtcdContext,
  call: UnaryCall,
  question: Question,
  deliver: (result: ReadResult) => void,
): void {
  query(context, call, question, (outcome) => {
    if (outcome.ok) deliver(outcome.result);
    else call.fail(statusOf(outcome.failure));
  });
}
