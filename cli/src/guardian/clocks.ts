/** Two readings of now: the monotonic clock, which all processes of a machine share, and the wall's. Milliseconds. */
export interface Clocks {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

export function readClocks(): Clocks {
  const [seconds, nanoseconds] = process.hrtime();
  return { monotonicMs: seconds * 1000 + nanoseconds / 1_000_000, wallMs: Date.now() };
}
