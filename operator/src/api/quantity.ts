/** Kubernetes quantities, exactly, as a bigint of billionths: a double cannot hold what may be written. */

const DECIMAL: Readonly<Record<string, number>> = {
  n: -9,
  u: -6,
  m: -3,
  "": 0,
  k: 3,
  M: 6,
  G: 9,
  T: 12,
  P: 15,
  E: 18,
};
const BINARY: Readonly<Record<string, number>> = { Ki: 10, Mi: 20, Gi: 30, Ti: 40, Pi: 50, Ei: 60 };
const QUANTITY =
  /^([+-]?)(\d{0,30})(?:\.(\d{0,30}))?(?:([eE])([+-]?\d{1,2})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?$/;
/** Finest step that is kept: a billionth, Kubernetes' own. */
const SCALE = 9;

/**
 * A quantity in billionths, rounded up as Kubernetes does.
 * @throws TypeError for what is no quantity
 */
function billionths(quantity: number | string): bigint {
  const text = String(quantity);
  const match = QUANTITY.exec(text);
  const [, sign = "", whole = "", fraction = "", , exponent, suffix = ""] = match ?? [];
  if (match === null || (whole === "" && fraction === "")) {
    throw new TypeError(`${JSON.stringify(text)} is no quantity such as 10Gi`);
  }
  const digits = BigInt(`0${whole}${fraction}`);
  const binary = BINARY[suffix];
  const decimal = exponent === undefined ? (DECIMAL[suffix] ?? 0) : Number(exponent);
  const shift = SCALE - fraction.length + (binary === undefined ? decimal : 0);
  const shifted = digits << BigInt(binary ?? 0);
  const scaled = shift >= 0 ? shifted * 10n ** BigInt(shift) : divideUp(shifted, 10n ** BigInt(-shift));
  return sign === "-" ? -scaled : scaled;
}

function divideUp(value: bigint, by: bigint): bigint {
  return (value + by - 1n) / by;
}

/** Whether a text is a quantity. */
export function isQuantity(text: string): boolean {
  const match = QUANTITY.exec(text);
  return match !== null && `${match[2] ?? ""}${match[3] ?? ""}` !== "";
}

/** Negative, 0 or positive, as `a` is less than, as much as or more than `b`. @throws TypeError for no quantity */
export function compareQuantities(a: number | string, b: number | string): number {
  const difference = billionths(a) - billionths(b);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

/**
 * Whole bytes (or whatever the unit is), rounded up.
 * @throws TypeError for what is no quantity; RangeError for one beyond 2^53
 */
export function quantityValue(quantity: number | string): number {
  const value = Number(divideUp(billionths(quantity), 10n ** BigInt(SCALE)));
  if (!Number.isSafeInteger(value)) throw new RangeError(`${String(quantity)} is too large`);
  return value;
}
