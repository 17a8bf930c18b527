import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Backend, Call } from "./backend.ts";
import type { Json } from "./json.ts";
import { DELETE_PARAMETERS, GET_PARAMETERS, PUT_PARAMETERS, deleteKey, getKey, putKey } from "./kv-routes.ts";
import {
  LIST_PARAMETERS,
  SHOW_PARAMETERS,
  grantLease,
  keepAlive,
  listLeases,
  revokeLease,
  showLease,
} from "./lease-routes.ts";
import { isKeyTarget } from "./target.ts";
import { runTxn } from "./txn-route.ts";
import type { WatchRoute } from "./watch-route.ts";
import { WATCH_PARAMETERS } from "./watch-route.ts";

type Method = "GET" | "PUT" | "POST" | "DELETE";

interface Route {
  readonly method: Method;
  readonly url: string;
  readonly parameters: readonly string[];
  readonly handle: (backend: Backend, call: Call) => Promise<void>;
  /** Room for a whole value, or for base64 and JSON around one. Default: the app's limit. */
  readonly bodyBytesMax?: (backend: Backend) => number;
}

const NO_PARAMETERS: readonly string[] = [];

/** Everything but the watch and the descriptions. */
const ROUTES: readonly Route[] = [
  {
    method: "PUT",
    url: "/v1/kv",
    parameters: PUT_PARAMETERS,
    handle: putKey,
    bodyBytesMax: (backend) => backend.limits.valueBytesMax,
  },
  { method: "GET", url: "/v1/kv", parameters: GET_PARAMETERS, handle: getKey },
  { method: "DELETE", url: "/v1/kv", parameters: DELETE_PARAMETERS, handle: deleteKey },
  { method: "POST", url: "/v1/txn", parameters: NO_PARAMETERS, handle: runTxn },
  { method: "POST", url: "/v1/leases", parameters: NO_PARAMETERS, handle: grantLease },
  { method: "GET", url: "/v1/leases", parameters: LIST_PARAMETERS, handle: listLeases },
  { method: "GET", url: "/v1/leases/:id", parameters: SHOW_PARAMETERS, handle: showLease },
  { method: "DELETE", url: "/v1/leases/:id", parameters: NO_PARAMETERS, handle: revokeLease },
  { method: "POST", url: "/v1/leases/:id/keepalive", parameters: NO_PARAMETERS, handle: keepAlive },
];

/** What {@link addRoutes} needs beside the backend. */
export interface RouteContext {
  readonly watches: WatchRoute;
  readonly openapi: string;
  readonly info: () => Json;
}

/** Every path of the interface, for the tests of its description. */
export const PATHS: readonly { readonly method: Method; readonly url: string }[] = [
  ...ROUTES,
  { method: "GET", url: "/v1/watch" },
  { method: "GET", url: "/v1/info" },
  { method: "GET", url: "/v1/openapi.yaml" },
];

/** The methods of a path that exists, for the header `Allow`. */
export function allowedMethods(path: string): string | undefined {
  const routed = isKeyTarget(path) ? "/v1/kv" : path;
  const methods = PATHS.filter(({ url }) => new RegExp(`^${url.replace(":id", "[^/]+")}$`).test(routed)).map(
    ({ method }) => method,
  );
  if (methods.length === 0) return undefined;
  return (methods.includes("GET") ? ["HEAD", ...methods] : methods).join(", ");
}

/** Puts all routes on the app. */
export function addRoutes(app: FastifyInstance, backend: Backend, context: RouteContext): void {
  for (const { method, url, parameters, handle, bodyBytesMax } of ROUTES) {
    app.route({
      method,
      url,
      ...(bodyBytesMax === undefined ? {} : { bodyLimit: bodyBytesMax(backend) }),
      handler: async (request: FastifyRequest, reply: FastifyReply) => {
        await handle(backend, backend.open(request, reply, parameters));
        return reply;
      },
    });
  }
  app.get("/v1/watch", { exposeHeadRoute: false }, async (request, reply) => {
    await context.watches.handle(backend.open(request, reply, WATCH_PARAMETERS));
    return reply;
  });
  app.get("/v1/info", async (_request, reply) => reply.send(context.info()));
  app.get("/v1/openapi.yaml", async (_request, reply) =>
    reply.type("application/yaml").send(context.openapi),
  );
}
