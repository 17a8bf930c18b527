import type { Secret } from "../api/core.ts";
import { COORDINATION_CELL, SECRET } from "../api/kinds.ts";
import { clientHost, clientSecretName, PORTS } from "../api/names.ts";
import { API_VERSION } from "../api/types.ts";
import type { CoordinationCell } from "../api/types.ts";
import type { KubeClient, ObjectRef } from "../kube/types.ts";
import type { Answer, ClientCertificate, Door, DoorRequest } from "./door.ts";

export interface TryCellOptions {
  readonly namespace: string;
  /** Name of the cell that is made and deleted. */
  readonly cell: string;
  readonly storageSize: string;
  /** Absent: the cluster's default class. */
  readonly storageClassName?: string;
  /** For all of it, without the clearing away at the end. */
  readonly timeoutMs: number;
}

export interface TryCellParts {
  readonly kube: Pick<KubeClient, "get" | "create" | "delete">;
  /** Speaks to the cell's HTTP door with a client's certificate. */
  readonly openDoor: (host: string, port: number, certificate: ClientCertificate) => Door;
  readonly monotonicMs: () => number;
  readonly pause: (ms: number) => Promise<void>;
  readonly say: (line: string) => void;
}

const POLL_MS = 1_000;
const GONE_MS_MAX = 60_000;
const LOCK = "/v1/kv/locks/helm-test";

/**
 * The whole way of a user: makes a cell, waits until it is Ready, takes a lock, sees it refused to another and given with
 * a larger token once it is free, and deletes the cell whatever happened. Throws an Error that says what did not come.
 */
export async function tryCell(parts: TryCellParts, options: TryCellOptions): Promise<void> {
  const deadline = parts.monotonicMs() + options.timeoutMs;
  const ref = { namespace: options.namespace, name: options.cell };
  const name = `${ref.namespace}/${ref.name}`;
  // One that an interrupted test left behind would prove nothing about now.
  await clearAway(parts, ref);
  try {
    await parts.kube.create(COORDINATION_CELL, testCell(options));
    parts.say(`made CoordinationCell ${name}`);
    await ready(parts, ref, deadline);
    parts.say("it is Ready");
    const certificate = await clientCertificate(parts, ref);
    const door = parts.openDoor(clientHost(ref.name, ref.namespace), PORTS.http, certificate);
    await takeLocks(parts, (request) => ask(parts, door, request, deadline));
  } finally {
    await clearAway(parts, ref);
    parts.say(`deleted CoordinationCell ${name}`);
  }
}

function testCell(options: TryCellOptions): CoordinationCell {
  const { storageClassName } = options;
  // The defaults of the definition fill in the rest; a spec as people write it has no more.
  const spec = {
    voters: 1,
    storage: {
      size: options.storageSize,
      reclaimPolicy: "Delete",
      ...(storageClassName === undefined ? {} : { storageClassName }),
    },
  };
  return {
    apiVersion: API_VERSION,
    kind: "CoordinationCell",
    metadata: { name: options.cell, namespace: options.namespace },
    spec: spec as CoordinationCell["spec"],
  };
}

async function ready(parts: TryCellParts, ref: ObjectRef, deadline: number): Promise<void> {
  for (;;) {
    const cell = await parts.kube.get(COORDINATION_CELL, ref);
    const conditions = cell?.status?.conditions ?? [];
    const holds = (type: string): boolean =>
      conditions.some((one) => one.type === type && one.status === "True");
    const isSeen = cell?.status?.observedGeneration === cell?.metadata.generation;
    if (isSeen && holds("Ready")) return;
    if (parts.monotonicMs() >= deadline) {
      const told = conditions
        .filter(({ message }) => message !== "")
        .map((one) => `${one.type}: ${one.message}`);
      throw new Error(
        cell?.status === undefined
          ? "nobody looked at the cell: is an operator running, and does it watch this namespace?"
          : `the cell is not Ready in time. ${told.join(" ")}`,
      );
    }
    await parts.pause(POLL_MS);
  }
}

async function clientCertificate(
  parts: TryCellParts,
  { namespace = "", name }: ObjectRef,
): Promise<ClientCertificate> {
  const secretName = clientSecretName(name);
  const secret = await parts.kube.get(SECRET, { namespace, name: secretName });
  if (secret === undefined) throw new Error(`there is no Secret ${namespace}/${secretName}`);
  return {
    ca: pem(secret, "ca.crt"),
    cert: pem(secret, "tls.crt"),
    key: pem(secret, "tls.key"),
  };
}

function pem(secret: Secret, field: string): string {
  const value = secret.data?.[field];
  if (value === undefined) throw new Error(`the Secret ${secret.metadata.name} has no ${field}`);
  return Buffer.from(value, "base64").toString("utf8");
}

/** Asks again while nobody answers: a Service sends to a member a moment after the member is ready. */
async function ask(parts: TryCellParts, door: Door, request: DoorRequest, deadline: number): Promise<Answer> {
  for (;;) {
    let trouble: string;
    try {
      const answer = await door.ask(request);
      if (answer.status !== 503) return answer;
      trouble = answer.text;
    } catch (error) {
      trouble = error instanceof Error ? error.message : String(error);
    }
    if (parts.monotonicMs() >= deadline) throw new Error(`${request.method} ${request.path}: ${trouble}`);
    await parts.pause(POLL_MS);
  }
}

type Ask = (request: DoorRequest) => Promise<Answer>;

async function takeLocks(parts: TryCellParts, askDoor: Ask): Promise<void> {
  const first = await grant(askDoor);
  const token = await acquire(askDoor, first);
  if (token === undefined) throw new Error("the lock of a new cell is held already");
  parts.say(`took a lock, fencing token ${String(token)}`);
  const second = await grant(askDoor);
  if ((await acquire(askDoor, second)) !== undefined)
    throw new Error("a lock that is held was given to another");
  parts.say("another was refused it");
  expect(await askDoor({ method: "DELETE", path: `/v1/leases/${first}` }), 200);
  const later = await acquire(askDoor, second);
  if (later === undefined || later <= token) {
    throw new Error(`the next owner's token is ${String(later)}, not larger than ${String(token)}`);
  }
  parts.say(`freed it; the next owner has token ${String(later)}`);
}

async function grant(askDoor: Ask): Promise<string> {
  const answer = await askDoor({
    method: "POST",
    path: "/v1/leases",
    json: { ttlMs: 60_000, owner: "helm test" },
  });
  expect(answer, 201);
  return String(fieldOf(answer, "leaseId"));
}

/** @returns the fencing token; undefined: somebody holds it. */
async function acquire(askDoor: Ask, lease: string): Promise<number | undefined> {
  // The request id makes it safe to ask again when an answer was lost.
  const headers = { "if-version": "0", "lease-id": lease, "request-id": crypto.randomUUID() };
  const answer = await askDoor({ method: "PUT", path: LOCK, headers });
  if (answer.status === 412) return undefined;
  expect(answer, 201);
  return Number(fieldOf(answer, "fencingToken"));
}

function expect(answer: Answer, status: number): void {
  if (answer.status !== status) throw new Error(`the cell answered ${String(answer.status)}: ${answer.text}`);
}

function fieldOf(answer: Answer, field: string): unknown {
  const body = JSON.parse(answer.text) as Readonly<Record<string, unknown>>;
  if (body[field] === undefined) throw new Error(`the cell's answer has no ${field}: ${answer.text}`);
  return body[field];
}

async function clearAway(parts: TryCellParts, ref: ObjectRef): Promise<void> {
  const deadline = parts.monotonicMs() + GONE_MS_MAX;
  for (;;) {
    const cell = await parts.kube.get(COORDINATION_CELL, ref);
    if (cell === undefined) return;
    if (cell.metadata.deletionTimestamp === undefined) {
      await parts.kube.delete(COORDINATION_CELL, ref, { uid: cell.metadata.uid ?? "" });
    } else if (parts.monotonicMs() >= deadline) {
      throw new Error(`the CoordinationCell ${ref.name} is being deleted and does not go`);
    }
    await parts.pause(POLL_MS);
  }
}
