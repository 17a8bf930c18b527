import { createServer } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Registry } from "prom-client";

export interface OpsServerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly registry: Registry;
  /**
   * Why this process should be started anew; absent: it should not. Local things only: that the apiserver does not answer
   * is no reason, a restart cures nothing of it.
   */
  readonly unhealthy?: () => string | undefined;
  /** Why it is not ready, for people and probes' logs; undefined: it is. */
  readonly notReady: () => string | undefined;
}

export interface OpsServer {
  readonly port: number;
  close(): Promise<void>;
}

const REQUEST_TIMEOUT_MS = 10_000;
const CONNECTIONS_MAX = 100;

/** `/healthz`, `/readyz` and `/metrics` for probes and Prometheus. */
export async function startOpsServer(options: OpsServerOptions): Promise<OpsServer> {
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS });
  server.maxConnections = CONNECTIONS_MAX;
  server.on("request", (request, response) => {
    answer(options, request, response).catch((error: unknown) => {
      send(response, 500, `${error instanceof Error ? error.message : String(error)}\n`);
    });
  });
  await listen(server, options);
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve, reject) => {
        server.close((error) => (error === undefined ? resolve() : reject(error)));
        server.closeAllConnections();
      }),
  };
}

function listen(server: Server, { host, port }: OpsServerOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

async function answer(
  options: OpsServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (request.method !== "GET" && request.method !== "HEAD") {
    send(response, 405, "method not allowed\n");
    return;
  }
  const path = request.url?.split("?")[0];
  switch (path) {
    case "/healthz":
    case "/livez":
      verdict(response, "unhealthy", options.unhealthy?.());
      break;
    case "/readyz":
      verdict(response, "not ready", options.notReady());
      break;
    case "/metrics":
      send(response, 200, await options.registry.metrics(), options.registry.contentType);
      break;
    default:
      send(response, 404, "not found\n");
  }
}

function verdict(response: ServerResponse, what: string, why: string | undefined): void {
  if (why === undefined) send(response, 200, "ok\n");
  else send(response, 503, `${what}: ${why}\n`);
}

function send(
  response: ServerResponse,
  status: number,
  text: string,
  type = "text/plain; charset=utf-8",
): void {
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  response.end(text);
}
