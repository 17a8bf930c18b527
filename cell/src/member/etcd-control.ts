import { ControlError } from "@lockstep/gateway";
import type { CertificateIdentity, ControlErrorCode, ControlMember, EtcdControl } from "@lockstep/gateway";
import { AdminError } from "../admin/admin-error.ts";
import type { AdminErrorCode } from "../admin/admin-error.ts";
import type { ChangesAtLeader } from "../admin/changes-at-leader.ts";
import type { MembershipChanges } from "../admin/membership-changes.ts";
import type { Membership } from "../machine/membership.ts";
import type { MemberId } from "../raft/types.ts";
import { pauseIn } from "../replica/environment.ts";
import type { Replica } from "../replica/replica.ts";
import { createSnapshotSource } from "../store/index.ts";

export interface MemberControlOptions {
  readonly replica: Replica;
  readonly changes: MembershipChanges;
  readonly changesAtLeader: ChangesAtLeader;
  /** Bytes that a namespace's data may have before growth is refused. */
  readonly quotaBytes: number;
}

/** What etcd's clients may ask about the cell, by the same path as the admin API. */
export function createEtcdControl(options: MemberControlOptions): EtcdControl {
  const { replica, changes, changesAtLeader, quotaBytes } = options;
  const change = (remove: readonly number[], promote: readonly number[]): Promise<readonly ControlMember[]> =>
    refusing(async () => {
      await changesAtLeader.change({ promote: promote as MemberId[], remove: remove as MemberId[] });
      return membersOf(await changes.current());
    });
  return {
    members: async (linearizable) =>
      membersOf(linearizable ? await refusing(() => changes.current()) : replica.parts.state.membership),
    remove: (id) => change([id], []),
    promote: (id) => change([], [id]),
    transferLeadership: (id) =>
      refusing(async () => {
        await changes.transferLeadership(id as MemberId);
      }),
    status: () => {
      const { raft, state, space, self } = replica.parts;
      const { configuration } = state.membership;
      return {
        isLearner: configuration.learners.includes(self),
        lastIndex: raft.status().lastIndex,
        appliedIndex: state.machine.appliedIndex,
        databaseBytes: state.store.statistics().bytes,
        databaseBytesInUse: state.logicalBytes,
        quotaBytes,
        spaceLow: space.anyLow(configuration.voters),
        diverged: replica.isDiverged,
      };
    },
    snapshot: async (write) => {
      const { state, environment } = replica.parts;
      const source = createSnapshotSource(state.store.view(), { pause: pauseIn(environment) });
      try {
        for (let number = 0; ; number += 1) {
          const chunk = await source.chunk(number);
          if (chunk === undefined || !(await write(Buffer.from(chunk)))) return;
        }
      } finally {
        source.close();
      }
    },
    authorize: mayChange,
  };
}

/** As on the admin port: administrators. Without TLS only this machine reaches the port. */
function mayChange(identity: CertificateIdentity | undefined): string | undefined {
  if (identity === undefined || identity.kind === "admin") return undefined;
  return `${identity.kind}/${identity.name} may not change the cell: that is for administrators`;
}

function membersOf({ members, configuration }: Membership): readonly ControlMember[] {
  return members.map(({ id, name, addresses }) => ({
    id,
    name,
    peerAddress: addresses.peer,
    clientAddress: addresses.client,
    isLearner: configuration.learners.includes(id),
  }));
}

async function refusing<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof AdminError)) throw error;
    throw new ControlError(CODES[error.code] ?? "refused", error.message);
  }
}

const CODES: Readonly<Partial<Record<AdminErrorCode, ControlErrorCode>>> = {
  "unknown-member": "unknown-member",
  "not-leader": "not-leader",
  "no-leader": "no-leader",
  "not-a-learner": "not-a-learner",
  "learner-not-ready": "learner-not-ready",
  "unhealthy-cell": "unhealthy-cell",
  "change-pending": "change-pending",
  "stale-plan": "change-pending",
  timeout: "timeout",
};
