import { credentials, Metadata, status as GrpcStatus } from "@grpc/grpc-js";
import type { ChannelCredentials, ClientUnaryCall, ServiceError } from "@grpc/grpc-js";
import { admin } from "@lockstep/proto";
import { createHash } from "node:crypto";
import type { PeerCertificate } from "node:tls";
import { CellAdminError } from "./types.ts";
import type {
  CellAdmin,
  CellConfiguration,
  MembershipChange,
  MemberStatus,
  MemberTarget,
  NamespaceInCell,
} from "./types.ts";

/** The operator's own identity towards one cell. PEM. */
export interface AdminCredentials {
  readonly cellUid: string;
  /** A bundle: several while certificate authorities are exchanged. */
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

export interface GrpcCellAdminOptions {
  /** Asked before each call, so that renewed certificates are used at once. Undefined: plain text, for tests on loopback. */
  readonly credentials: () => AdminCredentials | undefined;
}

/** A healthy member answers in a millisecond; one that takes this long is not there for a decision's purposes. */
const STATUS_MS_MAX = 2_000;
/** A read-index round, with an election in between. */
const READ_MS_MAX = 5_000;
/** Decided, and the joint configuration left; when it takes longer the next pass finds the joint configuration. */
const CHANGE_MS_MAX = 20_000;
/** Channels kept; a cell of five has five, and as many again for a moment while certificates change. */
const CHANNELS_MAX = 16;
const MESSAGE_BYTES_MAX = 4 * 1024 * 1024;

type Invoke<T> = (
  client: admin.AdminClient,
  options: { readonly deadline: Date },
  callback: (error: ServiceError | null, response: T) => void,
) => ClientUnaryCall;

/** {@link CellAdmin} over gRPC. Changes go to the member that is named as the leader; a refusal names the right one. */
export class GrpcCellAdmin implements CellAdmin {
  readonly #credentials: GrpcCellAdminOptions["credentials"];
  /** In the order of last use. */
  readonly #channels = new Map<string, admin.AdminClient>();

  constructor(options: GrpcCellAdminOptions) {
    this.#credentials = options.credentials;
  }

  async status(target: MemberTarget): Promise<MemberStatus> {
    const answer = await this.#call<admin.StatusResponse>(
      target,
      STATUS_MS_MAX,
      (client, options, callback) => client.status({}, new Metadata(), options, callback),
    );
    return toStatus(answer);
  }

  async configuration(target: MemberTarget): Promise<CellConfiguration> {
    const answer = await this.#call<admin.ListMembersResponse>(
      target,
      READ_MS_MAX,
      (client, options, callback) => client.listMembers({}, new Metadata(), options, callback),
    );
    return {
      cellId: answer.cellId,
      configurationIndex: answer.configurationIndex,
      joint: answer.joint,
      leaderId: answer.leaderId,
      members: answer.members.map((member) => ({
        id: member.id,
        name: member.name,
        incarnation: member.incarnation,
        kind: kindOf(member.kind),
      })),
      removedIds: answer.removedIds,
    };
  }

  async changeMembership(target: MemberTarget, change: MembershipChange): Promise<void> {
    const request: admin.ChangeMembershipRequest = {
      plannedOn: change.plannedOn,
      promote: [...change.promote],
      demote: [...change.demote],
      remove: [...change.remove],
      // Forcing is for a person at a console, never for a loop.
      force: false,
    };
    await this.#call<admin.ChangeMembershipResponse>(target, CHANGE_MS_MAX, (client, options, callback) =>
      client.changeMembership(request, new Metadata(), options, callback),
    );
  }

  async transferLeadership(target: MemberTarget, memberId: number): Promise<number> {
    const answer = await this.#call<admin.TransferLeadershipResponse>(
      target,
      CHANGE_MS_MAX,
      (client, options, callback) =>
        client.transferLeadership({ target: memberId }, new Metadata(), options, callback),
    );
    return answer.leaderId;
  }

  async raiseFormatVersion(target: MemberTarget, version: number, plannedOn: number): Promise<void> {
    await this.#call<admin.RaiseFormatVersionResponse>(target, CHANGE_MS_MAX, (client, options, callback) =>
      client.raiseFormatVersion({ version, plannedOn }, new Metadata(), options, callback),
    );
  }

  async listNamespaces(target: MemberTarget): Promise<readonly NamespaceInCell[]> {
    const answer = await this.#call<admin.ListNamespacesResponse>(
      target,
      READ_MS_MAX,
      (client, options, callback) => client.listNamespaces({}, new Metadata(), options, callback),
    );
    return answer.namespaces;
  }

  async createNamespace(target: MemberTarget, name: string, uid: string): Promise<NamespaceInCell> {
    const answer = await this.#call<admin.CreateNamespaceResponse>(
      target,
      CHANGE_MS_MAX,
      (client, options, callback) => client.createNamespace({ name, uid }, new Metadata(), options, callback),
    );
    if (answer.namespace === undefined) {
      throw new CellAdminError("malformed-answer", `The cell did not describe ${name}.`, "unknown");
    }
    return answer.namespace;
  }

  async deleteNamespace(target: MemberTarget, name: string, uid: string): Promise<void> {
    await this.#call<admin.DeleteNamespaceResponse>(target, CHANGE_MS_MAX, (client, options, callback) =>
      client.deleteNamespace({ name, uid }, new Metadata(), options, callback),
    );
  }

  close(): void {
    for (const channel of this.#channels.values()) channel.close();
    this.#channels.clear();
  }

  #call<T>(target: MemberTarget, withinMs: number, invoke: Invoke<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const deadline = new Date(Date.now() + withinMs);
      invoke(this.#channel(target), { deadline }, (error, response) => {
        if (error === null) resolve(response);
        else reject(toError(error, target));
      });
    });
  }

  #channel(target: MemberTarget): admin.AdminClient {
    const given = this.#credentials();
    const key = [target.address, target.memberName, given === undefined ? "" : fingerprint(given)].join(" ");
    const known = this.#channels.get(key);
    if (known !== undefined) {
      this.#channels.delete(key);
      this.#channels.set(key, known);
      return known;
    }
    for (const [oldest, channel] of this.#channels) {
      if (this.#channels.size < CHANNELS_MAX) break;
      // Calls under way on it end by themselves.
      channel.close();
      this.#channels.delete(oldest);
    }
    const channel = new admin.AdminClient(target.address, channelCredentials(given, target), {
      "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
      // TLS knows no server by an address. Who it must be is checked below, whatever it is called here.
      "grpc.ssl_target_name_override": target.memberName,
      // Pods come and go: an address is dialled anew soon, and nothing is shared with other channels.
      "grpc.use_local_subchannel_pool": 1,
      "grpc.initial_reconnect_backoff_ms": 100,
      "grpc.max_reconnect_backoff_ms": 1_000,
      // A node that vanished answers no FIN.
      "grpc.keepalive_time_ms": 10_000,
      "grpc.keepalive_timeout_ms": 3_000,
      // The next look is the retry; and no configuration is to be looked for in DNS.
      "grpc.enable_retries": 0,
      "grpc.service_config_disable_resolution": 1,
    });
    this.#channels.set(key, channel);
    return channel;
  }
}

const fingerprints = new WeakMap<AdminCredentials, string>();

function fingerprint(given: AdminCredentials): string {
  let found = fingerprints.get(given);
  if (found === undefined) {
    found = createHash("sha256").update(`${given.ca}\n${given.cert}\n${given.cellUid}`).digest("hex");
    fingerprints.set(given, found);
  }
  return found;
}

function channelCredentials(given: AdminCredentials | undefined, target: MemberTarget): ChannelCredentials {
  if (given === undefined) return credentials.createInsecure();
  return credentials.createSsl(Buffer.from(given.ca), Buffer.from(given.key), Buffer.from(given.cert), {
    checkServerIdentity: (_host, certificate) => wrongMember(certificate, given.cellUid, target.memberName),
  });
}

/**
 * The identity that counts is the URI in the certificate, not the host name: it says which member of which cell this
 * is, so an address that another pod has got meanwhile is found out.
 */
export function wrongMember(
  certificate: Pick<PeerCertificate, "subjectaltname">,
  cellUid: string,
  memberName: string,
): Error | undefined {
  const wanted = `URI:lockstep://${cellUid}/member/${memberName}`;
  const names = (certificate.subjectaltname ?? "").split(", ").filter((name) => name.startsWith("URI:"));
  if (names.length === 1 && names[0] === wanted) return undefined;
  return new Error(
    `The certificate is not that of member ${memberName} of cell ${cellUid}: it says ${names.join(", ") || "nothing"}.`,
  );
}

function toError(error: ServiceError, target: MemberTarget): CellAdminError {
  const message = error.details === "" ? error.message : error.details;
  const named = (error.metadata as Metadata | undefined)?.get("lockstep-error-code")[0];
  if (typeof named === "string" && named !== "") {
    return new CellAdminError(named, message, named === "timeout" ? "unknown" : "not-applied", error);
  }
  if (error.code === GrpcStatus.PERMISSION_DENIED || error.code === GrpcStatus.UNAUTHENTICATED) {
    return new CellAdminError("forbidden", message, "not-applied", error);
  }
  const where = `${target.memberName} (${target.address})`;
  return new CellAdminError("unreachable", `${where} did not answer: ${message}`, "unknown", error);
}

function kindOf(kind: admin.MemberKind): "voter" | "learner" | "leaving" {
  switch (kind) {
    case admin.MemberKind.VOTER:
      return "voter";
    case admin.MemberKind.LEARNER:
      return "learner";
    case admin.MemberKind.LEAVING:
      return "leaving";
    default:
      throw new CellAdminError("malformed-answer", "A member of unknown kind was listed.", "unknown");
  }
}

function roleOf(role: admin.Role): MemberStatus["role"] {
  switch (role) {
    case admin.Role.LEADER:
      return "leader";
    case admin.Role.CANDIDATE:
      return "candidate";
    case admin.Role.PRE_CANDIDATE:
      return "pre-candidate";
    case admin.Role.FOLLOWER:
      return "follower";
    default:
      throw new CellAdminError("malformed-answer", "A member answered with an unknown role.", "unknown");
  }
}

function progressState(state: string): "probe" | "replicate" | "snapshot" {
  return state === "replicate" || state === "snapshot" ? state : "probe";
}

function toStatus(answer: admin.StatusResponse): MemberStatus {
  return {
    cellId: answer.cellId,
    memberId: answer.memberId,
    name: answer.name,
    incarnation: answer.incarnation,
    version: answer.version,
    formatVersion: answer.formatVersion,
    formatVersionMax: answer.formatVersionMax,
    role: roleOf(answer.role),
    term: answer.term,
    leaderId: answer.leaderId,
    lastIndex: answer.lastIndex,
    commitIndex: answer.commitIndex,
    appliedIndex: answer.appliedIndex,
    revision: answer.revision,
    configurationIndex: answer.configurationIndex,
    joint: answer.joint,
    alarms: answer.alarms,
    progress: answer.progress.map((view) => ({
      memberId: view.memberId,
      state: progressState(view.state),
      match: view.match,
      recentlyActive: view.recentlyActive,
      silentMs: view.silentMs,
    })),
    freeBytes: answer.freeBytes,
    volumeBytes: answer.volumeBytes,
    ready: answer.ready,
    notReady: answer.notReady,
    syncP90Us: answer.syncP90Us,
    tls: answer.tls,
  };
}
