import { assert } from "../invariant.ts";
import type { Configuration, ConfigurationChange, ConfigurationStep, MemberId } from "./types.ts";

/**
 * `change-pending`: it does not fit now (joint, or not joint). `invalid-change`: it would never be sound.
 * `malformed`: bytes that are not a change or a configuration of a known version.
 */
export type ConfigurationErrorCode = "change-pending" | "invalid-change" | "malformed";

/** A change that the configuration in force does not admit, or bytes that do not decode to one. */
export class ConfigurationError extends Error {
  override readonly name = "ConfigurationError";
  readonly code: ConfigurationErrorCode;

  constructor(code: ConfigurationErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Where a member stands that has not heard of its cell yet: it belongs to nobody and may not campaign. */
export const EMPTY_CONFIGURATION: Configuration = {
  voters: [],
  outgoing: [],
  learners: [],
  learnersNext: [],
  autoLeave: false,
};

/** Decisions need two majorities. */
export function isJoint(configuration: Configuration): boolean {
  return configuration.outgoing.length > 0;
}

/** Its vote counts: in either half. */
export function isVoter(configuration: Configuration, id: MemberId): boolean {
  return configuration.voters.includes(id) || configuration.outgoing.includes(id);
}

/** It takes part at all: voter of either half, or learner. */
export function isMember(configuration: Configuration, id: MemberId): boolean {
  return isVoter(configuration, id) || configuration.learners.includes(id);
}

/** Every member once, ascending. */
export function membersOf(configuration: Configuration): MemberId[] {
  return ascending(new Set([...configuration.voters, ...configuration.outgoing, ...configuration.learners]));
}

/** Every voter of either half once, ascending. */
export function votersOf(configuration: Configuration): MemberId[] {
  return ascending(new Set([...configuration.voters, ...configuration.outgoing]));
}

/**
 * Why `change` may not be applied to `configuration`, or undefined when it may. A function of its arguments alone,
 * so that every member comes to the same answer (R36).
 */
export function validateChange(
  configuration: Configuration,
  change: ConfigurationChange,
): string | undefined {
  const outcome = evaluate(configuration, change);
  return outcome instanceof ConfigurationError ? outcome.message : undefined;
}

/**
 * The configuration that `change` makes of `configuration` (thesis chapter 4; R37).
 *
 * @throws ConfigurationError when {@link validateChange} names a reason
 */
export function applyChange(configuration: Configuration, change: ConfigurationChange): Configuration {
  const outcome = evaluate(configuration, change);
  if (outcome instanceof ConfigurationError) throw outcome;
  return outcome;
}

/** The result of the change, or why there is none. */
export function evaluate(
  configuration: Configuration,
  change: ConfigurationChange,
): Configuration | ConfigurationError {
  const next = change.steps.length === 0 ? leaveJoint(configuration) : enterOrStep(configuration, change);
  if (!(next instanceof ConfigurationError)) {
    const flaw = describeFlaw(next);
    assert(flaw === undefined, "a change leads from a sound configuration to a sound one", { flaw });
  }
  return next;
}

/**
 * What is wrong with a configuration that came from outside (a snapshot, the store), or undefined.
 */
export function describeFlaw(configuration: Configuration): string | undefined {
  const { voters, outgoing, learners, learnersNext, autoLeave } = configuration;
  for (const [name, ids] of Object.entries({ voters, outgoing, learners, learnersNext })) {
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i] as MemberId;
      if (!Number.isSafeInteger(id) || id <= 0) return `${name} holds ${id}, which is no member id`;
      if (i > 0 && (ids[i - 1] as MemberId) >= id) return `${name} does not ascend`;
    }
  }
  const learner = learners.find((id) => voters.includes(id) || outgoing.includes(id));
  if (learner !== undefined) return `${learner} is both a learner and a voter`;
  const stray = learnersNext.find((id) => !outgoing.includes(id) || voters.includes(id));
  if (stray !== undefined) return `${stray} becomes a learner on leaving but is not only an outgoing voter`;
  if (outgoing.length === 0 && autoLeave) return "leaves automatically but is not joint";
  if (voters.length === 0 && (outgoing.length > 0 || learners.length > 0)) return "has no voters";
  return undefined;
}

function leaveJoint(configuration: Configuration): Configuration | ConfigurationError {
  if (!isJoint(configuration)) {
    return new ConfigurationError("change-pending", "cannot leave: the configuration is not joint");
  }
  return {
    voters: configuration.voters,
    outgoing: [],
    learners: ascending(new Set([...configuration.learners, ...configuration.learnersNext])),
    learnersNext: [],
    autoLeave: false,
  };
}

function enterOrStep(
  configuration: Configuration,
  change: ConfigurationChange,
): Configuration | ConfigurationError {
  if (isJoint(configuration)) {
    return new ConfigurationError("change-pending", "the joint configuration must be left first");
  }
  const stray = change.steps.find((step) => !Number.isSafeInteger(step.id) || step.id <= 0);
  if (stray !== undefined) {
    return new ConfigurationError("invalid-change", `${stray.id} is no member id`);
  }
  const simple = takeSteps(configuration, change.steps, []);
  if (simple.voters.length === 0) {
    return new ConfigurationError("invalid-change", "the change would remove every voter");
  }
  if (change.transition === "auto" && votersChanged(configuration.voters, simple.voters) <= 1) {
    return simple;
  }
  if (configuration.voters.length === 0) {
    return new ConfigurationError("invalid-change", "an empty configuration cannot become joint");
  }
  const joint = takeSteps(configuration, change.steps, configuration.voters);
  return { ...joint, autoLeave: change.transition !== "joint-explicit" };
}

/**
 * The steps in order. A voter of `outgoing` that becomes a learner waits in `learnersNext`, since it still votes
 * until the joint configuration is left.
 */
function takeSteps(
  configuration: Configuration,
  steps: readonly ConfigurationStep[],
  outgoing: readonly MemberId[],
): Configuration {
  const voters = new Set(configuration.voters);
  const learners = new Set(configuration.learners);
  const learnersNext = new Set<MemberId>();
  for (const { kind, id } of steps) {
    voters.delete(id);
    learners.delete(id);
    learnersNext.delete(id);
    if (kind === "add-voter") voters.add(id);
    else if (kind === "add-learner" && outgoing.includes(id)) learnersNext.add(id);
    else if (kind === "add-learner") learners.add(id);
  }
  return {
    voters: ascending(voters),
    outgoing,
    learners: ascending(learners),
    learnersNext: ascending(learnersNext),
    autoLeave: false,
  };
}

/** Size of the symmetric difference. */
function votersChanged(before: readonly MemberId[], after: readonly MemberId[]): number {
  const gone = before.filter((id) => !after.includes(id)).length;
  const come = after.filter((id) => !before.includes(id)).length;
  return gone + come;
}

function ascending(ids: ReadonlySet<MemberId>): MemberId[] {
  return [...ids].sort((a, b) => a - b);
}
