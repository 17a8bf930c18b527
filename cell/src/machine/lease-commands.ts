/** Grants, ends and checkpoints of leases. */
import type {
  Cause,
  Failure,
  LeaseGrantOperation,
  LeaseGrantResult,
  LeaseId,
  LeaseRevokeResult,
  Revision,
} from "@lockstep/gateway/coordinator";
import { assert } from "../invariant.ts";
import type { Term } from "../raft/types.ts";
import { compareBytes } from "./bytes.ts";
import type { ApplyContext } from "./context.ts";
import { RevisionWriter } from "./context.ts";
import { leaseNotFound, refusal } from "./failures.ts";
import type { Lease } from "./leases.ts";
import { attachedLists } from "./attached-lists.ts";
import { attachedKeys } from "./leases.ts";
import type { KeyRecord } from "./records.ts";
import type { NamespaceState } from "./state.ts";
import { encodeText } from "./text.ts";
import type { CheckpointCommand, ExpireCommand } from "./types.ts";

/** Digest notes of lease changes that are in no history row. */
const GRANTED = 1;
const ENDED = 2;
const CHECKPOINTED = 3;

export function applyGrant(
  context: ApplyContext,
  namespace: NamespaceState,
  operation: LeaseGrantOperation,
): LeaseGrantResult | Failure {
  const { leaseTtlMsMax, leaseTtlMsMin, leaseOwnerBytesMax } = context.state.settings.limits;
  if (operation.ttlMs > leaseTtlMsMax) {
    return refusal("invalid-argument", `the TTL is above the limit of ${leaseTtlMsMax} ms`);
  }
  const owner = operation.owner ?? "";
  if (owner.length > leaseOwnerBytesMax || encodeText(owner).length > leaseOwnerBytesMax) {
    return refusal("invalid-argument", `the owner is longer than ${leaseOwnerBytesMax} bytes`);
  }
  const leaseId = operation.leaseId ?? chooseLeaseId(context, namespace);
  const lease = context.leases.get(namespace.id, leaseId, context.reader);
  if (lease.exists) return refusal("lease-exists", `lease ${leaseId} exists already`);
  assert(lease.keys === 0, "a new lease holds no keys", { leaseId });
  lease.exists = true;
  lease.ttlMs = operation.ttlMs < leaseTtlMsMin ? leaseTtlMsMin : operation.ttlMs;
  lease.checkpointMs = 0;
  lease.owner = owner;
  context.leases.touch(lease);
  context.sink.note(GRANTED, lease.ttlMs);
  context.leaseChanges.push({ kind: "granted", namespaceId: namespace.id, leaseId, ttlMs: lease.ttlMs });
  return { kind: "lease-grant", leaseId, ttlMs: lease.ttlMs, revision: context.state.revision as Revision };
}

/** Ids that clients chose are stepped over; the counter never goes back, so no id of ours is given twice. */
function chooseLeaseId(context: ApplyContext, namespace: NamespaceState): LeaseId {
  for (;;) {
    const leaseId = String(context.state.nextLeaseId++) as LeaseId;
    if (!context.leases.exists(namespace.id, leaseId, context.reader)) return leaseId;
  }
}

export function applyRevoke(
  context: ApplyContext,
  namespace: NamespaceState,
  leaseId: LeaseId,
): LeaseRevokeResult | Failure {
  const lease = context.leases.get(namespace.id, leaseId, context.reader);
  if (!lease.exists) return leaseNotFound(leaseId);
  const { revision, deleted } = endLease(context, namespace, lease, {
    cause: "lease-revoked",
    attached: lease.keys === 0 ? [] : attachedKeys(namespace.id, leaseId, context.reader),
  });
  return { kind: "lease-revoke", revision, deleted };
}

/** Ignored when its proposer does not lead the entry's term: it was deposed, its deadlines are void (B3). */
export function applyExpire(context: ApplyContext, command: ExpireCommand, term: Term): void {
  const namespace = context.state.namespaces.get(command.namespaceId);
  if (command.leaderTerm !== term || namespace === undefined) return;
  const { leases, reader } = context;
  const ending = command.leaseIds.map((leaseId) => leases.get(namespace.id, leaseId, reader));
  const attached = attachedLists(namespace.id, ending, reader);
  for (const lease of ending) {
    if (!lease.exists) continue;
    endLease(context, namespace, lease, {
      cause: "lease-expired",
      attached: attached.get(lease.leaseId) ?? [],
    });
  }
}

export function applyCheckpoint(context: ApplyContext, command: CheckpointCommand, term: Term): void {
  const namespace = context.state.namespaces.get(command.namespaceId);
  if (command.leaderTerm !== term || namespace === undefined) return;
  for (const { leaseId, remainingMs } of command.leases) {
    const lease = context.leases.get(namespace.id, leaseId, context.reader);
    if (!lease.exists) continue;
    lease.checkpointMs = remainingMs;
    context.leases.touch(lease);
    context.sink.note(CHECKPOINTED, remainingMs);
    context.leaseChanges.push({ kind: "checkpointed", namespaceId: namespace.id, leaseId, remainingMs });
  }
}

/**
 * All keys of the lease go in one revision, in key order.
 *
 * @param ending.attached what the store lists for the lease
 */
function endLease(
  context: ApplyContext,
  namespace: NamespaceState,
  lease: Lease,
  ending: { readonly cause: Cause; readonly attached: readonly Uint8Array[] },
): { readonly revision: Revision; readonly deleted: number } {
  const { cause, attached } = ending;
  const records = recordsOf(context, lease, attached);
  assert(records.length === lease.keys, "a lease's count is that of its keys", {
    leaseId: lease.leaseId,
    counted: lease.keys,
    found: records.length,
  });
  const writer = new RevisionWriter(context, namespace, cause);
  for (const record of records) writer.delete(record);
  const revision = writer.finish();
  lease.exists = false;
  lease.checkpointMs = 0;
  context.leases.touch(lease);
  context.sink.note(ENDED, records.length);
  context.leaseChanges.push({
    kind: "ended",
    namespaceId: namespace.id,
    leaseId: lease.leaseId,
    cause,
    revision,
  });
  return { revision, deleted: records.length };
}

/**
 * The store's list and the batch's additions, sifted by what the records say: a listed key may have moved to another
 * lease or gone in this batch.
 */
function recordsOf(context: ApplyContext, lease: Lease, attached: readonly Uint8Array[]): KeyRecord[] {
  if (lease.keys === 0) return [];
  const { keys, reader } = context;
  const candidates = new Set<KeyRecord>(lease.attached);
  for (const key of attached) candidates.add(keys.cache.obtain(lease.namespaceId, key));
  const all = [...candidates];
  const unknown = all.filter((record) => record.status === "unknown");
  if (unknown.length > 0) keys.load(unknown, reader);
  return all
    .filter((record) => record.status === "live" && record.leaseId === lease.leaseId)
    .sort((a, b) => compareBytes(a.key, b.key));
}
