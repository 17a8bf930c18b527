import {
  NO_LEASE_ID,
  type KeyValue,
  type LeaseId,
  type TxnResult,
  type TxnStepResult,
  type WatchEvent,
} from "@lockstep/client";
import { utf8 } from "./output.ts";

/** The JSON of the HTTP door, so that a program reads both alike. */
export type Json = Readonly<Record<string, unknown>>;

export const LEASE_PREFIX = "lease_";

/** A lease id as people and programs see it: `lease_81`. */
export function leaseText(leaseId: LeaseId): string {
  return LEASE_PREFIX + leaseId;
}

/** Bytes as `name` when they are UTF-8, else as `nameBase64`. */
export function bytesField(name: "key" | "value", bytes: Uint8Array): Json {
  const text = utf8(bytes);
  return text === undefined ? { [`${name}Base64`]: Buffer.from(bytes).toString("base64") } : { [name]: text };
}

export function keyValueJson(kv: KeyValue): Json {
  return {
    ...bytesField("key", kv.key),
    ...bytesField("value", kv.value),
    version: kv.version,
    createRevision: kv.createRevision,
    modRevision: kv.modRevision,
    leaseId: kv.leaseId === NO_LEASE_ID ? null : leaseText(kv.leaseId),
    fencingToken: kv.createRevision,
  };
}

export function stepJson(result: TxnStepResult): Json {
  switch (result.kind) {
    case "put": {
      const { version, revision, createRevision, previous } = result;
      const put = { ...bytesField("key", result.key), created: version === 1, version, revision };
      const before = previous === undefined ? {} : { previous: keyValueJson(previous) };
      return { put: { ...put, fencingToken: createRevision, ...before } };
    }
    case "delete": {
      const { deleted, revision, previous } = result;
      const before = previous.length === 0 ? {} : { previous: previous.map(keyValueJson) };
      return { delete: { deleted, revision, ...before } };
    }
    case "range": {
      const { kvs, count, more, revision } = result;
      return { get: { items: kvs.map(keyValueJson), count, more, revision } };
    }
  }
}

export function txnJson(result: TxnResult): Json {
  return {
    succeeded: result.succeeded,
    revision: result.revision,
    results: result.responses.map(stepJson),
    failedCompares: result.failures.map(({ index, actual }) => ({
      index,
      actual: actual === undefined ? null : keyValueJson(actual),
    })),
  };
}

export function eventJson(event: WatchEvent): Json {
  const { kind, kv, cause, previous } = event;
  const before = previous === undefined ? {} : { previous: keyValueJson(previous) };
  if (kind === "put") return { type: "put", cause, ...keyValueJson(kv), ...before };
  return { type: "delete", cause, ...bytesField("key", kv.key), modRevision: kv.modRevision, ...before };
}
