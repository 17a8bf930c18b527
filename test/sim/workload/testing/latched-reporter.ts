/** Remembers the first violation, also when whoever caused it swallows what is thrown. */
import type { CoverageKey, Reporter } from "../../contract.ts";

export class LatchedReporter implements Reporter {
  readonly counts: Map<CoverageKey, number> = new Map<CoverageKey, number>();
  first: string | undefined;
  readonly lines: string[] = [];

  violation(law: string, text: string): never {
    this.first ??= `${law}: ${text}`;
    throw new Error(`${law}: ${text}`);
  }

  count(what: CoverageKey, by = 1): void {
    this.counts.set(what, this.counted(what) + by);
  }

  counted(what: CoverageKey): number {
    return this.counts.get(what) ?? 0;
  }

  trace(source: string, text: () => string): void {
    this.lines.push(`${source} ${text()}`);
  }
}
