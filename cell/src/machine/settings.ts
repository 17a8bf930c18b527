import { LIMITS } from "@lockstep/gateway/coordinator";
import type { Limits } from "@lockstep/gateway/coordinator";
import { ByteReader, ByteWriter } from "./codec/primitives.ts";
import type { MachineSettings } from "./types.ts";

/** What a fresh cell starts with. */
export const DEFAULT_SETTINGS: MachineSettings = {
  limits: LIMITS,
  outcomesPerClientMax: 1024,
  tokenAgeMsMax: 10 * 60 * 1000,
  tokensMax: 100_000,
  clientIdleMsMax: 60 * 60 * 1000,
  namespacesMax: 1000,
};

/** Positions are the limits in bytes: append only; a limit that an older row lacks has its default. */
const LIMIT_NAMES: readonly (keyof Limits)[] = [
  "keyBytesMax",
  "valueBytesMax",
  "txnBytesMax",
  "txnOperationsMax",
  "requestBytesMax",
  "frameBytesMax",
  "requestsPerFrameMax",
  "renewalsPerFrameMax",
  "keysPerLeaseMax",
  "keysPerDeleteMax",
  "rangeReplyBytesMax",
  "rangeKeysMax",
  "requestTokenBytesMax",
  "leaseOwnerBytesMax",
  "leaseTtlMsMin",
  "leaseTtlMsMax",
  "namespaceBytesMax",
];

export function encodeSettings(settings: MachineSettings): Uint8Array {
  const writer = new ByteWriter(256);
  writer.varint(settings.outcomesPerClientMax);
  writer.varint(settings.tokenAgeMsMax);
  writer.varint(settings.tokensMax);
  writer.varint(settings.clientIdleMsMax);
  writer.varint(settings.namespacesMax);
  writer.varint(LIMIT_NAMES.length);
  for (const name of LIMIT_NAMES) writer.varint(settings.limits[name]);
  return writer.take();
}

export function decodeSettings(row: Uint8Array): MachineSettings {
  const reader = new ByteReader(row);
  const outcomesPerClientMax = reader.varint();
  const tokenAgeMsMax = reader.varint();
  const tokensMax = reader.varint();
  const clientIdleMsMax = reader.varint();
  const namespacesMax = reader.varint();
  const limits: Record<keyof Limits, number> = { ...LIMITS };
  const count = reader.varint();
  for (const name of LIMIT_NAMES.slice(0, count)) limits[name] = reader.varint();
  reader.end();
  return { limits, outcomesPerClientMax, tokenAgeMsMax, tokensMax, clientIdleMsMax, namespacesMax };
}
