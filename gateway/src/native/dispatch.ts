import type {
  Coordinator,
  ClientId,
  Failure,
  Limits,
  Mutation,
  Read,
  ReadOperation,
  Renewal,
  RequestIdentity,
  Revision,
  WriteOperation,
} from "../coordinator/index.ts";
import { NO_IDENTITY } from "../coordinator/index.ts";
import { refusal, validateIdentity, validateRead, validateRenewal, validateWrite } from "../validation.ts";
import type { WireRequest } from "./decode-frame.ts";
import type { DecodedOperation, LeaseRenewOperation } from "./decode-operation.ts";
import { OperationDecoder } from "./decode-operation.ts";
import type { AnyOutcome } from "./outbox.ts";
import { MalformedError, ProtoReader } from "./reader.ts";

/** What all requests of one frame share. */
export interface RequestScope {
  readonly bytes: Buffer;
  readonly namespace: string;
  readonly epoch: number;
}

type Deliver = (outcome: AnyOutcome) => void;

/** Turns requests on the wire into calls of the coordinator; what is wrong with one is its own answer. */
export class Dispatcher {
  private readonly coordinator: Coordinator;
  private readonly limits: Limits;
  private readonly decoder: OperationDecoder;

  constructor(coordinator: Coordinator, limits: Limits) {
    this.coordinator = coordinator;
    this.limits = limits;
    this.decoder = new OperationDecoder(new ProtoReader(), limits.txnOperationsMax);
  }

  /** Calls `deliver` once: at once with a refusal, later with the coordinator's answer. */
  run(scope: RequestScope, request: WireRequest, deliver: Deliver): void {
    const { start, end } = request;
    if (end - start > this.limits.requestBytesMax) {
      const message = `the request has ${end - start} bytes: at most ${this.limits.requestBytesMax} are allowed`;
      deliver({ ok: false, failure: refusal("request-too-large", message) });
      return;
    }
    let operation: DecodedOperation;
    try {
      operation = this.decoder.decode(scope.bytes, start, end);
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      deliver({ ok: false, failure: refusal("invalid-argument", error.message) });
      return;
    }
    switch (operation.kind) {
      case "range":
      case "lease-time-to-live":
      case "lease-list":
      case "txn-read":
        return this.read(scope, request, { operation, deliver });
      case "lease-renew":
        return this.renew(scope, operation, deliver);
      default:
        return this.mutate(scope, request, { operation, deliver });
    }
  }

  private mutate(
    scope: RequestScope,
    request: WireRequest,
    { operation, deliver }: { operation: WriteOperation; deliver: Deliver },
  ): void {
    const identity = identityOf(request);
    const failure =
      validateWrite(operation, this.limits) ??
      (identity === NO_IDENTITY ? undefined : identityFailure(request, identity, this.limits));
    if (failure !== undefined) {
      deliver({ ok: false, failure });
      return;
    }
    const { namespace, epoch } = scope;
    const { deadlineMs } = request;
    const mutation: Mutation =
      deadlineMs === 0
        ? { namespace, epoch, identity, operation }
        : { namespace, epoch, identity, operation, deadlineMs };
    this.coordinator.mutate(mutation, deliver);
  }

  private read(
    scope: RequestScope,
    request: WireRequest,
    { operation, deliver }: { operation: ReadOperation; deliver: Deliver },
  ): void {
    const { serializable, minRevision } = this.decoder;
    const failure = validateRead(operation, this.limits);
    if (failure !== undefined) {
      deliver({ ok: false, failure });
      return;
    }
    const { namespace, epoch } = scope;
    const { deadlineMs } = request;
    const consistency = serializable ? "serializable" : "linearizable";
    let read: Read = { namespace, epoch, operation, consistency };
    if (minRevision !== 0) read = { ...read, minRevision: minRevision as Revision };
    if (deadlineMs !== 0) read = { ...read, deadlineMs };
    this.coordinator.read(read, deliver);
  }

  private renew(scope: RequestScope, operation: LeaseRenewOperation, deliver: Deliver): void {
    const { leaseIds } = operation;
    const failure = validateRenewal(leaseIds, this.limits);
    if (failure !== undefined) {
      deliver({ ok: false, failure });
      return;
    }
    const renewal: Renewal = { namespace: scope.namespace, epoch: scope.epoch, leaseIds };
    this.coordinator.renew(renewal, (outcome) => {
      if (!outcome.ok) {
        deliver(outcome);
        return;
      }
      const { revision, remainingMs } = outcome;
      deliver({ ok: true, result: { kind: "lease-renew", revision, remainingMs } });
    });
  }
}

function identityOf(request: WireRequest): RequestIdentity {
  const { clientId, sequence, acknowledgedBelow, token } = request;
  if (clientId !== 0) return { kind: "client", clientId: clientId as ClientId, sequence, acknowledgedBelow };
  return token === "" ? NO_IDENTITY : { kind: "token", token };
}

function identityFailure(
  request: WireRequest,
  identity: RequestIdentity,
  limits: Limits,
): Failure | undefined {
  if (request.clientId !== 0 && request.token !== "") {
    return refusal(
      "invalid-argument",
      "a request has a client id with a sequence, or a request token, not both",
    );
  }
  return validateIdentity(identity, limits);
}
