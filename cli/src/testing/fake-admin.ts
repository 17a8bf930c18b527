import { Metadata, Server, ServerCredentials, status, type sendUnaryData } from "@grpc/grpc-js";
import { admin } from "@lockstep/proto";

const NO_STATUS: admin.StatusResponse = {
  cellId: "fake",
  memberId: 1,
  name: "m1",
  incarnation: "11111111-1111-4111-8111-111111111111",
  version: "0.0.0",
  formatVersion: 1,
  role: admin.Role.LEADER,
  term: 3,
  leaderId: 1,
  lastIndex: 5_000,
  commitIndex: 5_000,
  appliedIndex: 5_000,
  revision: 42,
  configurationIndex: 9,
  joint: false,
  databaseBytes: 2_048,
  logBytes: 100,
  logFirstIndex: 1,
  barrierIndex: 1,
  leases: 0,
  watches: 0,
  digest: "",
  digestCheckpointIndex: 0,
  digestAtCheckpoint: "",
  alarms: [],
  progress: [],
  freeBytes: 1,
  ready: true,
  keys: 7,
  formatVersionMax: 1,
  tls: undefined,
  volumeBytes: 2,
  syncP90Us: 900,
  notReady: "",
};

export function fakeMember(id: number, kind: admin.MemberKind, address = ""): admin.Member {
  return {
    id,
    name: `m${String(id)}`,
    incarnation: String(id),
    kind,
    addresses: {
      client: `127.0.0.1:${String(id)}0`,
      http: `127.0.0.1:${String(id)}1`,
      peer: `127.0.0.1:${String(id)}2`,
      admin: address,
      ops: `127.0.0.1:${String(id)}4`,
    },
  };
}

/** The admin service of one member, with what it answers in the test's hands. */
export class FakeAdmin {
  address = "";
  status: admin.StatusResponse = { ...NO_STATUS };
  members: admin.Member[] = [];
  joint = false;
  /** Set: changes are refused, with this leader named. */
  leaderElsewhere: string | undefined;
  readonly changes: admin.ChangeMembershipRequest[] = [];
  readonly transfers: number[] = [];
  readonly raises: admin.RaiseFormatVersionRequest[] = [];
  readonly deletions: admin.DeleteNamespaceRequest[] = [];
  namespaces: admin.CellNamespace[] = [{ name: "default", uid: "", epoch: 1, keys: 7, bytes: 2_048 }];
  /** Called at each status, e.g. to let a learner catch up. */
  onStatus: () => void = () => undefined;
  snapshotChunks: Buffer[] = [];
  readonly #server = new Server();

  static async start(): Promise<FakeAdmin> {
    const fake = new FakeAdmin();
    fake.#server.addService(admin.AdminService, fake.#handlers());
    const port = await new Promise<number>((resolve, reject) => {
      fake.#server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => {
        if (error === null) resolve(bound);
        else reject(error);
      });
    });
    fake.address = `127.0.0.1:${String(port)}`;
    return fake;
  }

  stop(): void {
    this.#server.forceShutdown();
  }

  #handlers(): admin.AdminServer {
    const refusal = (): { code: status; details: string; metadata: Metadata } => {
      const metadata = new Metadata();
      metadata.set("lockstep-leader-admin", this.leaderElsewhere ?? "");
      return { code: status.FAILED_PRECONDITION, details: "not the leader", metadata };
    };
    const answer = <T>(callback: sendUnaryData<T>, response: () => T): void => {
      if (this.leaderElsewhere !== undefined) callback(refusal());
      else callback(null, response());
    };
    return {
      status: (_call, callback) => {
        this.onStatus();
        callback(null, this.status);
      },
      listMembers: (_call, callback) => {
        answer(callback, () => ({
          cellId: "fake",
          configurationIndex: this.status.configurationIndex,
          joint: this.joint,
          members: this.members,
          leaderId: this.status.leaderId,
          removedIds: [66],
        }));
      },
      addLearner: (_call, callback) => {
        answer(callback, () => ({
          cellId: "fake",
          memberId: 9,
          configurationIndex: 10,
          members: this.members,
        }));
      },
      changeMembership: (call, callback) => {
        answer(callback, () => {
          this.changes.push(call.request);
          return { configurationIndex: 11, members: this.members };
        });
      },
      transferLeadership: (call, callback) => {
        answer(callback, () => {
          this.transfers.push(call.request.target);
          return { leaderId: call.request.target === 0 ? 2 : call.request.target };
        });
      },
      snapshot: (call) => {
        for (const data of this.snapshotChunks) call.write({ data });
        call.end();
      },
      compact: (_call, callback) => {
        answer(callback, () => ({ revision: 1 }));
      },
      raiseFormatVersion: (call, callback) => {
        answer(callback, () => {
          this.raises.push(call.request);
          return { formatVersion: call.request.version };
        });
      },
      createNamespace: (call, callback) => {
        answer(callback, () => {
          const namespace = { ...call.request, epoch: 1, keys: 0, bytes: 0 };
          this.namespaces.push(namespace);
          return { namespace };
        });
      },
      deleteNamespace: (call, callback) => {
        answer(callback, () => {
          const before = this.namespaces.length;
          this.deletions.push(call.request);
          this.namespaces = this.namespaces.filter(({ name }) => name !== call.request.name);
          return { deleted: this.namespaces.length < before };
        });
      },
      listNamespaces: (_call, callback) => {
        answer(callback, () => ({ cellId: "fake", namespaces: this.namespaces }));
      },
    };
  }
}
