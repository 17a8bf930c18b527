// The table at the end of a run.

/** How a scenario ended. `not run`: an earlier failure or an interrupt ended the run before it. */
export interface Outcome {
  readonly name: string;
  readonly result: "passed" | "failed" | "not run";
  readonly seconds: number;
}

/** The table, and a last line that counts. */
export function renderSummary(outcomes: readonly Outcome[]): string {
  const width = Math.max(8, ...outcomes.map(({ name }) => name.length));
  const row = (name: string, result: string, seconds: string): string =>
    `  ${name.padEnd(width)}  ${result.padEnd(7)}  ${seconds.padStart(7)}`;
  const rows = outcomes.map(({ name, result, seconds }) =>
    row(name, result, result === "not run" ? "-" : seconds.toFixed(1)),
  );
  const count = (result: Outcome["result"]): number =>
    outcomes.filter((outcome) => outcome.result === result).length;
  const last = `${String(count("passed"))} passed, ${String(count("failed"))} failed, ${String(count("not run"))} not run`;
  return [row("scenario", "result", "seconds"), ...rows, "", last].join("\n");
}

/** Did every scenario run and pass? A run of none has proven nothing. */
export const isSuccess = (outcomes: readonly Outcome[]): boolean =>
  outcomes.length > 0 && outcomes.every(({ result }) => result === "passed");
