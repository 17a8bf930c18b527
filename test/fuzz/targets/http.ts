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
import { damageRequest, request } from "../generate/http.ts";
import { input } from "../generate/mutate.ts";
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
