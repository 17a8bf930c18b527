const SUFFIXES: Readonly<Record<string, number>> = {
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** Bytes of a Kubernetes quantity (`10Gi`, `1e9`, `500M`). @returns undefined for what is none. */
export function parseQuantity(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)(?:[eE](\d+))?(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/.exec(text);
  if (match === null) return undefined;
  const exponent = match[2] === undefined ? 1 : 10 ** Number(match[2]);
  return Math.ceil(Number(match[1]) * exponent * (SUFFIXES[match[3] ?? ""] ?? 1));
}
