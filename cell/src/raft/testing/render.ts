/** The words of transcripts. */
import { decodeConfigurationChange } from "../index.ts";
import type {
  Append,
  Configuration,
  ConfigurationStep,
  Entry,
  Message,
  ProgressView,
  RaftStatus,
} from "../types.ts";

const STEP_LETTERS: Record<ConfigurationStep["kind"], string> = {
  "add-voter": "v",
  "add-learner": "l",
  remove: "r",
};

export function renderConfiguration(configuration: Configuration): string {
  const { voters, outgoing, learners, learnersNext, autoLeave } = configuration;
  let text = `voters=(${voters.join(" ")})`;
  if (outgoing.length > 0) text += `&&(${outgoing.join(" ")})`;
  if (learners.length > 0) text += ` learners=(${learners.join(" ")})`;
  if (learnersNext.length > 0) text += ` learners-next=(${learnersNext.join(" ")})`;
  if (autoLeave) text += " auto-leave";
  return text;
}

export function renderSteps(steps: readonly ConfigurationStep[]): string {
  return steps.length === 0 ? "leave" : steps.map(({ kind, id }) => `${STEP_LETTERS[kind]}${id}`).join(" ");
}

export function renderEntry(entry: Entry): string {
  const at = `${entry.term}/${entry.index}`;
  if (entry.kind === "normal") return `${at} "${new TextDecoder().decode(entry.data)}"`;
  const change = decodeConfigurationChange(entry.data);
  const how = change.transition === "auto" ? "" : `${change.transition} `;
  return `${at} change(${how}${renderSteps(change.steps)})`;
}

export function renderEntries(entries: readonly Entry[]): string {
  return `[${entries.map(renderEntry).join(", ")}]`;
}

export function renderMessage(message: Message): string {
  return `${message.from}->${message.to} ${message.kind} t${message.term}${renderBody(message)}`;
}

function renderBody(message: Message): string {
  switch (message.kind) {
    case "append": {
      const { prevTerm, prevIndex, entries, commit } = message;
      return ` after ${prevTerm}/${prevIndex} ${renderEntries(entries)} commit ${commit}`;
    }
    case "append-response":
      return message.rejected
        ? ` rejected ${message.index} hint ${message.hintTerm}/${message.hintIndex}`
        : ` index ${message.index}`;
    case "heartbeat":
      return ` commit ${message.commit} round ${message.readRound}`;
    case "heartbeat-response":
      return ` round ${message.readRound}`;
    case "vote":
    case "pre-vote":
      return ` last ${message.lastTerm}/${message.lastIndex}${message.transfer ? " transfer" : ""}`;
    case "vote-response":
    case "pre-vote-response":
      if (message.committed === undefined) return message.granted ? " granted" : " refused";
      return ` refused, committed ${message.committed.term}/${message.committed.index}`;
    case "snapshot": {
      const { term, index, configuration } = message.snapshot;
      return ` at ${term}/${index} ${renderConfiguration(configuration)}`;
    }
    case "timeout-now":
      return "";
    case "read-index":
      return ` request ${message.request}`;
    case "read-index-response":
      return ` request ${message.request} index ${message.index}`;
  }
}

export function renderAppend(append: Append): string {
  const parts = [`append #${append.token}`];
  if (append.hardState !== undefined) {
    const { term, vote, commit } = append.hardState;
    parts.push(`(t${term} vote ${vote} commit ${commit})`);
  }
  if (append.snapshot !== undefined) {
    parts.push(`snapshot ${append.snapshot.term}/${append.snapshot.index}`);
  }
  if (append.entries.length > 0) parts.push(renderEntries(append.entries));
  parts.push(append.mustSync ? "sync" : "no-sync");
  return parts.join(" ");
}

export function renderStatus(status: RaftStatus): string {
  const { id, role, term, vote, leader, commit, applied, stableIndex, firstIndex, lastIndex } = status;
  let text = `${id}: ${role} t${term} vote ${vote} leader ${leader}`;
  text += ` log ${firstIndex}..${lastIndex} stable ${stableIndex} commit ${commit} applied ${applied}`;
  text += ` ${renderConfiguration(status.configuration)}`;
  if (status.transferTarget !== 0) text += ` transferring to ${status.transferTarget}`;
  return text;
}

export function renderProgress(progress: ProgressView): string {
  const { id, state, match, next, recentActive, learner, pendingSnapshot } = progress;
  let text = `${id}: ${state} match=${match} next=${next}`;
  if (learner) text += " learner";
  if (!recentActive) text += " inactive";
  if (pendingSnapshot > 0) text += ` snapshot=${pendingSnapshot}`;
  return text;
}
