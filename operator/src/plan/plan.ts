/**
 * The order of the rules: the first that has something to say decides. One action at most comes out.
 *
 *  1. The cell or its Kubernetes namespace is being deleted: let everything go. While tenants use it, 6 to 8 only.
 *  2. Paused: nothing is changed.
 *  3. Recovery that a person asked for, begun or to be begun.
 *  4. Another cell answers than ours: nothing is changed.
 *  5. The cell's id is written down.
 *  6. Claims that must grow: a full disk must not wait for a healthy member.
 *  7. Certificates that are missing, clients' admission, then shared objects (Services, PodDisruptionBudget): pods need them.
 *  8. Pods and claims of members that are missing or ended: on their own volumes, safe without a quorum.
 *  9. The first voter, if the cell is not founded.
 * 10. Nobody can prove what is current: nothing more.
 * 11. A joint configuration: it is left by the cell itself; wait.
 * 12. Role labels, then members that are none any more and learners that nobody wants.
 * 13. The operation under way.
 * 14. Requests whose operation ended are answered.
 * 15. Something to begin: shrinking, a sick member's restart, a replacement, growth, requests, a roll, a slow disk,
 *     certificates, the format version.
 */
import { LABEL, selectorText } from "../api/labels.ts";
import type { CoordinationCellStatus, OperationStatus } from "../api/types.ts";
import { dropLeftovers, dropUnfounded } from "./cleanup.ts";
import { conditionsOf, phaseOf } from "./conditions.ts";
import { foundCell, learnCellId } from "./create.ts";
import { deleteCell } from "./deletion.ts";
import { factsOf } from "./facts.ts";
import type { Facts } from "./facts.ts";
import type { Outcome, Rule } from "./outcome.ts";
import { growClaims, keepPods, labelPods } from "./pods.ts";
import { admitClients, keepShared } from "./protection.ts";
import { reconfigure } from "./reconfigure.ts";
import { recover } from "./recover.ts";
import { answerRequests, startRequest, transfer } from "./requests.ts";
import { outdatedMembers, roll, startRoll } from "./roll.ts";
import { explainReplace, grantReplace, startReplace, startResize, startSlowDisk } from "./start.ts";
import { lowestVersion, summarize, whereabouts } from "./summary.ts";
import { BUSY_LOOK_MS, ROTATION_LOOK_MS, SICK_LOOK_MS } from "./time.ts";
import type { Decision, Observation } from "./types.ts";

const RULES: readonly Rule[] = [
  endCell,
  paused,
  recover,
  strangeCell,
  learnCellId,
  growClaims,
  issueCertificates,
  admitClients,
  keepShared,
  keepPods,
  dropUnfounded,
  foundCell,
  blind,
  joint,
  labelPods,
  dropLeftovers,
  reconfigure,
  roll,
  transfer,
  answerRequests,
  startShrink,
  startSickRoll,
  startReplace,
  startResize,
  startRequest,
  startRoll,
  startSlowDisk,
  rotateCertificates,
  raiseFormat,
  explainReplace,
];

/** Decides what to do next. Pure: the same observation gives the same decision. */
export function plan(observation: Observation): Decision {
  const facts = factsOf(observation);
  const outcome = decide(facts);
  const status = statusOf(facts, outcome);
  return {
    action: outcome.action,
    status,
    events: outcome.events ?? [],
    lookAgainMs: outcome.lookAgainMs ?? restlessness(facts),
  };
}

/** What keeps a cell as it is: nobody joins, leaves or restarts for another spec. */
const KEEPING_RULES: readonly Rule[] = [growClaims, issueCertificates, keepShared, keepPods];

/** A cell that waits for its tenants serves them until then. */
function endCell(facts: Facts): Outcome | undefined {
  const outcome = deleteCell(facts);
  if (outcome?.stalled === undefined || facts.pausedBy !== undefined) return outcome;
  for (const rule of KEEPING_RULES) {
    const kept = rule(facts);
    if (kept?.action !== undefined) return { ...kept, stalled: outcome.stalled };
  }
  return outcome;
}

/** A rule that only waits for what cannot be begun does not hold up those after it. */
function decide(facts: Facts): Outcome {
  let waiting: Outcome | undefined;
  for (const rule of RULES) {
    const outcome = rule(facts);
    if (outcome === undefined) continue;
    const isPatient =
      PATIENT_RULES.has(rule) && outcome.action === undefined && outcome.operation === undefined;
    if (!isPatient) {
      return waiting?.stalled === undefined || outcome.stalled !== undefined
        ? outcome
        : { ...outcome, stalled: waiting.stalled };
    }
    waiting ??= outcome;
  }
  return waiting ?? {};
}

const PATIENT_RULES: ReadonlySet<Rule> = new Set([
  growClaims,
  issueCertificates,
  startShrink,
  startSickRoll,
  startResize,
  startRequest,
  startRoll,
]);

function statusOf(facts: Facts, outcome: Outcome): CoordinationCellStatus {
  const { previous, configuration, cell } = facts;
  const operation: OperationStatus | undefined =
    outcome.operation === undefined ? facts.operation : (outcome.operation ?? undefined);
  const situation = { facts, outcome, operation };
  const conditions = conditionsOf(situation);
  const voters = facts.voters.filter(({ kind }) => kind === "voter");
  const zones = [...new Set(voters.flatMap(({ zone }) => zone ?? []))].sort();
  return {
    ...withoutOperation(previous),
    ...(cell.metadata.generation === undefined ? {} : { observedGeneration: cell.metadata.generation }),
    ...(configuration === undefined
      ? { readyVoters: 0, readiness: `0/${String(facts.spec.voters)}` }
      : {
          voters: voters.length,
          readyVoters: voters.filter(({ healthy }) => healthy).length,
          readiness: `${String(voters.filter(({ healthy }) => healthy).length)}/${String(facts.spec.voters)}`,
          zones,
          leader: facts.leader?.name ?? "",
        }),
    ...lowestVersion(facts),
    ...(facts.leader?.status === undefined ? {} : { formatVersion: facts.leader.status.formatVersion }),
    selector: selectorText({
      [LABEL.cellUid]: cell.metadata.uid ?? "",
      [LABEL.component]: "member",
      [LABEL.role]: "voter",
    }),
    ...whereabouts(facts),
    members: summarize(facts),
    ...outcome.patch,
    ...(operation === undefined ? {} : { operation }),
    phase: phaseOf(situation, conditions),
    conditions,
  };
}

function withoutOperation(status: CoordinationCellStatus): CoordinationCellStatus {
  const kept: { -readonly [K in keyof CoordinationCellStatus]: CoordinationCellStatus[K] } = { ...status };
  delete kept.operation;
  return kept;
}

function restlessness(facts: Facts): number | undefined {
  if (facts.operation !== undefined) return BUSY_LOOK_MS;
  const isWell = facts.configuration !== undefined && facts.voters.every(({ healthy }) => healthy);
  // An exchange of certificates goes on when members say that they have loaded theirs, which no event tells.
  if (isWell && facts.o.certificates.message !== "") return ROTATION_LOOK_MS;
  return isWell ? undefined : SICK_LOOK_MS;
}

function paused(facts: Facts): Outcome | undefined {
  const { pausedBy } = facts;
  if (pausedBy === undefined) return undefined;
  if (pausedBy === "spec.paused") return { waiting: { reason: "Paused", message: "spec.paused is true." } };
  const message = `Nothing of the cell is changed until the CellOperation ${pausedBy.metadata.name} is deleted.`;
  const waiting = { reason: "Paused", message };
  if (pausedBy.status?.phase === "Running") return { waiting };
  return {
    action: { kind: "finish-request", name: pausedBy.metadata.name, phase: "Running", message },
    waiting,
    lookAgainMs: BUSY_LOOK_MS,
  };
}

function strangeCell(facts: Facts): Outcome | undefined {
  const { strangeCellId, previous } = facts;
  if (strangeCellId === undefined) return undefined;
  const message = `The members answer as cell ${strangeCellId}, and this one is ${previous.cellId ?? ""}. Nothing is changed. Find out where that cell came from; if it is right, delete this object's status.cellId.`;
  return { stalled: { reason: "CellIdMismatch", message }, lookAgainMs: SICK_LOOK_MS };
}

function issueCertificates(facts: Facts): Outcome | undefined {
  const { due, taken } = facts.o.certificates;
  if (facts.o.namespaceTerminating) return undefined;
  const stalled = taken === undefined ? {} : { stalled: { reason: "NameTaken", message: taken } };
  if (due === "issue")
    return { action: { kind: "advance-certificates" }, ...stalled, lookAgainMs: BUSY_LOOK_MS };
  return taken === undefined ? undefined : { ...stalled, lookAgainMs: SICK_LOOK_MS };
}

function rotateCertificates(facts: Facts): Outcome | undefined {
  if (facts.o.certificates.due === undefined) return undefined;
  return { action: { kind: "advance-certificates" }, lookAgainMs: BUSY_LOOK_MS };
}

function blind(facts: Facts): Outcome | undefined {
  if (facts.configuration !== undefined) return undefined;
  return { lookAgainMs: facts.previous.admitted === true ? SICK_LOOK_MS : BUSY_LOOK_MS };
}

function joint(facts: Facts): Outcome | undefined {
  if (facts.configuration?.joint !== true) return undefined;
  const message =
    "The cell is between two configurations; it leaves by itself as soon as a majority of both answers.";
  return { waiting: { reason: "JointConfiguration", message }, lookAgainMs: BUSY_LOOK_MS };
}

function startShrink(facts: Facts): Outcome | undefined {
  return facts.voters.length > facts.spec.voters ? startResize(facts) : undefined;
}

function startSickRoll(facts: Facts): Outcome | undefined {
  // A roll gives way to a replacement: begun before it, the two would take turns for ever.
  if (grantReplace(facts) !== undefined) return undefined;
  return outdatedMembers(facts).some(({ healthy }) => !healthy) ? startRoll(facts) : undefined;
}

/** Last of all, when every member can apply the newer format: there is no way back. */
function raiseFormat(facts: Facts): Outcome | undefined {
  const { configuration, leader } = facts;
  const members = facts.members.filter(({ kind }) => kind !== undefined);
  if (configuration === undefined || leader?.status === undefined) return undefined;
  if (members.some(({ healthy, outdated }) => !healthy || outdated)) return undefined;
  const version = Math.min(...members.map(({ status }) => status?.formatVersionMax ?? 0));
  if (version <= leader.status.formatVersion) return undefined;
  return {
    action: { kind: "raise-format", version, plannedOn: configuration.configurationIndex },
    events: [
      {
        type: "Normal",
        reason: "RaisingFormat",
        message: `All members apply format ${String(version)}; images that do not are refused from now on.`,
      },
    ],
    waiting: { reason: "RaisingFormat", message: `The format version becomes ${String(version)}.` },
    lookAgainMs: BUSY_LOOK_MS,
  };
}
