import type { LeaseId, LeaseListOperation } from "../coordinator/index.ts";
import { refusal } from "../validation.ts";
import type { Backend, Call } from "./backend.ts";
import { revisionHeader } from "./conditions.ts";
import { Fields, bytesField, leaseOf, leaseText, parseBody } from "./json.ts";
import { failureProblem, invalid } from "./problem.ts";

export const LIST_PARAMETERS: readonly string[] = ["after", "limit"];
export const SHOW_PARAMETERS: readonly string[] = ["keys"];

function pathLease(call: Call): LeaseId {
  const { id } = call.request.params as { readonly id: string };
  return leaseOf(id, "the lease in the path");
}

function gone(leaseId: LeaseId): Error {
  return failureProblem(refusal("lease-not-found", `there is no lease ${String(leaseText(leaseId))}`));
}

/** `POST /v1/leases` */
export async function grantLease(backend: Backend, call: Call): Promise<void> {
  const fields = new Fields(parseBody(call.request.body), "the body", ["ttlMs", "owner", "leaseId"]);
  const ttlMs = fields.number("ttlMs", 1);
  if (ttlMs === undefined) throw invalid("the body has no ttlMs");
  const owner = fields.text("owner");
  const leaseId = fields.lease("leaseId");
  const result = await backend.mutate(call, {
    kind: "lease-grant",
    ttlMs,
    ...(owner === undefined ? {} : { owner }),
    ...(leaseId === undefined ? {} : { leaseId }),
  });
  const text = String(leaseText(result.leaseId));
  revisionHeader(call.reply, result.revision);
  await call.reply
    .code(201)
    .header("location", `/v1/leases/${text}`)
    .send({ leaseId: text, ttlMs: result.ttlMs, revision: result.revision });
}

/** `POST /v1/leases/ID/keepalive` */
export async function keepAlive(backend: Backend, call: Call): Promise<void> {
  const leaseId = pathLease(call);
  const { remainingMs, revision } = await backend.renew(call, leaseId);
  revisionHeader(call.reply, revision);
  if (remainingMs === 0) throw gone(leaseId);
  await call.reply.send({ remainingMs, revision });
}

/** `GET /v1/leases/ID`, with the attached keys on `?keys`. */
export async function showLease(backend: Backend, call: Call): Promise<void> {
  const leaseId = pathLease(call);
  const keys = call.query.flag("keys");
  const result = await backend.read(call, { kind: "lease-time-to-live", leaseId, keys });
  revisionHeader(call.reply, result.revision);
  if (result.remainingMs < 0) throw gone(leaseId);
  const { remainingMs, ttlMs, owner, revision } = result;
  await call.reply.send({
    leaseId: leaseText(leaseId),
    remainingMs,
    ttlMs,
    owner,
    revision,
    ...(keys ? { keys: result.keys.map((key) => bytesField("key", key)) } : {}),
  });
}

/** `GET /v1/leases` */
export async function listLeases(backend: Backend, call: Call): Promise<void> {
  const after = call.query.text("after");
  const operation: LeaseListOperation = {
    kind: "lease-list",
    limit: Math.min(
      call.query.number("limit", 1) ?? backend.doorLimits.listKeysDefault,
      backend.limits.rangeKeysMax,
    ),
    ...(after === undefined ? {} : { after: leaseOf(after, "the query parameter after") }),
  };
  const { leases, more, revision } = await backend.read(call, operation);
  revisionHeader(call.reply, revision);
  const last = leases.at(-1);
  await call.reply.send({
    items: leases.map(({ leaseId, ttlMs, owner }) => ({ leaseId: leaseText(leaseId), ttlMs, owner })),
    more,
    revision,
    ...(more && last !== undefined ? { next: leaseText(last.leaseId) } : {}),
  });
}

/** `DELETE /v1/leases/ID`: its keys vanish in one revision. */
export async function revokeLease(backend: Backend, call: Call): Promise<void> {
  const { deleted, revision } = await backend.mutate(call, {
    kind: "lease-revoke",
    leaseId: pathLease(call),
  });
  revisionHeader(call.reply, revision);
  await call.reply.send({ deleted, revision });
}
