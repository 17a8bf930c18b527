// What a person sees while long work goes on.

/** Prints one line. */
export type Say = (line: string) => void;

/** `0.4 s`, `12 s`, `3 min 05 s`. */
export function formatDuration(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  const whole = Math.round(seconds);
  return `${String(Math.floor(whole / 60))} min ${String(whole % 60).padStart(2, "0")} s`;
}

const REMIND_EVERY_MS = 30_000;
/** Steps shorter than this end without a line of their own. */
const SILENT_BELOW_MS = 1_500;

/** Does one step of work: says when it starts, every half minute that it is still at it, and how long it took. */
export async function step<T>(say: Say, what: string, work: () => Promise<T>): Promise<T> {
  const started = performance.now();
  const elapsed = (): string => formatDuration(performance.now() - started);
  say(`${what} ...`);
  const reminder = setInterval(() => say(`  ... still at it after ${elapsed()}: ${what}`), REMIND_EVERY_MS);
  try {
    const result = await work();
    if (performance.now() - started > SILENT_BELOW_MS) say(`  done in ${elapsed()}: ${what}`);
    return result;
  } finally {
    clearInterval(reminder);
  }
}
