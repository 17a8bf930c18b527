import { readFileSync } from "node:fs";
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

/** Reads the PEM files named on the command line; undefined: none, plain text. */
export function readTls(paths: {
  readonly caCert?: string;
  readonly cert?: string;
  readonly key?: string;
}): TlsFiles | undefined {
  const { caCert, cert, key } = paths;
  if (caCert === undefined && cert === undefined && key === undefined) return undefined;
  if ((cert === undefined) !== (key === undefined)) throw usageError("--cert and --key go together");
  return {
    ...(caCert === undefined ? {} : { ca: read(caCert, "--ca-cert") }),
    ...(cert === undefined ? {} : { cert: read(cert, "--cert") }),
    ...(key === undefined ? {} : { key: read(key, "--key") }),
  };
}
