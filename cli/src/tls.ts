import { readFileSync } from "node:fs";
import type { TlsPaths } from "@lockstep/client";
import { usageError } from "./exit-codes.ts";

export interface TlsFiles {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

function read(path: string, option: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw usageError(
      `${option}: cannot read ${path}: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

interface TlsFlags {
  readonly caCert?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** As the client library takes them. */
export function tlsPaths({ caCert, cert, key }: TlsFlags): TlsPaths {
  return {
    ...(caCert === undefined ? {} : { ca: caCert }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
}

/** Reads the PEM files named on the command line; undefined: none, plain text. */
export function readTls(flags: TlsFlags): TlsFiles | undefined {
  const { caCert, cert, key } = flags;
  if (caCert === undefined && cert === undefined && key === undefined) return undefined;
  if ((cert === undefined) !== (key === undefined)) throw usageError("--cert and --key go together");
  return {
    ...(caCert === undefined ? {} : { ca: read(caCert, "--ca-cert") }),
    ...(cert === undefined ? {} : { cert: read(cert, "--cert") }),
    ...(key === undefined ? {} : { key: read(key, "--key") }),
  };
}
