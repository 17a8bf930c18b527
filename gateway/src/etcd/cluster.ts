import { etcd } from "@lockstep/proto/etcd";
import { GrpcCode } from "../grpc/call.ts";
import type { GrpcService, GrpcStatus, ServerCall } from "../grpc/call.ts";
import { GrpcError } from "../grpc/error.ts";
import { serviceOf } from "../grpc/service-of.ts";
import type { EtcdContext } from "./context.ts";
import { headerOf } from "./context.ts";
import type { ControlErrorCode, ControlMember, EtcdControl } from "./control.ts";
import { ControlError } from "./control.ts";
import { ETCD, lockstepStatus } from "./errors.ts";

/** Answers about the cell itself carry no revision, as etcd's. */
const NO_REVISION = 0;

const JOIN_YOURSELF =
  "a member adds itself: start it with --join and the address of one that runs, then promote it (docs/cli.md)";
const MOVED_BY_ITSELF = "a member's addresses are its own: start it with others and they follow";

interface Listed {
  readonly header: etcd.ResponseHeader;
  readonly members: etcd.Member[];
}

/** `etcdserverpb.Cluster`: who the members are, and the changes that are safe to ask for this way. */
export function clusterService(context: EtcdContext, control: EtcdControl, secure: boolean): GrpcService {
  const answer = async (work: Promise<readonly ControlMember[]>): Promise<Listed> => {
    const members = await work.catch((error: unknown) => {
      throw refusalOf(error);
    });
    return {
      header: headerOf(context, NO_REVISION),
      members: members.map((member) => memberOf(member, secure)),
    };
  };
  const changing = (call: ServerCall, work: () => Promise<readonly ControlMember[]>): Promise<Listed> => {
    assertMayChange(control, call);
    return answer(work());
  };
  const current = (): Promise<readonly ControlMember[]> =>
    control.members(true).catch((error: unknown) => {
      throw refusalOf(error);
    });
  /** Whether there is such a member is asked before anything else, so that every member answers alike. */
  const known = async (text: string): Promise<number> => {
    const id = memberIdOf(text);
    if ((await current()).some((member) => member.id === id)) return id;
    throw new GrpcError(ETCD.memberNotFound);
  };
  return serviceOf(etcd.ClusterService, {
    memberList: ({ linearizable }: etcd.MemberListRequest) => answer(control.members(linearizable)),
    memberAdd: async ({ peerURLs }: etcd.MemberAddRequest) => {
      const hosts = peerURLs.map(hostOfUrl);
      if (hosts.length === 0 || hosts.includes(undefined)) throw new GrpcError(ETCD.badUrls);
      const members = await current();
      if (members.some(({ peerAddress }) => hosts.includes(peerAddress))) throw new GrpcError(ETCD.urlsExist);
      throw new GrpcError(lockstepStatus(GrpcCode.UNIMPLEMENTED, JOIN_YOURSELF));
    },
    memberUpdate: async ({ ID }: etcd.MemberUpdateRequest) => {
      await known(ID);
      throw new GrpcError(lockstepStatus(GrpcCode.UNIMPLEMENTED, MOVED_BY_ITSELF));
    },
    memberRemove: ({ ID }: etcd.MemberRemoveRequest, call: ServerCall) =>
      changing(call, async () => control.remove(await known(ID))),
    memberPromote: ({ ID }: etcd.MemberPromoteRequest, call: ServerCall) =>
      changing(call, async () => control.promote(await known(ID))),
  });
}

/** @throws GrpcError */
export function assertMayChange(control: EtcdControl, call: ServerCall): void {
  const reason = control.authorize(call.identity);
  if (reason !== undefined) throw new GrpcError({ code: GrpcCode.PERMISSION_DENIED, details: reason });
}

/** @throws GrpcError for what can be no member's id */
export function memberIdOf(text: string): number {
  const id = Number(text);
  if (!Number.isSafeInteger(id) || id < 1) throw new GrpcError(ETCD.memberNotFound);
  return id;
}

/** host:port of an http or https URL with both and nothing else. */
function hostOfUrl(text: string): string | undefined {
  return /^https?:\/\/((?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d{1,5})$/.exec(text)?.[1];
}

function memberOf(member: ControlMember, secure: boolean): etcd.Member {
  const scheme = secure ? "https" : "http";
  return {
    ID: member.id,
    name: member.name,
    peerURLs: [`${scheme}://${member.peerAddress}`],
    clientURLs: [`${scheme}://${member.clientAddress}`],
    isLearner: member.isLearner,
  };
}

const REFUSALS: Readonly<Record<Exclude<ControlErrorCode, "refused">, GrpcStatus>> = {
  "unknown-member": ETCD.memberNotFound,
  "not-leader": ETCD.notLeader,
  "no-leader": ETCD.noLeader,
  "not-a-learner": ETCD.notALearner,
  "learner-not-ready": ETCD.learnerNotReady,
  "unhealthy-cell": ETCD.unhealthyCluster,
  // Nothing was changed, and soon it can be.
  "change-pending": ETCD.unhealthyCluster,
  timeout: ETCD.timedOut,
};

/** The status of what a control refused; anything else goes on as it is. */
export function refusalOf(error: unknown): unknown {
  if (!(error instanceof ControlError)) return error;
  const status =
    error.code === "refused"
      ? lockstepStatus(GrpcCode.FAILED_PRECONDITION, error.message)
      : REFUSALS[error.code];
  return new GrpcError(status);
}
