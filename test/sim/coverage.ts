import { COVERAGE_KEYS } from "./contract.ts";
import type { CoverageKey } from "./contract.ts";

export type Coverage = Record<CoverageKey, number>;

export function emptyCoverage(): Coverage {
  return Object.fromEntries(COVERAGE_KEYS.map((key) => [key, 0])) as Coverage;
}

export function addCoverage(into: Coverage, from: Coverage): void {
  for (const key of COVERAGE_KEYS) into[key] += from[key];
}
