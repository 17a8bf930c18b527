/** A gauge or counter without labels in Prometheus' text; undefined: it is not there. */
export function gaugeOf(text: string, name: string): number | undefined {
  for (const line of text.split("\n")) {
    if (!line.startsWith(`${name} `)) continue;
    const value = Number(line.slice(name.length + 1));
    return Number.isFinite(value) ? value : undefined;
  }
  return undefined;
}

/** How long a member's event loop was away, in milliseconds, since it was last asked. */
export interface Stall {
  readonly maxMs: number;
  /** undefined: the member does not tell. */
  readonly p9999Ms: number | undefined;
}

/** @returns undefined when the member does not tell (etcd does not). */
export async function readStall(metricsUrl: string): Promise<Stall | undefined> {
  const text = await (await fetch(metricsUrl, { signal: AbortSignal.timeout(5_000) })).text();
  const max = gaugeOf(text, "lockstep_event_loop_delay_max_seconds");
  if (max === undefined) return undefined;
  const p9999 = gaugeOf(text, "lockstep_event_loop_delay_p9999_seconds");
  return { maxMs: max * 1000, p9999Ms: p9999 === undefined ? undefined : p9999 * 1000 };
}
