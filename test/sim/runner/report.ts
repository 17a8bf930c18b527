import { COVERAGE_KEYS } from "../contract.ts";
import type { CoverageKey } from "../contract.ts";
import type { CampaignReport } from "./campaign.ts";

/** Below so many seeds rare things may be missing. */
const FULL_COVERAGE_SEEDS = 400;

/** What the histories went through, for CI's log. */
export function renderCoverage(report: CampaignReport): string {
  const { seeds, coverage, simulatedSeconds, realSeconds } = report;
  const width = Math.max(...COVERAGE_KEYS.map((key) => key.length));
  const rows = COVERAGE_KEYS.map((key) => `${key.padEnd(width)} ${String(coverage[key]).padStart(12)}`);
  const columns = Math.ceil(rows.length / 2);
  const lines = rows.slice(0, columns).map((row, at) => `${row}    ${rows[columns + at] ?? ""}`.trimEnd());
  const ratio = simulatedSeconds / Math.max(realSeconds, 0.001);
  return [
    ...lines,
    `${String(seeds)} seeds, ${(simulatedSeconds / 3_600).toFixed(1)} simulated hours in ${realSeconds.toFixed(0)} s (${ratio.toFixed(0)}:1)`,
  ].join("\n");
}

/** What no history did; empty for campaigns that are too short to tell. */
export function zeroes(report: CampaignReport, seeds: number): readonly CoverageKey[] {
  if (seeds < FULL_COVERAGE_SEEDS) return [];
  return COVERAGE_KEYS.filter((key) => report.coverage[key] === 0);
}
