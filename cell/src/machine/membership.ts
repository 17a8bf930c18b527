/**
 * Who belongs to the cell, as replicated state. The consensus core knows ids and quorums; this knows names,
 * incarnations, addresses, the ids that may never come back, and which plan a change was made on. Pure: a change
 * is accepted or refused from this state alone, so that every member decides alike (R36).
 */
import { assert } from "../invariant.ts";
import { isMember } from "../raft/index.ts";
import type { Configuration, ConfigurationChange, LogIndex, MemberId } from "../raft/types.ts";

/** host:port each. */
export interface MemberAddresses {
  readonly client: string;
  readonly http: string;
  readonly peer: string;
  readonly admin: string;
  readonly ops: string;
}

export interface MemberRecord {
  readonly id: MemberId;
  /** Unique in the cell among present members. */
  readonly name: string;
  /** UUID of the member's disk: a wiped disk is another member (W17). */
  readonly incarnation: string;
  readonly addresses: MemberAddresses;
}

export interface Membership {
  readonly cellId: string;
  /** Log index of the newest change that took effect: what the next change must be planned on. */
  readonly configurationIndex: LogIndex;
  readonly configuration: Configuration;
  /** By id. */
  readonly members: readonly MemberRecord[];
  /** Ids that may never be used again (R42). */
  readonly removedIds: readonly MemberId[];
  readonly nextMemberId: MemberId;
}

/** Travels as the context of a configuration entry; absent for the automatic leave of a joint configuration. */
export interface ChangePlan {
  /** Must be the configuration index at apply; 0: any (adding a learner changes no quorum). */
  readonly plannedOn: LogIndex;
  /** The learner being added. */
  readonly add?: MemberRecord;
}

export type ChangeVerdict =
  | { readonly accepted: true; readonly plan: ChangePlan | undefined }
  | { readonly accepted: false; readonly reason: ChangeRefusal };

export type ChangeRefusal =
  "stale-plan" | "name-in-use" | "id-not-next" | "unknown-member" | "malformed-plan";

/** Decides one change at apply. The caller asks the consensus core's own validation as well. */
export function decideChange(membership: Membership, change: ConfigurationChange): ChangeVerdict {
  if (change.context.length === 0) {
    // Only the automatic (or explicit) leave carries no plan; anything else without one is not ours.
    return change.steps.length === 0
      ? { accepted: true, plan: undefined }
      : { accepted: false, reason: "malformed-plan" };
  }
  const plan = decodePlan(change.context);
  if (plan === undefined) return { accepted: false, reason: "malformed-plan" };
  if (plan.plannedOn !== 0 && plan.plannedOn !== membership.configurationIndex) {
    return { accepted: false, reason: "stale-plan" };
  }
  const added = plan.add;
  if (added !== undefined) {
    if (membership.members.some((member) => member.name === added.name)) {
      return { accepted: false, reason: "name-in-use" };
    }
    if (added.id !== membership.nextMemberId) return { accepted: false, reason: "id-not-next" };
  }
  const known = (id: MemberId): boolean =>
    id === added?.id || membership.members.some((member) => member.id === id);
  if (!change.steps.every((step) => known(step.id))) return { accepted: false, reason: "unknown-member" };
  return { accepted: true, plan };
}

/** The membership after an accepted change took effect as `configuration`. */
export function advanceMembership(
  membership: Membership,
  index: LogIndex,
  plan: ChangePlan | undefined,
  configuration: Configuration,
): Membership {
  assert(index > membership.configurationIndex, "configuration indexes ascend", {
    index,
    before: membership.configurationIndex,
  });
  const added = plan?.add;
  const candidates = added === undefined ? membership.members : [...membership.members, added];
  const members = candidates.filter((member) => isMember(configuration, member.id));
  const gone = candidates.filter((member) => !isMember(configuration, member.id)).map((member) => member.id);
  return {
    cellId: membership.cellId,
    configurationIndex: index,
    configuration,
    members: [...members].sort((a, b) => a.id - b.id),
    removedIds: [...membership.removedIds, ...gone].sort((a, b) => a - b),
    nextMemberId: added === undefined ? membership.nextMemberId : ((added.id + 1) as MemberId),
  };
}

export function findMember(membership: Membership, id: MemberId): MemberRecord | undefined {
  return membership.members.find((member) => member.id === id);
}

/** Membership changes are rare and small, so their form is JSON in ASCII: readable in a dump. */
export function encodeMembership(membership: Membership): Uint8Array {
  return asciiJson(membership);
}

export function decodeMembership(bytes: Uint8Array): Membership {
  const value = parseAscii(bytes);
  assert(isMembership(value), "the membership row is well-formed");
  return value;
}

export function encodePlan(plan: ChangePlan): Uint8Array {
  return asciiJson(plan);
}

/** @returns undefined when the bytes are no plan. */
export function decodePlan(bytes: Uint8Array): ChangePlan | undefined {
  const value = parseAscii(bytes);
  if (!isRecord(value) || !isCount(value["plannedOn"])) return undefined;
  const add = value["add"];
  if (add !== undefined && !isMemberRecord(add)) return undefined;
  return value as unknown as ChangePlan;
}

function asciiJson(value: unknown): Uint8Array {
  const text = JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

function parseAscii(bytes: Uint8Array): unknown {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function isCount(value: unknown): boolean {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function isCounts(value: unknown): boolean {
  return Array.isArray(value) && value.every(isCount);
}

function isConfiguration(value: unknown): boolean {
  return (
    isRecord(value) &&
    ["voters", "outgoing", "learners", "learnersNext"].every((ids) => isCounts(value[ids])) &&
    typeof value["autoLeave"] === "boolean"
  );
}

function isMemberRecord(value: unknown): boolean {
  if (!isRecord(value) || !isCount(value["id"])) return false;
  if (typeof value["name"] !== "string" || typeof value["incarnation"] !== "string") return false;
  const addresses = value["addresses"];
  if (!isRecord(addresses)) return false;
  return ["client", "http", "peer", "admin", "ops"].every((port) => typeof addresses[port] === "string");
}

function isMembership(value: unknown): value is Membership {
  return (
    isRecord(value) &&
    typeof value["cellId"] === "string" &&
    isCount(value["configurationIndex"]) &&
    isConfiguration(value["configuration"]) &&
    Array.isArray(value["members"]) &&
    value["members"].every(isMemberRecord) &&
    isCounts(value["removedIds"]) &&
    isCount(value["nextMemberId"])
  );
}
