import type { FastifyReply, FastifyRequest } from "fastify";
import type {
  Coordinator,
  Failure,
  LeaseId,
  Limits,
  Mutation,
  Read,
  ReadOperation,
  ReadResult,
  RequestIdentity,
  Revision,
  WriteOperation,
  WriteResult,
} from "../coordinator/index.ts";
import { NO_IDENTITY } from "../coordinator/index.ts";
import {
  DEFAULT_NAMESPACE,
  refusal,
  validateIdentity,
  validateNamespace,
  validateRead,
  validateRenewal,
  validateWrite,
} from "../validation.ts";
import type { HttpDoorLimits } from "./limits.ts";
import { failureProblem, invalid } from "./problem.ts";
import type { Target } from "./target.ts";
import { Query, splitTarget, wholeNumber } from "./target.ts";

/** Parameters that every route takes. */
const COMMON_PARAMETERS = ["timeoutMs"];

/** What a request says beside its operation. */
export interface Scope {
  readonly namespace: string;
  readonly epoch: number;
  readonly deadlineMs: number | undefined;
}

/** A request of a route, taken apart. */
export interface Call {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly target: Target;
  readonly query: Query;
  readonly scope: Scope;
}

/** One value of a header. @throws ProblemError when it is repeated. */
export function header(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  if (value === undefined || typeof value === "string") return value;
  throw invalid(`the header ${name} is given more than once`);
}

export interface ReadOptions {
  readonly serializable?: boolean;
  readonly minRevision?: number | undefined;
}

type ResultOf<Operation extends { readonly kind: string }, Result> = Extract<
  Result,
  { readonly kind: Operation["kind"] }
>;

/** The coordinator as the routes use it: checked, bounded, and with refusals thrown as problems. */
export class Backend {
  readonly coordinator: Coordinator;
  readonly limits: Limits;
  readonly doorLimits: HttpDoorLimits;
  private inFlight = 0;

  constructor(coordinator: Coordinator, limits: Limits, doorLimits: HttpDoorLimits) {
    this.coordinator = coordinator;
    this.limits = limits;
    this.doorLimits = doorLimits;
  }

  /** Takes a request apart. @throws ProblemError */
  open(request: FastifyRequest, reply: FastifyReply, parameters: readonly string[]): Call {
    const target = splitTarget(request.originalUrl);
    const query = new Query(target.query, [...COMMON_PARAMETERS, ...parameters]);
    const namespace = header(request, "lockstep-namespace") ?? DEFAULT_NAMESPACE;
    const failure = validateNamespace(namespace, this.limits);
    if (failure !== undefined) throw failureProblem(failure);
    const epoch = header(request, "lockstep-epoch");
    const scope = {
      namespace,
      epoch: epoch === undefined ? 0 : wholeNumber(epoch, { what: "the header Lockstep-Epoch", least: 0 }),
      deadlineMs: query.number("timeoutMs", 1),
    };
    return { request, reply, target, query, scope };
  }

  /** Runs a mutation under the call's `Request-ID`. @throws ProblemError */
  async mutate<Operation extends WriteOperation>(
    call: Call,
    operation: Operation,
  ): Promise<ResultOf<Operation, WriteResult>> {
    const identity = identityOf(call.request);
    refuse(validateWrite(operation, this.limits) ?? validateIdentity(identity, this.limits));
    this.enter();
    const { namespace, epoch, deadlineMs } = call.scope;
    const mutation: Mutation =
      deadlineMs === undefined
        ? { namespace, epoch, identity, operation }
        : { namespace, epoch, identity, operation, deadlineMs };
    const result = await new Promise<WriteResult>((resolve, reject) => {
      this.coordinator.mutate(mutation, (outcome) => {
        this.inFlight -= 1;
        if (!outcome.ok) {
          reject(failureProblem(outcome.failure));
          return;
        }
        if (outcome.replayed) void call.reply.header("lockstep-replayed", "true");
        resolve(outcome.result);
      });
    });
    return result as ResultOf<Operation, WriteResult>;
  }

  /** @throws ProblemError */
  async read<Operation extends ReadOperation>(
    call: Call,
    operation: Operation,
    { serializable, minRevision }: ReadOptions = {},
  ): Promise<ResultOf<Operation, ReadResult>> {
    refuse(validateRead(operation, this.limits));
    this.enter();
    const { namespace, epoch, deadlineMs } = call.scope;
    const read: Read = {
      namespace,
      epoch,
      operation,
      consistency: serializable === true ? "serializable" : "linearizable",
      ...(minRevision === undefined ? {} : { minRevision: minRevision as Revision }),
      ...(deadlineMs === undefined ? {} : { deadlineMs }),
    };
    const result = await new Promise<ReadResult>((resolve, reject) => {
      this.coordinator.read(read, (outcome) => {
        this.inFlight -= 1;
        if (outcome.ok) resolve(outcome.result);
        else reject(failureProblem(outcome.failure));
      });
    });
    return result as ResultOf<Operation, ReadResult>;
  }

  /** @returns the remaining TTL (0: the lease is gone) and the cell's revision. @throws ProblemError */
  async renew(call: Call, leaseId: LeaseId): Promise<{ remainingMs: number; revision: Revision }> {
    refuse(validateRenewal([leaseId], this.limits));
    this.enter();
    const { namespace, epoch } = call.scope;
    return new Promise((resolve, reject) => {
      this.coordinator.renew({ namespace, epoch, leaseIds: [leaseId] }, (outcome) => {
        this.inFlight -= 1;
        if (outcome.ok) resolve({ remainingMs: outcome.remainingMs[0] ?? 0, revision: outcome.revision });
        else reject(failureProblem(outcome.failure));
      });
    });
  }

  private enter(): void {
    const { requestsInFlightMax, overloadRetryAfterMs } = this.doorLimits;
    if (this.inFlight >= requestsInFlightMax) {
      const message = `the member has ${requestsInFlightMax} unanswered HTTP requests`;
      throw failureProblem(refusal("overloaded", message, overloadRetryAfterMs));
    }
    this.inFlight += 1;
  }
}

function refuse(failure: Failure | undefined): void {
  if (failure !== undefined) throw failureProblem(failure);
}

function identityOf(request: FastifyRequest): RequestIdentity {
  const token = header(request, "request-id");
  return token === undefined ? NO_IDENTITY : { kind: "token", token };
}
