import type { Failure } from "@lockstep/gateway/coordinator";
import type { Command, CommandOutcome, NamespaceInfo } from "../machine/types.ts";
import type { LogIndex } from "../raft/types.ts";
import type { Replica } from "../replica/replica.ts";
import { AdminError } from "./admin-error.ts";
import { DECISION_TIMEOUT_MS, readPoint, requireLeader } from "./leader.ts";

/** What the admin API commands the cell as a whole to do, through its log. On the leader only. */
export class CellCommands {
  readonly #replica: Replica;

  constructor(replica: Replica) {
    this.#replica = replica;
  }

  /** The namespaces, proved current by a read-index round; on any member. */
  async namespaces(): Promise<readonly NamespaceInfo[]> {
    await readPoint(this.#replica);
    return this.#replica.parts.state.machine.namespaces();
  }

  /** There is no way back. @returns the format version in force. */
  async raiseFormatVersion(version: number, plannedOn: LogIndex): Promise<number> {
    requireLeader(this.#replica);
    await readPoint(this.#replica);
    const { machine, membership } = this.#replica.parts.state;
    const present = machine.formatVersion;
    if (version === present) return present;
    if (version < present) {
      throw new AdminError(
        "format-version",
        `The cell's format version is ${String(present)} already, and there is no way back to ${String(version)}.`,
      );
    }
    if (plannedOn !== membership.configurationIndex) {
      throw new AdminError(
        "stale-plan",
        `The change was planned on configuration ${String(plannedOn)}, the current one is ${String(membership.configurationIndex)}. List the members again and plan anew.`,
      );
    }
    this.#requireFormat(version);
    const outcome = await this.#outcome({ kind: "format-version", version });
    if (!outcome.ok) throw refusedCommand(outcome.failure);
    return machine.formatVersion;
  }

  /** Idempotent by name and uid. */
  async createNamespace(name: string, uid: string): Promise<NamespaceInfo> {
    requireLeader(this.#replica);
    const outcome = await this.#outcome({ kind: "create-namespace", name, uid });
    if (!outcome.ok) throw refusedCommand(outcome.failure);
    const made = this.#replica.parts.state.machine.namespaceByName(name);
    if (made?.uid === uid) return made;
    throw new AdminError("unknown-namespace", `The namespace ${name} was deleted as soon as it was created.`);
  }

  /** @returns whether it was there. */
  async deleteNamespace(name: string, uid: string): Promise<boolean> {
    requireLeader(this.#replica);
    const outcome = await this.#outcome({ kind: "delete-namespace", name, uid });
    if (outcome.ok) return true;
    if (outcome.failure.code === "namespace-not-found") return false;
    throw refusedCommand(outcome.failure);
  }

  /** A member that cannot apply the format would stop: those that said so are not left behind. */
  #requireFormat(version: number): void {
    const { formatVersionMax, state, self } = this.#replica.parts;
    for (const { id, name } of state.membership.members) {
      const max = id === self ? formatVersionMax : this.#replica.hearing.formatVersionMaxOf(id);
      if (max === undefined || max >= version) continue;
      throw new AdminError(
        "format-version",
        `Member ${name} applies formats up to ${String(max)}, not ${String(version)}. Upgrade it first.`,
      );
    }
  }

  #outcome(command: Command): Promise<CommandOutcome> {
    const { clock } = this.#replica.parts.environment;
    return new Promise((deliver) => {
      const deadlineMs = clock.monotonicMs() + DECISION_TIMEOUT_MS;
      this.#replica.propose(command, { deliver, deadlineMs, settled: false });
    });
  }
}

/** A lost answer and a moment's trouble are no fault of the request. */
export function refusedCommand(failure: Failure): AdminError {
  if (failure.outcome === "unknown") return new AdminError("timeout", failure.message);
  switch (failure.code) {
    case "no-leader":
    case "leader-changed":
    case "overloaded":
    case "shutting-down":
    case "deadline-exceeded":
      return new AdminError("no-leader", failure.message);
    case "namespace-not-found":
      return new AdminError("unknown-namespace", failure.message);
    case "namespace-exists":
    case "too-many-namespaces":
      return new AdminError(failure.code, failure.message);
    default:
      return new AdminError("invalid-argument", failure.message);
  }
}
