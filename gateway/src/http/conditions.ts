import type { FastifyReply, FastifyRequest } from "fastify";
import type { Compare, KeyValue, Revision, TxnResult } from "../coordinator/index.ts";
import { NO_LEASE } from "../coordinator/index.ts";
import { header } from "./backend.ts";
import { leaseOf, leaseText } from "./json.ts";
import { ProblemError, httpProblem, invalid } from "./problem.ts";
import { wholeNumber } from "./target.ts";

const ENTITY_TAG = /^"(\d{1,16})"$/;

/** The revision in `"918420"`. */
function entityTagRevision(text: string, name: string): number {
  const match = ENTITY_TAG.exec(text.trim());
  if (match?.[1] === undefined)
    throw invalid(`the header ${name} is not one entity tag of an earlier answer`);
  return wholeNumber(match[1], { what: `the header ${name}`, least: 1 });
}

/** The conditions of a PUT or DELETE as compares of a transaction; all must hold. @throws ProblemError */
export function conditionsOf(request: FastifyRequest, key: Uint8Array): Compare[] {
  const compares: Compare[] = [];
  const version = header(request, "if-version");
  if (version !== undefined) {
    const operand = wholeNumber(version, { what: "the header If-Version", least: 0 });
    compares.push({ key, target: "version", operator: "=", operand });
  }
  const revision = header(request, "if-revision");
  if (revision !== undefined) {
    const operand = wholeNumber(revision, { what: "the header If-Revision", least: 0 });
    compares.push({ key, target: "mod-revision", operator: "=", operand });
  }
  const lease = header(request, "if-lease");
  if (lease !== undefined) {
    compares.push({ key, target: "lease", operator: "=", operand: leaseOf(lease, "the header If-Lease") });
  }
  const match = header(request, "if-match");
  if (match !== undefined) {
    if (match.trim() === "*") compares.push({ key, target: "version", operator: ">", operand: 0 });
    else {
      const operand = entityTagRevision(match, "If-Match");
      compares.push({ key, target: "mod-revision", operator: "=", operand });
    }
  }
  const noneMatch = header(request, "if-none-match");
  if (noneMatch !== undefined) {
    if (noneMatch.trim() !== "*") throw invalid("the header If-None-Match of a change can only be *");
    compares.push({ key, target: "version", operator: "=", operand: 0 });
  }
  return compares;
}

/** Headers that say which state of the key an answer is about. */
export function versionHeaders(
  kv: Pick<KeyValue, "version" | "createRevision" | "modRevision" | "leaseId">,
): {
  readonly [name: string]: string;
} {
  const lease = leaseText(kv.leaseId);
  return {
    etag: `"${kv.modRevision}"`,
    "lockstep-version": String(kv.version),
    "lockstep-mod-revision": String(kv.modRevision),
    "lockstep-create-revision": String(kv.createRevision),
    "lockstep-fencing-token": String(kv.createRevision),
    ...(lease === null ? {} : { "lockstep-lease": lease }),
  };
}

/** The cell's revision that an answer reflects. */
export function revisionHeader(reply: FastifyReply, revision: Revision): void {
  void reply.header("lockstep-revision", String(revision));
}

/** The answer to a condition that did not hold: what is there instead. */
export function conditionFailed(result: TxnResult): ProblemError {
  const actual = result.failures[0]?.actual;
  const state = {
    version: actual?.version ?? 0,
    revision: actual?.modRevision ?? 0,
    fencingToken: actual?.createRevision ?? 0,
    leaseId: leaseText(actual?.leaseId ?? NO_LEASE),
  };
  const detail =
    actual === undefined
      ? "the condition does not hold: the key does not exist"
      : `the condition does not hold: the key has version ${state.version}, revision ${state.revision}`;
  const headers = { "lockstep-revision": String(result.revision) };
  return new ProblemError(
    httpProblem("condition-failed", detail, state),
    actual === undefined ? headers : { ...headers, ...versionHeaders(actual) },
  );
}
