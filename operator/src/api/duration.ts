const UNIT_MS: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1_000 };
const DURATION = /^(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?$/;

/**
 * Milliseconds of a duration as our resources write it: hours, minutes and seconds in this order, e.g. `1h30m`.
 * @throws TypeError for anything else
 */
export function durationMs(text: string): number {
  const milliseconds = parseDuration(text);
  if (milliseconds === undefined) throw new TypeError(`${JSON.stringify(text)} is no duration such as 1h30m`);
  return milliseconds;
}

/** As {@link durationMs}. @returns undefined for what is no duration */
export function parseDuration(text: string): number | undefined {
  const match = DURATION.exec(text);
  if (match === null || text === "") return undefined;
  const [, hours = "0", minutes = "0", seconds = "0"] = match;
  return Number(hours) * 3_600_000 + Number(minutes) * 60_000 + Number(seconds) * 1_000;
}

/** The shortest text that {@link durationMs} reads back as this many milliseconds, rounded down to seconds. */
export function durationText(milliseconds: number): string {
  let left = Math.max(0, Math.floor(milliseconds / 1_000)) * 1_000;
  let text = "";
  for (const [unit, unitMs] of Object.entries(UNIT_MS)) {
    const count = Math.floor(left / unitMs);
    left -= count * unitMs;
    if (count > 0) text += `${String(count)}${unit}`;
  }
  return text === "" ? "0s" : text;
}
