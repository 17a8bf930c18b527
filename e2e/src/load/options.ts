import { parseArgs } from "node:util";
import type { LoadOptions } from "./load.ts";

export interface ProgramOptions {
  /** `host:port` of client listeners. */
  readonly endpoints: readonly string[];
  /** Name of the key space in the cell. */
  readonly namespace: string;
  /** Folder with ca.crt, tls.crt and tls.key, read anew before every connection. Absent: plain text. */
  readonly tlsFolder: string | undefined;
  readonly listenHost: string;
  /** 0: any free one, which is printed. */
  readonly listenPort: number;
  readonly deadlineMs: number;
  readonly ttlMs: number;
  /** Keys that are written before the load begins, and never again; see fill.ts. */
  readonly fill: number;
  readonly load: Omit<LoadOptions, "instance">;
}

const FLAGS = {
  endpoints: { type: "string" },
  namespace: { type: "string", default: "default" },
  tls: { type: "string" },
  listen: { type: "string", default: "127.0.0.1:0" },
  writes: { type: "string", default: "50" },
  writers: { type: "string", default: "4" },
  keys: { type: "string", default: "16" },
  locks: { type: "string", default: "5" },
  lockers: { type: "string", default: "3" },
  fill: { type: "string", default: "0" },
  "deadline-ms": { type: "string", default: "5000" },
  "ttl-ms": { type: "string", default: "5000" },
  "watch-renew-ms": { type: "string", default: "20000" },
} as const;

/** Throws a TypeError that names the flag. */
export function parseProgramOptions(args: readonly string[]): ProgramOptions {
  const { values } = parseArgs({ args: [...args], options: FLAGS, strict: true });
  const number = (
    name: Exclude<keyof typeof FLAGS, "endpoints" | "namespace" | "tls" | "listen" | "fill">,
  ): number => {
    const value = Number(values[name]);
    if (!(Number.isFinite(value) && value > 0)) throw new TypeError(`--${name} must be a number above 0`);
    return value;
  };
  const endpoints = (values.endpoints ?? "").split(",").filter((endpoint) => endpoint !== "");
  if (endpoints.length === 0) throw new TypeError("--endpoints HOST:PORT,... is needed");
  const [, host, port] = /^(.+):(\d{1,5})$/.exec(values.listen) ?? [];
  if (host === undefined) throw new TypeError("--listen must be HOST:PORT");
  const fill = Number(values.fill);
  if (!Number.isSafeInteger(fill) || fill < 0) throw new TypeError("--fill must be a whole number");
  return {
    endpoints,
    namespace: values.namespace,
    tlsFolder: values.tls,
    listenHost: host,
    listenPort: Number(port),
    deadlineMs: number("deadline-ms"),
    ttlMs: number("ttl-ms"),
    fill,
    load: {
      writers: number("writers"),
      keysPerWriter: number("keys"),
      writesPerSecond: number("writes"),
      lockers: number("lockers"),
      locksPerSecond: number("locks"),
      watchRenewMs: number("watch-renew-ms"),
    },
  };
}
