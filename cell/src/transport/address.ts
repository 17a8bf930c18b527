import { BlockList, isIP } from "node:net";
import { TransportError } from "./errors.ts";

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

/** Whether nothing outside this machine can reach a listener bound to `host`. */
export function isLoopback(host: string): boolean {
  const version = isIP(host);
  if (version === 0) return host === "localhost";
  return loopback.check(host, version === 4 ? "ipv4" : "ipv6");
}

/** `host:port`, or `[host]:port` for IPv6. Throws TransportError `bad-address`. */
export function parseAddress(address: string): { readonly host: string; readonly port: number } {
  const colon = address.lastIndexOf(":");
  const host = address.slice(0, colon).replace(/^\[(.*)\]$/, "$1");
  const port = Number(address.slice(colon + 1));
  if (colon < 1 || host === "" || !Number.isInteger(port) || port < 1 || port > 65_535) {
    throw new TransportError("bad-address", `"${address}" is not host:port`);
  }
  return { host, port };
}

export function formatAddress(host: string, port: number): string {
  return isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
}
