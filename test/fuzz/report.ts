/** What a campaign prints. */
import type { CampaignResult } from "./campaign.ts";
import type { Finding, Tally } from "./contract.ts";

const COLUMNS = ["target", "cases", "accepted", "refused", "slowest ms", "heap KiB", "cases/s"] as const;

function cells(tally: Tally): string[] {
  const { target, cases, accepted, refused, slowestMs, allocatedMax, elapsedMs } = tally;
  return [
    target,
    String(cases),
    String(accepted),
    String(refused),
    slowestMs.toFixed(2),
    String(Math.ceil(allocatedMax / 1024)),
    elapsedMs > 0 ? String(Math.round((cases / elapsedMs) * 1000)) : "-",
  ];
}

/** `heap`: most of one case, beyond what each byte of input is granted. */
export function table(tallies: readonly Tally[]): string {
  const total = tallies.reduce<Tally>(
    (sum, tally) => ({
      ...sum,
      cases: sum.cases + tally.cases,
      accepted: sum.accepted + tally.accepted,
      refused: sum.refused + tally.refused,
      slowestMs: Math.max(sum.slowestMs, tally.slowestMs),
      allocatedMax: Math.max(sum.allocatedMax, tally.allocatedMax),
      elapsedMs: sum.elapsedMs + tally.elapsedMs,
    }),
    {
      target: "total",
      cases: 0,
      accepted: 0,
      refused: 0,
      slowestMs: 0,
      slowestIndex: 0,
      allocatedMax: 0,
      elapsedMs: 0,
    },
  );
  const rows = [[...COLUMNS], ...tallies.map(cells), cells(total)];
  const widths = COLUMNS.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) =>
          column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
        )
        .join("  "),
    )
    .join("\n");
}

export function replayCommand({ target, seed, index }: Pick<Finding, "target" | "seed" | "index">): string {
  return `node test/fuzz/main.ts --target ${target} --seed ${seed} --case ${index}`;
}

const HEX_SHOWN_MAX = 400;

/** One finding with the command that replays it, and what to keep of it. */
export function describeFinding(finding: Finding): string {
  const { target, kind, why, hex } = finding;
  const shown =
    hex.length > HEX_SHOWN_MAX ? `${hex.slice(0, HEX_SHOWN_MAX)}... (${hex.length / 2} bytes)` : hex;
  return `${kind} in ${target}: ${why}\n  input ${shown}\n  replay: ${replayCommand(finding)}\n`;
}

export function describeFindings({ findings }: CampaignResult): string {
  return findings.map(describeFinding).join("\n");
}
