import type { CellAdmin, CellConfiguration, MemberStatus, MemberTarget } from "../cell/types.ts";

/** What a cell said of itself at one moment. */
export interface Answers {
  /** By member name; who did not answer is absent. */
  readonly statuses: ReadonlyMap<string, MemberStatus>;
  /** Linearizable; undefined: no member could prove what is current, and `silence` says why. */
  readonly configuration: CellConfiguration | undefined;
  /** The status of the member that leads `configuration`. */
  readonly leader: MemberStatus | undefined;
  /** Where changes are to be asked for. */
  readonly leaderTarget: MemberTarget | undefined;
  readonly silence: string;
}

/**
 * Asks all members for their own view at once, then the one that leads in the highest term for the configuration. A
 * deposed leader cannot answer that: the call needs a majority's word.
 *
 * @param cellId answers of another cell are no answers; undefined: not known yet, all count.
 * @param known what the configuration was before, for a look on which nothing is done: it is taken, without another
 *   call, when every member says that nothing has changed. Default: none, it is asked for.
 */
export async function askCell(
  admin: CellAdmin,
  targets: readonly MemberTarget[],
  cellId: string | undefined,
  known?: CellConfiguration,
): Promise<Answers> {
  const statuses = new Map<string, MemberStatus>();
  const complaints: string[] = [];
  await Promise.all(
    targets.map(async (target) => {
      try {
        const status = await admin.status(target);
        if (status.name !== target.memberName) {
          complaints.push(`${target.address} answers as member ${status.name}, not ${target.memberName}`);
        } else if (cellId !== undefined && status.cellId !== cellId) {
          complaints.push(`${target.memberName} belongs to cell ${status.cellId}, not ${cellId}`);
        } else {
          statuses.set(target.memberName, status);
        }
      } catch (error) {
        complaints.push(describe(error));
      }
    }),
  );
  if (known !== undefined && statuses.size === targets.length && areAsIn(known, [...statuses.values()])) {
    return answersOf(known, targets, statuses);
  }
  for (const target of inOrderOfTrust(targets, statuses)) {
    try {
      const configuration = await admin.configuration(target);
      if (cellId !== undefined && configuration.cellId !== cellId) continue;
      return answersOf(configuration, targets, statuses);
    } catch (error) {
      complaints.push(describe(error));
    }
  }
  return {
    statuses,
    configuration: undefined,
    leader: undefined,
    leaderTarget: undefined,
    silence: complaints.sort().join("; ") || "No member runs.",
  };
}

function answersOf(
  configuration: CellConfiguration,
  targets: readonly MemberTarget[],
  statuses: ReadonlyMap<string, MemberStatus>,
): Answers {
  const leaderName = configuration.members.find((member) => member.id === configuration.leaderId)?.name;
  const leader = leaderName === undefined ? undefined : statuses.get(leaderName);
  return {
    statuses,
    configuration,
    leader: leader?.role === "leader" ? leader : undefined,
    leaderTarget: targets.find((candidate) => candidate.memberName === leaderName),
    silence: "",
  };
}

/** All members, each of them, are in one term under the leader of before, with the configuration of before. */
function areAsIn(known: CellConfiguration, statuses: readonly MemberStatus[]): boolean {
  const [first] = statuses;
  return (
    !known.joint &&
    statuses.length === known.members.length &&
    statuses.every(
      ({ cellId, term, leaderId, configurationIndex, joint }) =>
        cellId === known.cellId &&
        term === first?.term &&
        leaderId === known.leaderId &&
        configurationIndex === known.configurationIndex &&
        !joint,
    )
  );
}

/** How many are asked for the configuration: each may take its whole deadline when there is no leader. */
const CONFIGURATION_TRIES_MAX = 2;

function inOrderOfTrust(
  targets: readonly MemberTarget[],
  statuses: ReadonlyMap<string, MemberStatus>,
): readonly MemberTarget[] {
  const weight = (target: MemberTarget): number => {
    const status = statuses.get(target.memberName);
    if (status === undefined) return -1;
    return status.term * 2 + (status.role === "leader" ? 1 : 0);
  };
  return targets
    .filter((target) => statuses.has(target.memberName))
    .sort((a, b) => weight(b) - weight(a) || (a.memberName < b.memberName ? -1 : 1))
    .slice(0, CONFIGURATION_TRIES_MAX);
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
