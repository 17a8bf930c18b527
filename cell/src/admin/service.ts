import { GrpcCode, GrpcError } from "@lockstep/gateway";
import type { AnswerStream, Implementation } from "@lockstep/gateway";
import { admin } from "@lockstep/proto";
import type { Revision } from "@lockstep/gateway/coordinator";
import { isJoint } from "../raft/index.ts";
import type { MemberAddresses, MemberRecord, Membership } from "../machine/membership.ts";
import type { NamespaceInfo } from "../machine/types.ts";
import type { LogIndex, MemberId } from "../raft/types.ts";
import type { CellCoordinator } from "../replica/coordinator.ts";
import type { Replica } from "../replica/replica.ts";
import { pauseIn } from "../replica/environment.ts";
import { createSnapshotSource } from "../store/index.ts";
import { AdminError } from "./admin-error.ts";
import type { AdminErrorCode } from "./admin-error.ts";
import { CellCommands, refusedCommand } from "./cell-commands.ts";
import type { MembershipChanges } from "./membership-changes.ts";
import { statusOf } from "./status.ts";

export interface AdminServiceOptions {
  readonly replica: Replica;
  readonly coordinator: CellCoordinator;
  readonly changes: MembershipChanges;
  /** What only the process knows about itself. */
  readonly self: { readonly name: string; readonly incarnation: string; readonly version: string };
  readonly leases: () => number;
  readonly watches: () => number;
  /** How long the slowest tenth of the log's recent syncs took at least, in microseconds; 0: too few. */
  readonly syncP90Us: () => number;
  /** Why this member is not ready, in a sentence; undefined: it is. */
  readonly notReady: () => string | undefined;
  /** What this member's TLS stands on. Absent, or undefined: it runs without. */
  readonly tls?: () => admin.TlsStatus | undefined;
}

const NAME = /^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$/i;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const ADDRESS = /^(\[[0-9a-f:]+\]|[a-z0-9.-]+):\d{1,5}$/i;
const COMPACT_DEADLINE_MS = 15_000;

/** The gRPC service for operators and the CLI, for `serviceOf`. */
export type AdminService = Implementation<typeof admin.AdminService>;

/** The gRPC service for operators and the CLI. Refuses by throwing a `GrpcError`. */
export function createAdminService(options: AdminServiceOptions): AdminService {
  const { replica, changes } = options;
  const commands = new CellCommands(replica);
  return {
    status: refusing(() => statusOf(options)),
    listMembers: refusing(async () => {
      const membership = await changes.current();
      return {
        cellId: membership.cellId,
        configurationIndex: membership.configurationIndex,
        joint: isJoint(membership.configuration),
        members: membership.members.map((member) => memberMessage(member, membership)),
        leaderId: replica.leaderId,
        removedIds: [...membership.removedIds],
      };
    }),
    addLearner: refusing((request: admin.AddLearnerRequest) => addLearner(options, request)),
    changeMembership: refusing(async (request: admin.ChangeMembershipRequest) => {
      const membership = await changes.change({
        plannedOn: request.plannedOn as LogIndex,
        promote: request.promote as MemberId[],
        demote: request.demote as MemberId[],
        remove: request.remove as MemberId[],
        force: request.force,
      });
      return {
        configurationIndex: membership.configurationIndex,
        members: membership.members.map((member) => memberMessage(member, membership)),
      };
    }),
    transferLeadership: refusing(async (request: admin.TransferLeadershipRequest) => ({
      leaderId: await changes.transferLeadership(request.target as MemberId),
    })),
    snapshot: (_request, stream) => streamState(replica, stream),
    compact: refusing((request: admin.CompactRequest) => compact(options.coordinator, request)),
    raiseFormatVersion: refusing(async (request: admin.RaiseFormatVersionRequest) => ({
      formatVersion: await commands.raiseFormatVersion(request.version, request.plannedOn as LogIndex),
    })),
    createNamespace: refusing(async ({ name, uid }: admin.CreateNamespaceRequest) => ({
      namespace: namespaceMessage(await commands.createNamespace(name, uid)),
    })),
    deleteNamespace: refusing(async ({ name, uid }: admin.DeleteNamespaceRequest) => ({
      deleted: await commands.deleteNamespace(name, uid),
    })),
    listNamespaces: refusing(async () => {
      const namespaces = await commands.namespaces();
      return {
        cellId: replica.parts.state.membership.cellId,
        namespaces: namespaces.map(namespaceMessage),
      };
    }),
  };
}

/** What the admin API refuses becomes a status with its code in the trailers. */
function refusing<Q, A>(handle: (request: Q) => Promise<A> | A): (request: Q) => Promise<A> {
  return async (request) => {
    try {
      return await handle(request);
    } catch (error) {
      throw error instanceof AdminError ? toGrpcError(error) : error;
    }
  };
}

function toGrpcError({ code, leaderAdmin, message }: AdminError): GrpcError {
  const metadata = {
    "lockstep-error-code": code,
    ...(leaderAdmin === undefined ? {} : { "lockstep-leader-admin": leaderAdmin }),
  };
  return new GrpcError({ code: grpcCode(code), details: message, metadata });
}

function grpcCode(code: AdminErrorCode): GrpcCode {
  switch (code) {
    case "invalid-argument":
      return GrpcCode.INVALID_ARGUMENT;
    case "unknown-member":
    case "unknown-namespace":
      return GrpcCode.NOT_FOUND;
    case "name-in-use":
    case "namespace-exists":
      return GrpcCode.ALREADY_EXISTS;
    case "too-many-members":
    case "too-many-namespaces":
      return GrpcCode.RESOURCE_EXHAUSTED;
    case "no-leader":
      return GrpcCode.UNAVAILABLE;
    case "timeout":
      return GrpcCode.DEADLINE_EXCEEDED;
    case "stale-plan":
    case "change-pending":
      return GrpcCode.ABORTED;
    case "not-leader":
    case "invalid-change":
    case "not-a-learner":
    case "not-a-voter":
    case "learner-not-ready":
    case "unhealthy-cell":
    case "wrong-cell":
    case "format-version":
      return GrpcCode.FAILED_PRECONDITION;
  }
}

async function addLearner(
  options: AdminServiceOptions,
  request: admin.AddLearnerRequest,
): Promise<admin.AddLearnerResponse> {
  const { replica, changes } = options;
  const addresses = checkedAddresses(request.addresses);
  if (!NAME.test(request.name)) {
    throw new AdminError("invalid-argument", "A member's name is 1 to 63 letters, digits, '-' and '.'.");
  }
  if (!UUID.test(request.incarnation)) {
    throw new AdminError(
      "invalid-argument",
      "The incarnation must be the UUID that the member drew for its disk.",
    );
  }
  const { cellId } = replica.parts.state.membership;
  if (request.cellId !== "" && request.cellId !== cellId) {
    throw new AdminError("wrong-cell", `This is cell ${cellId}, not ${request.cellId}.`);
  }
  const record = await changes.addLearner({
    name: request.name,
    incarnation: request.incarnation,
    addresses,
    plannedOn: request.plannedOn as LogIndex,
  });
  const { membership } = replica.parts.state;
  return {
    cellId,
    memberId: record.id,
    configurationIndex: membership.configurationIndex,
    members: membership.members.map((member) => memberMessage(member, membership)),
  };
}

function checkedAddresses(addresses: admin.Addresses | undefined): MemberAddresses {
  const named: admin.Addresses = addresses ?? { client: "", http: "", peer: "", admin: "", ops: "" };
  const { client, http, peer, admin: adminAddress, ops } = named;
  const listed = { client, http, peer, admin: adminAddress, ops };
  for (const [port, address] of Object.entries(listed)) {
    if (!ADDRESS.test(address)) {
      throw new AdminError(
        "invalid-argument",
        `The ${port} address must be HOST:PORT, not ${JSON.stringify(address)}.`,
      );
    }
  }
  return listed;
}

async function streamState(replica: Replica, stream: AnswerStream<admin.SnapshotChunk>): Promise<void> {
  const { state, environment } = replica.parts;
  const source = createSnapshotSource(state.store.view(), { pause: pauseIn(environment) });
  try {
    for (let number = 0; !stream.cancelled; number += 1) {
      const data = await source.chunk(number);
      if (data === undefined) break;
      await stream.write({ data: Buffer.from(data) });
    }
  } finally {
    source.close();
  }
}

function compact(
  coordinator: CellCoordinator,
  request: admin.CompactRequest,
): Promise<admin.CompactResponse> {
  return new Promise((resolve, reject) => {
    coordinator.mutate(
      {
        namespace: request.namespace === "" ? "default" : request.namespace,
        epoch: 0,
        identity: { kind: "none" },
        operation: { kind: "compact", revision: request.revision as Revision },
        deadlineMs: COMPACT_DEADLINE_MS,
      },
      (outcome) => {
        if (outcome.ok) resolve({ revision: outcome.result.revision });
        else reject(refusedCommand(outcome.failure));
      },
    );
  });
}

function memberMessage(member: MemberRecord, membership: Membership): admin.Member {
  const { configuration } = membership;
  const kind = configuration.voters.includes(member.id)
    ? admin.MemberKind.VOTER
    : configuration.learners.includes(member.id)
      ? admin.MemberKind.LEARNER
      : admin.MemberKind.LEAVING;
  return {
    id: member.id,
    name: member.name,
    incarnation: member.incarnation,
    kind,
    addresses: { ...member.addresses },
  };
}

function namespaceMessage({ name, uid, epoch, keys, historyBytes }: NamespaceInfo): admin.CellNamespace {
  return { name, uid, epoch, keys, bytes: historyBytes };
}
