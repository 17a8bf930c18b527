import type { SimProcess } from "../contract.ts";

export interface LifeWatch {
  readonly everyMs: number;
  /** In a row. */
  readonly missesMax: number;
  readonly lost: () => void;
}

/**
 * gRPC's keepalive without its pings: looks now and then whether one would have been answered. Counts looks of this
 * process, so that one that was paused does not take its own absence for the other side's.
 *
 * @returns the function that ends it.
 */
export function watchLife(
  process: SimProcess,
  end: { alive(what: "answered"): boolean },
  { everyMs, missesMax, lost }: LifeWatch,
): () => void {
  let misses = 0;
  let cancel = (): void => undefined;
  const look = (): void => {
    misses = end.alive("answered") ? 0 : misses + 1;
    if (misses >= missesMax) lost();
    else cancel = process.after(everyMs, look);
  };
  cancel = process.after(everyMs, look);
  return () => cancel();
}
