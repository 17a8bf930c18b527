/**
 * Conditions for people, kstatus, Argo and Flux. Reconciling and Stalled are exclusive of Ready: Ready is True only when
 * the cell is as the spec wants it and nothing is under way; whether clients are served is Available.
 */
import { mergeConditions } from "../api/conditions.ts";
import type { Condition, ConditionStatus, OperationStatus } from "../api/types.ts";
import type { MemberStatus } from "../cell/types.ts";
import { quorumOf } from "./facts.ts";
import type { Facts } from "./facts.ts";
import type { Blocker, Outcome } from "./outcome.ts";
import { outdatedMembers } from "./roll.ts";
import { listNames } from "./safety.ts";
import { CERTIFICATE_WARNING_MS, fromStamp, QUORUM_LOST_MS, toStamp } from "./time.ts";
import { nameOfAction } from "./types.ts";

interface Verdict extends Blocker {
  readonly status: ConditionStatus;
}

const yes = (reason: string, message: string): Verdict => ({ status: "True", reason, message });
const no = (reason: string, message: string): Verdict => ({ status: "False", reason, message });
const unknown = (reason: string, message: string): Verdict => ({ status: "Unknown", reason, message });

const FULL_VOLUME_SHARE = 0.05;

function pausedVerdict(by: NonNullable<Facts["pausedBy"]>): Verdict {
  if (by === "spec.paused") {
    return yes("SpecPaused", "spec.paused is true: nothing is changed; set it to false to go on.");
  }
  return yes(
    "Requested",
    `The CellOperation ${by.metadata.name} is there: nothing is changed; delete it to go on.`,
  );
}

export interface Situation {
  readonly facts: Facts;
  readonly outcome: Outcome;
  /** The operation after this pass. */
  readonly operation: OperationStatus | undefined;
}

export function conditionsOf(situation: Situation): readonly Condition[] {
  const quorum = quorumHealthy(situation);
  const degradedBy = degraded(situation);
  const stalledBy = stalled(situation, quorum);
  const reconcilingBy = stalledBy === undefined ? reconciling(situation) : undefined;
  const verdicts: Readonly<Record<string, Verdict>> = {
    Ready: ready(situation, { quorum, degradedBy, stalledBy, reconcilingBy }),
    Reconciling:
      reconcilingBy === undefined
        ? no("AsWanted", "Nothing is under way.")
        : yes(reconcilingBy.reason, reconcilingBy.message),
    Stalled: stalledBy === undefined ? no("NotStalled", "") : yes(stalledBy.reason, stalledBy.message),
    Available: available(situation, quorum),
    Degraded: degradedBy === undefined ? no("AllWell", "") : yes(degradedBy.reason, degradedBy.message),
    QuorumHealthy: quorum,
    ZonesSpread: zonesSpread(situation.facts),
    UpToDate: upToDate(situation.facts),
    CertificatesValid: certificatesValid(situation.facts),
    Paused:
      situation.facts.pausedBy !== undefined ? pausedVerdict(situation.facts.pausedBy) : no("NotPaused", ""),
  };
  const { cell, previous, nowMs } = situation.facts;
  const { generation } = cell.metadata;
  const wanted = Object.entries(verdicts).map(([type, verdict]) => ({
    type,
    ...verdict,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  }));
  return mergeConditions(previous.conditions, wanted, toStamp(nowMs));
}

function quorumHealthy({ facts }: Situation): Verdict {
  const { configuration, voters, anyAnswer, previous, members } = facts;
  if (previous.cellId === undefined && configuration === undefined) {
    return unknown("NotFounded", "The cell does not exist yet.");
  }
  if (configuration === undefined) {
    const names = members.filter(({ view }) => view.status !== undefined).map(({ name }) => name);
    return anyAnswer
      ? no(
          "QuorumLost",
          `${names.join(", ")} of ${String(previous.voters ?? members.length)} voters answer, and no majority. Bring the others back: their pods are kept on their volumes, and nothing else is touched.`,
        )
      : unknown(
          "NobodyAnswers",
          "No member answers; nothing is changed until one does. Check the pods, and the network between the operator and the members.",
        );
  }
  const healthy = voters.filter((member) => member.healthy).length;
  const text = `${String(healthy)} of ${String(voters.length)} voters are healthy.`;
  return healthy >= quorumOf(voters.length) ? yes("Majority", text) : no("TooFewHealthy", text);
}

function available({ facts, operation }: Situation, quorum: Verdict): Verdict {
  if (facts.configuration === undefined)
    return { ...quorum, status: quorum.status === "True" ? "Unknown" : quorum.status };
  if (facts.previous.admitted !== true)
    return no("NotAdmitted", "Clients are let in when all voters have joined.");
  const text =
    facts.voters.length === 1
      ? "The one voter serves. Its PodDisruptionBudget blocks drains of its node: use a CellOperation Drain, or three voters."
      : `${facts.leader?.name ?? "A leader"} serves with a majority.`;
  return yes(operation === undefined ? "Serving" : "ServingWhileChanging", text);
}

function degraded({ facts }: Situation): Blocker | undefined {
  if (facts.configuration === undefined) return undefined;
  const sick = facts.voters.filter(({ healthy }) => !healthy);
  if (sick.length > 0) {
    const details = sick.flatMap((member) => {
      const trouble = member.view.pod?.trouble ?? member.view.claim?.trouble;
      return trouble === undefined ? [] : [` ${member.name}: ${trouble.message}`];
    });
    const next =
      facts.spec.replacementPolicy.mode === "Never"
        ? " It is replaced only by a CellOperation."
        : ` A voter that is lost for ${facts.spec.replacementPolicy.after} is replaced.`;
    return { reason: "VoterUnhealthy", message: `${listNames(sick)} not healthy.${details.join("")}${next}` };
  }
  // One full volume alarms the whole cell, and every member says so: it is the one with the least room.
  const [full] = facts.voters
    .filter(({ status }) => status !== undefined && isFull(status))
    .sort((a, b) => freeShare(a.status) - freeShare(b.status));
  if (full !== undefined) {
    return { reason: "VolumeFull", message: `The volume of ${full.name} is full. Raise spec.storage.size.` };
  }
  const alarmed = facts.voters.find(({ status }) => (status?.alarms.length ?? 0) > 0);
  if (alarmed !== undefined) {
    const alarms = alarmed.status?.alarms.join(", ") ?? "";
    return { reason: "Alarm", message: `${alarmed.name} reports ${alarms}.` };
  }
  const slow = facts.voters.find(
    ({ slowSinceMs }) => slowSinceMs !== undefined && facts.nowMs - slowSinceMs >= facts.lossAfterMs,
  );
  return slow === undefined
    ? undefined
    : {
        reason: "SlowDisk",
        message: `The disk of ${slow.name} is slow. Replace the member with a CellOperation, or set replacementPolicy.slowDisk to Replace.`,
      };
}

function isFull(status: MemberStatus): boolean {
  return status.alarms.includes("no-space") || freeShare(status) < FULL_VOLUME_SHARE;
}

/** Of the volume, 0 to 1; 1 when the member does not know. */
function freeShare(status: MemberStatus | undefined): number {
  if (status === undefined || status.volumeBytes === 0) return 1;
  return status.freeBytes / status.volumeBytes;
}

function stalled({ facts, outcome }: Situation, quorum: Verdict): Blocker | undefined {
  if (facts.cell.metadata.deletionTimestamp === undefined && facts.pausedBy !== undefined) return undefined;
  if (outcome.stalled !== undefined) return outcome.stalled;
  const { refused } = facts.o;
  const { action } = outcome;
  if (refused !== undefined && action !== undefined && refused.action === nameOfAction(action)) {
    return { reason: "Refused", message: `The step "${refused.action}" was refused: ${refused.message}` };
  }
  const before = facts.previous.conditions?.find(({ type }) => type === "QuorumHealthy");
  const since = fromStamp(before?.lastTransitionTime);
  const isLong = since !== undefined && facts.nowMs - since >= QUORUM_LOST_MS;
  const isLost = facts.configuration === undefined && facts.previous.cellId !== undefined;
  if (!isLost || !isLong || before?.status === "True" || facts.operation?.kind === "Recover")
    return undefined;
  return {
    reason: "QuorumLost",
    message: `${quorum.message} If a majority of the volumes is lost for good, set spec.recovery to {survivor: NAME, cellId: ${facts.previous.cellId ?? ""}}: what the survivor does not have is lost with it.`,
  };
}

function reconciling({ facts, outcome, operation }: Situation): Blocker | undefined {
  if (facts.pausedBy !== undefined && facts.cell.metadata.deletionTimestamp === undefined) return undefined;
  if (operation !== undefined) {
    return { reason: operation.kind, message: `${operation.message} (${operation.cause})` };
  }
  if (outcome.waiting !== undefined) return outcome.waiting;
  if (outcome.action !== undefined) return { reason: "Correcting", message: `Next: ${outcome.action.kind}.` };
  return undefined;
}

interface Found {
  readonly quorum: Verdict;
  readonly degradedBy: Blocker | undefined;
  readonly stalledBy: Blocker | undefined;
  readonly reconcilingBy: Blocker | undefined;
}

function ready({ facts }: Situation, found: Found): Verdict {
  const { quorum, degradedBy, stalledBy, reconcilingBy } = found;
  if (facts.cell.metadata.deletionTimestamp !== undefined)
    return no("Deleting", "The cell is being deleted.");
  if (facts.configuration === undefined && facts.previous.cellId !== undefined) return quorum;
  const because = stalledBy ?? degradedBy ?? reconcilingBy;
  if (because !== undefined) return no(because.reason, because.message);
  if (quorum.status !== "True") return quorum;
  if (facts.previous.admitted !== true) return no("NotAdmitted", "Not all voters have joined yet.");
  const text = `${String(facts.voters.length)} voters, all healthy.`;
  return facts.pausedBy !== undefined ? yes("ReadyAndPaused", text) : yes("AsWanted", text);
}

function zonesSpread(facts: Facts): Verdict {
  const { voters, o, spec } = facts;
  if (voters.length === 0) return unknown("NoVoters", "No voters are known.");
  const zones = voters.map(({ zone }) => zone);
  const known = new Set(o.nodes.flatMap(({ zone }) => zone ?? []));
  const usable = spec.topology.zones?.length ?? known.size;
  if (known.size === 0) return unknown("NoZones", `No node has the label ${spec.topology.zoneKey}.`);
  const strays = strayVoters(facts);
  if (strays !== undefined) return no("OutsideZones", strays);
  const most = Math.max(...zones.map((zone) => zones.filter((other) => other === zone).length));
  const listed = [...new Set(zones.flatMap((zone) => zone ?? []))].sort().join(", ");
  if (voters.length > 1 && voters.length - most < quorumOf(voters.length)) {
    return no("OneZoneHoldsMajority", `The loss of one zone costs the majority: voters are in ${listed}.`);
  }
  return most <= Math.ceil(voters.length / Math.max(1, usable))
    ? yes("Spread", `Voters are in ${listed}.`)
    : no("Uneven", `Some zone has ${String(most)} voters: they are in ${listed}.`);
}

/** Voters in zones that the spec does not name (any more): nobody is moved for it unasked. */
function strayVoters({ voters, spec }: Facts): string | undefined {
  const { zones } = spec.topology;
  if (zones === undefined) return undefined;
  const strays = voters.filter(({ zone }) => zone !== undefined && !zones.includes(zone));
  const [first] = strays;
  if (first === undefined) return undefined;
  const where = strays.map(({ name, zone }) => `${name} is in ${zone ?? ""}`).join(", ");
  return `${where}, and spec.topology.zones is ${zones.join(", ")}. New members go there; move one with: kubectl lockstep replace ${first.name}`;
}

function upToDate(facts: Facts): Verdict {
  if (facts.voters.length === 0) return unknown("NoVoters", "No voters are known.");
  const outdated = outdatedMembers(facts);
  if (outdated.length === 0) return yes("UpToDate", "All members run as the spec wants.");
  const next =
    facts.spec.updatePolicy.mode === "Manual"
      ? " updatePolicy.mode is Manual: restart them with CellOperations."
      : "";
  return no("Outdated", `${listNames(outdated)} to be restarted.${next}`);
}

function certificatesValid(facts: Facts): Verdict {
  const { certificates } = facts.o;
  if (certificates.taken !== undefined) return no("NameTaken", certificates.taken);
  if (certificates.kind === "waiting") return unknown("Waiting", certificates.message);
  const { notAfterMs } = certificates;
  if (notAfterMs === undefined) return yes("Valid", certificates.message);
  const end = toStamp(notAfterMs);
  if (notAfterMs <= facts.nowMs)
    return no("Expired", `A certificate in use ended at ${end}. ${certificates.message}`);
  return notAfterMs - facts.nowMs < CERTIFICATE_WARNING_MS
    ? no(
        "ExpiresSoon",
        `A certificate in use ends at ${end}, and no newer one has come. ${certificates.message}`,
      )
    : yes("Valid", `The next one ends at ${end}.`);
}

export function phaseOf({ facts, outcome, operation }: Situation, conditions: readonly Condition[]): string {
  const is = (type: string): boolean =>
    conditions.some((condition) => condition.type === type && condition.status === "True");
  if (facts.cell.metadata.deletionTimestamp !== undefined) return "Deleting";
  if (is("Paused")) return "Paused";
  if (is("Stalled")) return "Stalled";
  if (facts.configuration === undefined && facts.previous.cellId !== undefined) return "Unavailable";
  if (facts.previous.admitted !== true) return "Creating";
  if (is("Degraded")) return "Degraded";
  if (operation !== undefined || outcome.action !== undefined || is("Reconciling")) return "Changing";
  return "Ready";
}
