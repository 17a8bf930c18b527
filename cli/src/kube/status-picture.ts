import { formatTable } from "../output.ts";
import type { CellShape, ConditionShape, MemberShape, OperationShape } from "./shapes.ts";

/** Conditions that say "all is well" by being True; the others by being False. */
const GOOD_WHEN_TRUE = new Set([
  "Ready",
  "Available",
  "QuorumHealthy",
  "ZonesSpread",
  "UpToDate",
  "CertificatesValid",
]);

/** A cell on one screen: its members, the change under way and what it waits for, and what wants attention. */
export function statusPicture(cell: CellShape, nowMs: number): string {
  const { status } = cell;
  const parts = [headline(cell)];
  const members = status?.members ?? [];
  if (members.length > 0) parts.push(memberTable(members, nowMs));
  if (status?.operation !== undefined) parts.push(operationLines(status.operation, nowMs));
  else if (status?.lastOperation !== undefined) parts.push(lastOperationLine(status.lastOperation, nowMs));
  const attention = (status?.conditions ?? []).filter(wantsAttention);
  if (attention.length > 0) parts.push(attentionLines(attention, nowMs));
  return parts.join("\n");
}

function headline(cell: CellShape): string {
  const { metadata, spec, status } = cell;
  const name = `${metadata.namespace ?? "default"}/${metadata.name}`;
  if (status?.conditions === undefined) {
    return `Cell ${name}: the operator has not looked at it yet. Does it run? (kubectl get pods -A -l app.kubernetes.io/name=lockstep)\n`;
  }
  const facts = [
    `${String(status.readyVoters ?? 0)}/${String(spec.voters ?? 3)} voters ready`,
    `leader ${status.leader ?? "none"}`,
    ...(status.version === undefined ? [] : [`version ${status.version}`]),
    ...(status.formatVersion === undefined ? [] : [`format ${String(status.formatVersion)}`]),
  ];
  const lines = [`Cell ${name}   ${status.phase ?? "Unknown"}   ${facts.join(" · ")}`];
  const { endpoints } = status;
  if (endpoints?.client !== undefined) {
    lines.push(
      `  clients ${endpoints.client}${endpoints.http === undefined ? "" : `   HTTP ${endpoints.http}`}`,
    );
  }
  if (spec.paused === true) lines.push("  paused: the operator changes nothing (spec.paused)");
  if (metadata.generation !== undefined && metadata.generation !== status.observedGeneration) {
    lines.push("  the latest change of its spec has not been looked at yet");
  }
  return `${lines.join("\n")}\n`;
}

function memberTable(members: readonly MemberShape[], nowMs: number): string {
  // By zone first: what a person wants to see is whether one zone may go.
  const sorted = [...members].sort(
    (a, b) => compare(a.zone ?? "~", b.zone ?? "~") || compare(a.name, b.name),
  );
  return formatTable(
    ["", "MEMBER", "ROLE", "ZONE", "NODE", "READY", "LAG", "VERSION", ""],
    sorted.map((member) => [
      symbol(member),
      member.name,
      member.leader === true ? "leader" : (member.role ?? "-").toLowerCase(),
      member.zone ?? "-",
      member.node ?? "-",
      member.ready === true ? "yes" : "no",
      member.lag === undefined ? "-" : String(member.lag),
      member.version ?? "-",
      [
        ...(member.lostSince === undefined ? [] : [`lost for ${since(member.lostSince, nowMs)}`]),
        ...(member.message === undefined || member.message === "" ? [] : [member.message]),
      ].join("; "),
    ]),
  );
}

function symbol(member: MemberShape): string {
  if (member.lostSince !== undefined || member.role === "Gone") return "✗";
  if (member.leader === true) return "★";
  if (member.ready === true && member.role === "Voter") return "●";
  return "◐";
}

function operationLines(operation: OperationShape, nowMs: number): string {
  const lines = [
    `Now: ${operation.kind ?? "change"} (${operation.id ?? "?"}), step ${operation.step ?? "?"}${
      operation.startedAt === undefined ? "" : `, begun ${since(operation.startedAt, nowMs)} ago`
    }${operation.deadline === undefined ? "" : `, given up ${until(operation.deadline, nowMs)}`}`,
  ];
  if (operation.cause !== undefined) lines.push(`  because  ${operation.cause}`);
  if (operation.message !== undefined) lines.push(`  waits    ${operation.message}`);
  return `${lines.join("\n")}\n`;
}

function lastOperationLine(operation: OperationShape, nowMs: number): string {
  const ago = operation.finishedAt === undefined ? "" : ` ${since(operation.finishedAt, nowMs)} ago`;
  return `Last: ${operation.kind ?? "change"} (${operation.id ?? "?"})${ago}: ${operation.result ?? operation.message ?? "done"}\n`;
}

function wantsAttention(condition: ConditionShape): boolean {
  if (condition.type === "Reconciling" || condition.type === "Paused") return false;
  return GOOD_WHEN_TRUE.has(condition.type) ? condition.status !== "True" : condition.status === "True";
}

function attentionLines(conditions: readonly ConditionShape[], nowMs: number): string {
  const rows = conditions.map((condition) => [
    `  ${condition.type}=${condition.status}`,
    condition.reason ?? "",
    condition.lastTransitionTime === undefined ? "" : since(condition.lastTransitionTime, nowMs),
    condition.message ?? "",
  ]);
  return `Wants attention:\n${formatTable(["  CONDITION", "REASON", "FOR", "WHAT TO KNOW"], rows)}`;
}

/** How long ago, in the largest unit that says enough. */
export function since(time: string, nowMs: number): string {
  return spanText(nowMs - Date.parse(time));
}

function until(time: string, nowMs: number): string {
  const left = Date.parse(time) - nowMs;
  return left >= 0 ? `in ${spanText(left)}` : "now";
}

function spanText(ms: number): string {
  if (!Number.isFinite(ms)) return "?";
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 120) return `${String(seconds)}s`;
  if (seconds < 7_200) return `${String(Math.round(seconds / 60))}m`;
  if (seconds < 172_800) return `${String(Math.round(seconds / 3_600))}h`;
  return `${String(Math.round(seconds / 86_400))}d`;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
