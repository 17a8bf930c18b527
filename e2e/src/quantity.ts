// Kubernetes' quantities of bytes.

const FACTORS: Readonly<Record<string, number>> = {
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
};

/** Bytes of a quantity such as `1Gi`, `512M` or `1.5Gi`, rounded up. Throws TypeError for anything else. */
export function parseBytes(quantity: string): number {
  const match = /^(\d+(?:\.\d+)?)([a-zA-Z]*)$/.exec(quantity);
  const factor = FACTORS[match?.[2] ?? "?"];
  if (match === null || factor === undefined) throw new TypeError(`not a quantity of bytes: ${quantity}`);
  return Math.ceil(Number(match[1]) * factor);
}
