const TIMEOUT = /^(\d{1,8})([HMSmun])$/;
const UNIT_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1_000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
};

/**
 * Reads `grpc-timeout`: at most eight digits and a unit.
 * @returns milliseconds, possibly a fraction; undefined: malformed
 */
export function parseTimeout(text: string): number | undefined {
  const [, digits, unit] = TIMEOUT.exec(text) ?? [];
  if (digits === undefined || unit === undefined) return undefined;
  return Number(digits) * (UNIT_MS[unit] as number);
}
