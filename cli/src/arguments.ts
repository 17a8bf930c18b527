import { InvalidArgumentError } from "commander";
import { LEASE_PREFIX } from "./json.ts";

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** `500ms`, `15s`, `2m`, `1h`; a bare number is seconds. @returns milliseconds */
export function parseDuration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text);
  const unit = UNITS[match?.[2] ?? "s"];
  if (match === null || unit === undefined) {
    throw new InvalidArgumentError("give a duration such as 500ms, 15s, 2m or 1h.");
  }
  return Math.round(Number(match[1]) * unit);
}

export function parseCount(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) {
    throw new InvalidArgumentError("give a whole number.");
  }
  return value;
}

/** A lease id, `lease_81` or `81`. @returns the decimal int63 */
export function parseLeaseId(text: string): string {
  const digits = text.startsWith(LEASE_PREFIX) ? text.slice(LEASE_PREFIX.length) : text;
  if (!/^[1-9]\d{0,18}$/.test(digits) || BigInt(digits) > 0x7fff_ffff_ffff_ffffn) {
    throw new InvalidArgumentError("give a lease id such as lease_81, as `lockstep lease list` shows.");
  }
  return digits;
}

/** `host:port[,host:port...]` */
export function parseAddresses(text: string): string[] {
  const addresses = text
    .split(",")
    .map((address) => address.trim())
    .filter((address) => address !== "");
  if (addresses.length === 0) throw new InvalidArgumentError("give at least one host:port.");
  for (const address of addresses) parseAddress(address);
  return addresses;
}

export function parseAddress(address: string): string {
  const port = /^(?:\[[^\]]+\]|[^:[\]\s]+):(\d{1,5})$/.exec(address)?.[1];
  if (port === undefined || Number(port) > 65_535) {
    throw new InvalidArgumentError(`"${address}" is not host:port.`);
  }
  return address;
}
