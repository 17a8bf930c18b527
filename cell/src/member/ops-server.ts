import fastify from "fastify";
import type { FastifyInstance } from "fastify";
import type { Registry } from "prom-client";

export interface OpsServerOptions {
  readonly host: string;
  readonly port: number;
  readonly registry: Registry;
  /** Absent: ready. Present: why not, for people and probes' logs. */
  readonly notReady: () => string | undefined;
}

/**
 * For probes and Prometheus. `/livez` says only that this process turns its event loop (a member without a quorum is
 * alive, and restarting it cures nothing); `/readyz` says that it is a voter that has applied what its leader had committed a
 * few seconds ago at most: another member may be taken away.
 */
export async function startOpsServer(options: OpsServerOptions): Promise<{ close(): Promise<void> }> {
  const server: FastifyInstance = fastify({ logger: false, forceCloseConnections: true });
  server.get("/livez", (_request, reply) => reply.type("text/plain").send("ok\n"));
  server.get("/readyz", (_request, reply) => {
    const reason = options.notReady();
    return reply
      .code(reason === undefined ? 200 : 503)
      .type("text/plain")
      .send(reason === undefined ? "ok\n" : `not ready: ${reason}\n`);
  });
  server.get("/metrics", async (_request, reply) => {
    const text = await options.registry.metrics();
    return reply.type(options.registry.contentType).send(text);
  });
  await server.listen({ host: options.host, port: options.port });
  return { close: () => server.close() };
}
