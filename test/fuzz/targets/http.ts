/** HTTP requests through the door's own routes, up to the coordinator: targets, headers and bodies. */
import { LIMITS } from "@lockstep/gateway/coordinator";
import type { Coordinator, Failure, Mutation, Read, WatchRequest } from "@lockstep/gateway/coordinator";
import { HTTP_DOOR_LIMITS } from "@lockstep/gateway";
import type { FastifyReply, FastifyRequest } from "fastify";
import { Backend } from "../../../gateway/src/http/backend.ts";
import type { Call } from "../../../gateway/src/http/backend.ts";
import {
  DELETE_PARAMETERS,
  GET_PARAMETERS,
  PUT_PARAMETERS,
  deleteKey,
  getKey,
  putKey,
} from "../../../gateway/src/http/kv-routes.ts";
import {
  LIST_PARAMETERS,
  SHOW_PARAMETERS,
  grantLease,
  keepAlive,
  listLeases,
  revokeLease,
  showLease,
} from "../../../gateway/src/http/lease-routes.ts";
import { ProblemError } from "../../../gateway/src/http/problem.ts";
import { isKeyTarget, splitTarget } from "../../../gateway/src/http/target.ts";
import { runTxn } from "../../../gateway/src/http/txn-route.ts";
import { WATCH_PARAMETERS, WatchRoute } from "../../../gateway/src/http/watch-route.ts";
import { encodeForwarded } from "../../../cell/src/replica/forwarding.ts";
import { decodeReadOperation, encodeReadOperation } from "../../../cell/src/machine/index.ts";
import { decodeForwarded } from "../../../cell/src/replica/forwarding.ts";
import type { Target } from "../contract.ts";
import type { Dice } from "../generate/dice.ts";
import { damageJson } from "../generate/json.ts";
import { damage, input } from "../generate/mutate.ts";
import * as values from "../generate/values.ts";
import { assertLaw, bufferOf } from "./laws.ts";

/** What the door asked the coordinator; at most one per request. */
type Asked =
  | { readonly kind: "mutate"; readonly mutation: Mutation }
  | { readonly kind: "read"; readonly read: Read }
  | { readonly kind: "renew"; readonly leaseIds: readonly string[] }
  | { readonly kind: "watch"; readonly request: WatchRequest };

const STOPPED: Failure = { code: "no-leader", outcome: "not-applied", message: "far enough" };

/** Notes what it is asked and refuses it: the case ends where decoding ends. */
class NotingCoordinator implements Coordinator {
  asked: Asked | undefined;

  mutate(mutation: Mutation, deliver: Parameters<Coordinator["mutate"]>[1]): void {
    this.asked = { kind: "mutate", mutation };
    deliver({ ok: false, failure: STOPPED });
  }

  read(read: Read, deliver: Parameters<Coordinator["read"]>[1]): void {
    this.asked = { kind: "read", read };
    deliver({ ok: false, failure: STOPPED });
  }

  renew(renewal: Parameters<Coordinator["renew"]>[0], deliver: Parameters<Coordinator["renew"]>[1]): void {
    this.asked = { kind: "renew", leaseIds: renewal.leaseIds };
    deliver({ ok: false, failure: STOPPED });
  }

  watch(request: WatchRequest): Failure {
    this.asked = { kind: "watch", request };
    return STOPPED;
  }

  onLeaseEnd(): () => void {
    return () => undefined;
  }

  onLeaderChange(): () => void {
    return () => undefined;
  }

  info(): ReturnType<Coordinator["info"]> {
    throw new TypeError("no route of these asks");
  }
}

interface Route {
  readonly parameters: readonly string[];
  readonly handle: (backend: Backend, call: Call) => Promise<void>;
}

const NONE: readonly string[] = [];

const LEASE = /^\/v1\/leases\/([^/]+)(\/keepalive)?$/;

function routeOf(method: string, path: string, watches: WatchRoute): Route | undefined {
  const lease = LEASE.exec(path);
  const name = isKeyTarget(path) ? "key" : lease === null ? path : `lease${lease[2] ?? ""}`;
  switch (`${method} ${name}`) {
    case "PUT key":
      return { parameters: PUT_PARAMETERS, handle: putKey };
    case "GET key":
      return { parameters: GET_PARAMETERS, handle: getKey };
    case "DELETE key":
      return { parameters: DELETE_PARAMETERS, handle: deleteKey };
    case "POST /v1/txn":
      return { parameters: NONE, handle: runTxn };
    case "POST /v1/leases":
      return { parameters: NONE, handle: grantLease };
    case "GET /v1/leases":
      return { parameters: LIST_PARAMETERS, handle: listLeases };
    case "GET lease":
      return { parameters: SHOW_PARAMETERS, handle: showLease };
    case "DELETE lease":
      return { parameters: NONE, handle: revokeLease };
    case "POST lease/keepalive":
      return { parameters: NONE, handle: keepAlive };
    case "GET /v1/watch":
      return { parameters: WATCH_PARAMETERS, handle: (_, call) => watches.handle(call) };
    default:
      return undefined;
  }
}

/** A reply takes everything. */
function swallow(): FastifyReply {
  const reply: object = new Proxy({}, { get: (_, name) => (name === "then" ? undefined : () => reply) });
  return reply as FastifyReply;
}

const NOT_ROUTED = new Error("no such route");

/** A request as the parser of HTTP hands it over: line, headers and body, taken apart without judgement. */
function requestOf(bytes: Buffer): { readonly method: string; readonly request: FastifyRequest } {
  const gap = bytes.indexOf("\n\n");
  const head = bytes.toString("latin1", 0, gap < 0 ? bytes.length : gap).split("\n");
  const [method = "", url = ""] = (head[0] ?? "").split(" ");
  const headers = new Map<string, string>();
  for (const line of head.slice(1)) {
    const colon = line.indexOf(":");
    if (colon > 0) headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
  }
  const { path } = splitTarget(url);
  const id = decodeOnce(LEASE.exec(path)?.[1] ?? "");
  const request = {
    originalUrl: url,
    headers: Object.fromEntries(headers),
    body: gap < 0 ? undefined : bytes.subarray(gap + 2),
    params: { id },
  };
  return { method, request: request as unknown as FastifyRequest };
}

/** As the router decodes a parameter of a path. */
function decodeOnce(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function handle(bytes: Buffer): Promise<Asked> {
  const coordinator = new NotingCoordinator();
  const backend = new Backend(coordinator, LIMITS, HTTP_DOOR_LIMITS);
  const { method, request } = requestOf(bytes);
  const route = routeOf(method, splitTarget(request.originalUrl).path, new WatchRoute(backend));
  if (route === undefined) throw NOT_ROUTED;
  try {
    await route.handle(backend, backend.open(request, swallow(), route.parameters));
  } catch (error) {
    if (coordinator.asked === undefined || !(error instanceof ProblemError)) throw error;
  }
  if (coordinator.asked === undefined) throw new TypeError("answered without asking");
  return coordinator.asked;
}

const HEADERS: readonly (readonly [string, readonly string[]])[] = [
  ["if-version", ["0", "7", "9007199254740992", "-1"]],
  ["if-revision", ["12"]],
  ["if-lease", ["lease_81", "81", "lease_0"]],
  ["if-match", ["*", '"918420"', 'W/"1"', '"1", "2"']],
  ["if-none-match", ["*", '"5"']],
  ["lease-id", ["lease_9223372036854775807", "lease_9223372036854775808"]],
  ["lockstep-epoch", ["0", "3", "x"]],
  ["lockstep-namespace", ["default", "team.orders", "-"]],
  ["request-id", ["a-token", "", "x".repeat(200)]],
  ["accept", ["application/json", "text/event-stream", "application/x-ndjson"]],
  ["last-event-id", ["", "41"]],
];

function headers(dice: Dice): string {
  return dice
    .list(3, () => {
      const [name, texts] = dice.pick(HEADERS);
      return `${name}: ${dice.pick(texts)}\n`;
    })
    .join("");
}

/** A key as a path holds it, percent-encoded where it must be and now and then where it need not. */
function path(dice: Dice): string {
  let encoded = "/";
  for (const byte of values.bytes(dice, 40)) {
    const plain = /[A-Za-z0-9._~/-]/.test(String.fromCharCode(byte)) && !dice.once(8);
    encoded += plain ? String.fromCharCode(byte) : `%${byte.toString(16).padStart(2, "0")}`;
  }
  return encoded;
}

const QUERIES: readonly string[] = [
  "prefix",
  "prefix=true",
  "sequential",
  "revision=7",
  "minRevision=3",
  "consistency=serializable",
  "limit=10",
  "after=7.YWI",
  "keysOnly",
  "countOnly=1",
  "timeoutMs=500",
  "keys",
  "key=%00%ff",
  "prefix=/a",
  "fromRevision=12",
  "previous",
  "omit=put",
  "wait=30s",
  "wait=999999999m",
];

function query(dice: Dice): string {
  const parts = dice.list(3, () => dice.pick(QUERIES));
  return parts.length === 0 ? "" : `?${parts.join("&")}`;
}

function keyJson(dice: Dice, name: string): object {
  const bytes = values.key(dice);
  return dice.once(2)
    ? { [name]: values.text(dice) || "k" }
    : { [`${name}Base64`]: bytes.toString("base64") };
}

function stepJson(dice: Dice): object {
  switch (dice.below(3)) {
    case 0:
      return {
        put: {
          ...keyJson(dice, "key"),
          ...keyJson(dice, "value"),
          ...(dice.once(3) && { lease: "lease_81" }),
        },
      };
    case 1:
      return {
        delete: { ...keyJson(dice, "key"), ...(dice.once(2) && { prefix: true }), previous: dice.once(2) },
      };
    default:
      return {
        get: { ...keyJson(dice, "key"), revision: 1 + dice.below(9), limit: dice.below(5), reverse: true },
      };
  }
}

function compareJson(dice: Dice): object {
  const operand = dice.pick([
    { version: 3 },
    { createRevision: 0 },
    { modRevision: 77 },
    { lease: null },
    { lease: "lease_5" },
    { value: "x" },
  ]);
  return { ...keyJson(dice, "key"), ...operand, operator: dice.pick(["=", "==", "!=", "<", ">"]) };
}

function txnJson(dice: Dice): object {
  return {
    compares: dice.list(4, () => compareJson(dice)),
    success: dice.list(4, () => stepJson(dice)),
    failure: dice.list(2, () => stepJson(dice)),
  };
}

function request(dice: Dice): Buffer {
  const wrap = (line: string, body: Buffer | string = ""): Buffer =>
    Buffer.concat([Buffer.from(`${line}\n${headers(dice)}\n`, "latin1"), Buffer.from(body)]);
  switch (dice.below(10)) {
    case 0:
      return wrap(`PUT /v1/kv${path(dice)}${query(dice)}`, values.bytes(dice));
    case 1:
      return wrap(`GET /v1/kv${path(dice)}${query(dice)}`);
    case 2:
      return wrap(`DELETE /v1/kv${path(dice)}${query(dice)}`);
    case 3: {
      const owner = values.text(dice);
      return wrap("POST /v1/leases", JSON.stringify({ ttlMs: 1 + values.number(dice), owner }));
    }
    case 4:
      return wrap(`GET /v1/leases${query(dice)}`);
    case 5:
      return wrap(`${dice.pick(["GET", "DELETE"])} /v1/leases/lease_${values.lease(dice)}${query(dice)}`);
    case 6:
      return wrap(`POST /v1/leases/lease_${values.lease(dice)}/keepalive`);
    case 7:
      return wrap(`GET /v1/watch${query(dice)}`);
    default:
      return wrap("POST /v1/txn", JSON.stringify(txnJson(dice)));
  }
}

/** Damages the JSON of a body, or the line and headers before it. */
function damageRequest(dice: Dice, bytes: Buffer): Buffer {
  const gap = bytes.indexOf("\n\n");
  if (gap < 0) return bytes;
  const head = bytes.subarray(0, gap);
  const body = bytes.subarray(gap + 2);
  if (body[0] !== 0x7b || dice.once(4)) {
    return Buffer.concat([damage(dice, head, () => Buffer.from(headers(dice))), bytes.subarray(gap)]);
  }
  return Buffer.concat([bytes.subarray(0, gap + 2), damageJson(dice, body)]);
}

/** What got past the door can be forwarded to the leader and comes out there as it was. */
function checkAsked(asked: Asked): void {
  if (asked.kind === "mutate") {
    const first = encodeForwarded(asked);
    const second = encodeForwarded(decodeForwarded(first));
    assertLaw(bufferOf(first).equals(second), "an operation comes out at the leader as another one");
  } else if (asked.kind === "read") {
    const first = encodeReadOperation(asked.read.operation);
    const second = encodeReadOperation(decodeReadOperation(first));
    assertLaw(bufferOf(first).equals(second), "a read comes out at the leader as another one");
  }
}

export const HTTP_TARGETS: readonly Target[] = [
  {
    name: "http-request",
    about:
      "target, headers and body of HTTP requests (gateway/http) through its routes; refused with a problem below 500",
    weight: 2,
    // Texts and numbers of a request are combined freely, so what is drawn need not be acceptable.
    generate: (dice) => ({ ...input(dice, request, { structured: damageRequest }), valid: false }),
    decode: handle,
    refused: (error) => error === NOT_ROUTED || (error instanceof ProblemError && error.problem.status < 500),
    check: (value) => checkAsked(value as Asked),
  },
];
